"""Uploaded images are decoded in processes of their own, which are killed when an image takes too much time or memory.

A thread cannot be stopped, and a decoder may hold it for minutes; a process can. Searches run elsewhere and do not wait for images.
"""

import asyncio
import os
import socket
import subprocess
import sys
import time
import weakref
from pathlib import Path
from typing import NamedTuple

import numpy as np

from nearkin.data.images import DamagedImageError
from nearkin.data.pixels import Framing
from nearkin.serve.decode_worker import DECODED, INTERPOLATIONS, OUT_OF_MEMORY, REPLY, REQUEST
from nearkin.serve.errors import Refusal
from nearkin.serve.limits import Limits


class Decoded(NamedTuple):
    """An image as the network reads it, and how long decoding took."""

    pixels: np.ndarray  # (channels, h, w) uint8
    seconds: float


class Decoders:
    """As many processes as `limits.threads`, started when they are needed."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._slots = asyncio.Semaphore(limits.threads)
        self._idle: list[_Process] = []
        self._all: set[_Process] = set()
        self.pending = 0  # images that are decoded or wait
        weakref.finalize(self, _kill, self._all)

    async def decode(self, content: bytes, reading: tuple[int, Framing]) -> Decoded:
        """The pixels of an image file; 429 when too many wait, 504 when one waits too long.

        Raises
        ------
        DamagedImageError
            If it cannot be decoded with the time and memory that are allowed.
        """
        if self.pending >= self._limits.queue:
            raise Refusal(429, "busy", f"{self._limits.queue} images are decoded or wait; try again in a second", {"Retry-After": "1"})
        self.pending += 1
        try:
            async with asyncio.timeout(self._limits.job_seconds):
                await self._slots.acquire()
        except TimeoutError:
            raise Refusal(504, "timeout", f"the image waited longer than {self._limits.job_seconds:g} s; try again later") from None
        else:
            try:
                return await self._decode(content, reading)
            finally:
                self._slots.release()
        finally:
            self.pending -= 1

    def start(self) -> None:
        """Start all processes, so that no request waits for it."""
        while len(self._all) < self._limits.threads:
            self._idle.append(self._process())

    def stop(self) -> None:
        """End all processes, whatever they do."""
        _kill(self._all)
        self._idle.clear()

    async def _decode(self, content: bytes, reading: tuple[int, Framing]) -> Decoded:
        seconds, started = self._limits.decode_seconds, time.perf_counter()
        process = self._idle.pop() if self._idle else self._process()
        kept = False
        try:
            async with asyncio.timeout(seconds):
                status, pixels, reason = await process.ask(content, reading, self._limits)
            kept = status != OUT_OF_MEMORY  # what it holds is not given back
        except TimeoutError:
            reason = f"decoding it takes longer than {seconds:g} s"
        except (EOFError, OSError):
            reason = "the decoder failed"
        finally:
            if kept and process in self._all:
                self._idle.append(process)
            else:
                self._all.discard(process)
                await asyncio.to_thread(process.kill)
        if reason:
            raise DamagedImageError(f"the upload cannot be decoded ({reason})")
        return Decoded(pixels, time.perf_counter() - started)

    def _process(self) -> "_Process":
        process = _Process(self._limits)
        self._all.add(process)
        return process


class _Process:
    """One process and the socket to it."""

    def __init__(self, limits: Limits) -> None:
        self._socket, theirs = socket.socketpair()
        self._socket.setblocking(False)
        place = str(Path(__file__).parents[2])
        paths = os.pathsep.join(filter(None, (place, os.environ.get("PYTHONPATH"))))
        command = [sys.executable, "-m", "nearkin.serve.decode_worker", str(limits.decode_seconds), str(limits.decode_bytes)]
        environment = {**os.environ, "PYTHONPATH": paths, "OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
        environment.pop("NEARKIN_TOKEN", None)
        with theirs:  # a session of its own: Ctrl-C is for the service, which ends its processes itself
            self._process = subprocess.Popen(
                command,
                stdin=theirs.fileno(),
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                env=environment,
                start_new_session=True,
            )

    async def ask(self, content: bytes, reading: tuple[int, Framing], limits: Limits) -> tuple[int, np.ndarray, str]:
        """The status, the pixels, and the reason if there are none."""
        loop = asyncio.get_running_loop()
        channels, framing = reading
        resized = (framing.size, framing.crop, INTERPOLATIONS.index(framing.interpolation))
        head = REQUEST.pack(channels, *resized, limits.pixels, limits.decode_bytes, len(content))
        await loop.sock_sendall(self._socket, head + content)  # at once: the process is woken once
        status, *found, length = REPLY.unpack(await self._read(REPLY.size))
        rest = await self._read(length)
        if status != DECODED:
            return status, np.empty(0, np.uint8), bytes(rest).decode()
        return status, np.frombuffer(rest, np.uint8).reshape(found), ""

    async def _read(self, length: int) -> bytearray:
        loop, content, at = asyncio.get_running_loop(), bytearray(length), 0
        while at < length:
            count = await loop.sock_recv_into(self._socket, memoryview(content)[at:])
            if not count:
                raise EOFError
            at += count
        return content

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()
        self._socket.close()


def _kill(processes: "set[_Process]") -> None:
    while processes:
        processes.pop().kill()
