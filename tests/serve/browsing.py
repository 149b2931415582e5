"""For tests in a real browser: the service in a thread, and waiting."""

import threading
import time
from typing import Any

from nearkin.index.collection import Collection
from nearkin.serve.listen import serve


def served(collection: Collection, **more: Any) -> str:
    """The address of the service in a thread of this process, which ends with the process."""
    found, ready = list[str](), threading.Event()

    def started(address: str) -> None:
        found.append(address)
        ready.set()

    threading.Thread(target=serve, args=(collection,), kwargs={"port": 0, "ready": started, **more}, daemon=True).start()
    assert ready.wait(60)
    return found[0]


def until(page: Any, test: str) -> None:
    """Wait for a condition; the pages' policy forbids playwright's own way of waiting."""
    for _ in range(400):
        if page.evaluate(test):
            return
        time.sleep(0.05)
    raise AssertionError(test)
