"""A few threads and a bounded queue. When it is full, requests are refused at once."""

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, TypeVar

from nearkin.serve.errors import Refusal

Found = TypeVar("Found")
THREADS = "nearkin-search"  # their name


class Workers:
    """Runs jobs outside the event loop."""

    def __init__(self, threads: int, queue: int, seconds: float) -> None:
        self._threads, self._queue, self._seconds = threads, queue, seconds
        self._pool: ThreadPoolExecutor | None = None  # started by the first job
        self._lock = threading.Lock()
        self._waiting: set[asyncio.Future[Any]] = set()
        self._stopped = False
        self.pending = 0  # running or waiting

    async def run(self, job: Callable[[], Found]) -> Found:
        """The job's result; 429 when the queue is full, 504 when it takes too long, 503 when the service stops."""
        with self._lock:
            if self.pending >= self._queue:
                raise Refusal(429, "busy", f"{self._queue} requests are running or waiting; try again in a second", {"Retry-After": "1"})
            self._pool = self._pool or ThreadPoolExecutor(self._threads, thread_name_prefix=THREADS)
            self.pending += 1
        future = self._pool.submit(job)
        future.add_done_callback(self._done)  # when it ends, not when the request gives up: a thread cannot be stopped
        result = asyncio.wrap_future(future)
        self._waiting.add(result)
        try:
            async with asyncio.timeout(self._seconds):
                return await result
        except TimeoutError:
            raise Refusal(504, "timeout", f"the search took longer than {self._seconds:g} s; try again later") from None
        except asyncio.CancelledError:
            if not self._stopped:
                raise
            raise Refusal(503, "stopping", "the service is stopping; try again when it is back") from None
        finally:
            self._waiting.discard(result)

    def stop(self) -> None:
        """Drop all jobs; the threads of running ones end when they are done."""
        self._stopped = True
        for result in list(self._waiting):
            result.cancel()
        if self._pool is not None:
            self._pool.shutdown(wait=False, cancel_futures=True)
        self._pool = None

    @staticmethod
    def any_running() -> bool:
        """Whether a thread still works on a job that was dropped."""
        return any(thread.name.startswith(THREADS) for thread in threading.enumerate())

    def _done(self, _: "Future[Found]") -> None:
        with self._lock:
            self.pending -= 1
