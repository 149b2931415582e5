"""Images are decoded in processes that can be killed: slow, hungry and broken ones cost themselves only."""

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from nearkin.data.images import DamagedImageError, decode
from nearkin.data.pixels import Framing
from nearkin.serve.decode_worker import OUT_OF_MEMORY
from nearkin.serve.decoders import Decoders
from nearkin.serve.errors import Refusal
from nearkin.serve.limits import Limits
from tests.serve.hostile_images import deep_png, many_scans, palette_png
from tests.serve.small_model import encoded, picture

SHAPE, READING = (3, 16, 16), (3, Framing(16))
GOOD = encoded(picture("green", 5, (40, 30)))


def with_decoders(work: Callable[[Decoders], Awaitable[None]], **limits: Any) -> None:
    decoders = Decoders(Limits(**limits))
    try:
        asyncio.run(work(decoders))  # type: ignore[arg-type]
    finally:
        decoders.stop()


def test_uploads_are_decoded_as_files_are(tmp_path: Path) -> None:
    (tmp_path / "q.png").write_bytes(GOOD)

    async def work(decoders: Decoders) -> None:
        for channels in (1, 3):
            found = await decoders.decode(GOOD, (channels, Framing(16, 0.5, "bicubic")))
            assert (
                np.array_equal(found.pixels, decode(str(tmp_path / "q.png"), channels, Framing(16, 0.5, "bicubic")).numpy())
                and found.seconds > 0
            )
        with pytest.raises(DamagedImageError, match=r"the upload cannot be decoded \(not an image, or an empty file"):
            await decoders.decode(b"%!PS-Adobe", READING)
        large = encoded(picture("green", 5, (1600, 1200)))  # a small one may be decoded before the second request is made
        both = await asyncio.gather(*(decoders.decode(large, READING) for _ in range(12)))
        assert len(both) == 12 and len(decoders._all) == 2 and decoders.pending == 0

    with_decoders(work)


def test_what_is_slow_is_killed_and_others_go_on() -> None:
    async def work(decoders: Decoders) -> None:
        await decoders.decode(GOOD, READING)
        (stuck,) = decoders._all
        os.kill(stuck._process.pid, signal.SIGSTOP)  # as a decoder that does not end
        with pytest.raises(DamagedImageError, match=r"decoding it takes longer than 2 s"):
            await decoders.decode(GOOD, READING)
        assert stuck._process.returncode == -signal.SIGKILL and stuck not in decoders._all
        await decoders.decode(GOOD, READING)

    with_decoders(work, threads=1, decode_seconds=2)


def test_a_process_that_breaks_is_replaced() -> None:
    async def work(decoders: Decoders) -> None:
        await decoders.decode(GOOD, READING)
        (broken,) = decoders._all
        broken._process.kill()
        with pytest.raises(DamagedImageError, match="the decoder failed"):
            await decoders.decode(GOOD, READING)
        await decoders.decode(GOOD, READING)

    with_decoders(work, threads=1)


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="memory is limited where /proc says how much is held")
def test_memory_is_limited_even_if_the_header_says_nothing() -> None:
    async def work(decoders: Decoders) -> None:
        process, hungry = decoders._process(), Limits(decode_bytes=1 << 40)
        for content in (palette_png(5000), deep_png(5000)):
            status, _, reason = await process.ask(content, READING, hungry)
            assert status == OUT_OF_MEMORY and "more than" in reason
        status, *_ = await process.ask(GOOD, READING, hungry)
        assert status == 0

    with_decoders(work, decode_bytes=64 << 20)


def test_the_largest_allowed_images_fit_into_the_memory_that_is_allowed() -> None:
    async def work(decoders: Decoders) -> None:
        for content in (palette_png(5600), deep_png(5600), many_scans(10, 5600)):
            assert (await decoders.decode(content, READING)).pixels.shape == SHAPE

    with_decoders(work, threads=1, decode_seconds=60)


def test_a_full_queue_is_refused() -> None:
    async def work(decoders: Decoders) -> None:
        answers = await asyncio.gather(*(decoders.decode(GOOD, READING) for _ in range(5)), return_exceptions=True)
        refused = [one for one in answers if isinstance(one, Refusal)]
        assert len(refused) == 2 and all((one.status_code, one.code) == (429, "busy") for one in refused)

    with_decoders(work, threads=1, queue=3)


def test_a_decoder_is_small_and_holds_no_secret() -> None:
    code = "import sys, nearkin.serve.decode_worker; print('torch' in sys.modules, 'fastapi' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env={**os.environ, "PYTHONPATH": "src"})
    assert done.stdout.split() == ["False", "False"]

    async def work(decoders: Decoders) -> None:
        await decoders.decode(GOOD, READING)
        (process,) = decoders._all
        assert b"NEARKIN_TOKEN" not in Path(f"/proc/{process._process.pid}/environ").read_bytes()

    os.environ["NEARKIN_TOKEN"] = "a-secret-of-a-good-length"
    try:
        with_decoders(work)
    finally:
        del os.environ["NEARKIN_TOKEN"]


def test_processes_end_with_their_owner() -> None:
    decoders = Decoders(Limits())
    decoders.start()
    started = [one._process for one in decoders._all]
    del decoders
    assert [process.returncode for process in started] == [-signal.SIGKILL] * 2
