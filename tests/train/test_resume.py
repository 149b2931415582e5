"""Real processes, really killed: what they resume to is what they would have become."""

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from safetensors.torch import load_file

TRAINEE = Path(__file__).with_name("trainee.py")


def start(folder, *words):
    command = [sys.executable, str(TRAINEE), str(folder), *words]
    return subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env={**os.environ, "PYTHONPATH": str(TRAINEE.parents[2] / "src")})


def finished(folder, *words):
    process = start(folder, *words)
    _, errors = process.communicate(timeout=300)
    assert process.returncode == 0, errors


def steps_there(folder):
    return [p.name for p in (folder / "checkpoints").glob("step-*")] if (folder / "checkpoints").exists() else []


def killed(folder, generator, *words, inside_write):
    """Start, wait for a sign of life, kill -9: inside a checkpoint write when asked, else at a random moment."""
    process = start(folder, *words)
    before = set(steps_there(folder))
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline and process.poll() is None:
        writing = list((folder / "checkpoints").glob(".writing-*")) if (folder / "checkpoints").exists() else []
        moved = set(steps_there(folder)) != before
        if (inside_write and moved and writing) or (not inside_write and moved):
            if not inside_write:
                time.sleep(generator.random() * 0.05)
            break
        time.sleep(0.0005)  # a write takes milliseconds; the trainee needs the core
    alive = process.poll() is None
    process.send_signal(signal.SIGKILL)
    process.communicate()
    return alive


def same_weights(a, b):
    for name in ("weights.safetensors", "objective.safetensors", "references.safetensors"):
        mine, theirs = load_file(a / name), load_file(b / name)
        assert mine.keys() == theirs.keys()
        assert all(bool((mine[key] == theirs[key]).all()) for key in mine), name


def kill_and_resume(tmp_path, times, seed):
    """Kills spread over as many trainings as it takes; each training must end with the untouched one's very weights."""
    finished(tmp_path / "whole")
    generator = random.Random(seed)
    kills = trainings = 0
    while kills < times:
        folder = tmp_path / f"killed-{trainings}"
        words: tuple[str, ...] = ()
        for _ in range(min(4, times - kills)):
            kills += killed(folder, generator, *words, inside_write=kills % 2 == 0)
            words = ("resume",)
        finished(folder, "resume")
        same_weights(tmp_path / "whole", folder)
        trainings += 1
    return kills


def test_kill_9_and_resume_gives_bit_identical_weights(tmp_path):
    assert kill_and_resume(tmp_path, times=3, seed=0) == 3


@pytest.mark.soak
def test_two_hundred_kills(tmp_path):
    assert kill_and_resume(tmp_path, times=200, seed=1) >= 200
