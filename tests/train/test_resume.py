"""Processes killed with SIGKILL resume to exactly the weights of an undisturbed training."""

import multiprocessing
import os
import random
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from safetensors.torch import load_file

from tests.soak_results import counted
from tests.train.trainee import run_it

TRAINEE = Path(__file__).with_name("trainee.py")


class Program:
    """A trainee started as a user would: a new interpreter."""

    def __init__(self, folder, *words):
        command = [sys.executable, str(TRAINEE), str(folder), *words]
        environment = {**os.environ, "PYTHONPATH": str(TRAINEE.parents[2] / "src")}
        self._process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=environment)
        self.pid = self._process.pid

    def alive(self):
        return self._process.poll() is None

    def ended(self, seconds):
        """The exit status, and stderr."""
        _, errors = self._process.communicate(timeout=seconds)
        return self._process.returncode, errors


class Fork:
    """The same, forked from a server that has imported everything: it starts seconds faster."""

    def __init__(self, folder, *words):
        context = multiprocessing.get_context("forkserver")
        context.set_forkserver_preload(["tests.train.trainee"])
        self._process = context.Process(target=run_it, args=(Path(folder), "resume" in words))
        self._process.start()
        self.pid = self._process.pid

    def alive(self):
        return self._process.is_alive()

    def ended(self, seconds):
        self._process.join(seconds)
        return self._process.exitcode, "its traceback is above"


def finished(start, folder, *words):
    status, errors = start(folder, *words).ended(300)
    assert status == 0, errors


def steps_there(folder):
    return [p.name for p in (folder / "checkpoints").glob("step-*")] if (folder / "checkpoints").exists() else []


def killed(start, folder, generator, *words, inside_write):
    """Start, wait for a checkpoint, kill -9: during a checkpoint write if `inside_write`, else at a random moment."""
    process = start(folder, *words)
    before = set(steps_there(folder))
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline and process.alive():
        writing = list((folder / "checkpoints").glob(".writing-*")) if (folder / "checkpoints").exists() else []
        moved = set(steps_there(folder)) != before
        if (inside_write and moved and writing) or (not inside_write and moved):
            if not inside_write:
                time.sleep(generator.random() * 0.05)
            break
        time.sleep(0.0005)  # a write takes milliseconds; the trainee needs the core
    alive = process.alive()
    if alive:
        os.kill(process.pid, signal.SIGKILL)
    process.ended(60)
    return alive


def same_weights(a, b):
    for name in ("weights.safetensors", "objective.safetensors", "references.safetensors"):
        mine, theirs = load_file(a / name), load_file(b / name)
        assert mine.keys() == theirs.keys()
        assert all(bool((mine[key] == theirs[key]).all()) for key in mine), name


def kill_and_resume(start, folder, whole, kills, seed):
    """Kill a training several times, let it finish, compare its weights; returns how many kills met a live process."""
    generator, met = random.Random(seed), 0
    words: tuple[str, ...] = ()
    for number in range(kills):
        met += killed(start, folder, generator, *words, inside_write=number % 2 == 0)
        words = ("resume",)
    finished(start, folder, "resume")
    same_weights(whole, folder)
    return met


@pytest.mark.soak
def test_kill_9_and_resume_gives_bit_identical_weights(tmp_path):
    finished(Program, tmp_path / "whole")
    assert kill_and_resume(Program, tmp_path / "killed", tmp_path / "whole", kills=3, seed=0) == 3


@pytest.mark.soak
def test_two_hundred_kills(tmp_path):
    """Half of them inside a checkpoint write; two trainings at a time, since most of the time is spent waiting."""
    finished(Fork, tmp_path / "whole")

    def one(number):
        return kill_and_resume(Fork, tmp_path / f"killed-{number}", tmp_path / "whole", kills=4, seed=number)

    with counted("kills of a training, half of them inside a checkpoint write") as found, ThreadPoolExecutor(2) as pool:
        found.count = sum(pool.map(one, range(56)))
        assert found.count >= 200  # a kill may come too late for a training that is about to end
        found.outcome = "resumed to the same weights, bit for bit"
