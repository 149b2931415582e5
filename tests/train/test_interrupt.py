"""Ctrl-C and SIGTERM stop a training after a checkpoint; a second signal stops it at once; an ignored signal stays ignored."""

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from nearkin.train.checkpoint import name_of_newest
from nearkin.train.config import Run, override
from nearkin.train.interrupt import DEFAULTS, TOGETHER, Interrupt, held
from nearkin.train.reporter import Silence
from nearkin.train.training import train

SETTINGS = {"data.source": "digits", "network.name": "mlp", "epochs": "2", "batch_size": "300", "checkpoint_seconds": "1e9"}
BOTH = [signal.SIGINT, signal.SIGTERM]


@pytest.fixture(autouse=True)
def own_dispositions():
    """Python's defaults, whatever this process inherited: background jobs of a script start with SIGINT ignored."""
    before = {number: signal.signal(number, default) for number, default in DEFAULTS.items()}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


def dispositions():
    return {number: signal.getsignal(number) for number in DEFAULTS}


class Signaled(Silence):
    """Receives the signal in the second step, twice, as `timeout` sends it."""

    def __init__(self, number):
        self.number = number

    def step(self, done, figures):
        if done == 2:
            signal.raise_signal(self.number)
            signal.raise_signal(self.number)


@pytest.mark.parametrize("number", BOTH)
def test_the_first_signal_saves_a_checkpoint_that_resumes_to_the_same_weights(number, tmp_path):
    run = override(Run(), SETTINGS)
    train(run, tmp_path / "whole", device="cpu")
    with pytest.raises(KeyboardInterrupt):
        train(run, tmp_path / "cut", device="cpu", reporter=Signaled(number))
    assert name_of_newest(tmp_path / "cut" / "checkpoints") == "step-00000002"
    assert dispositions() == DEFAULTS
    train(run, tmp_path / "cut", device="cpu", resume=True)
    ours, theirs = (load_file(tmp_path / name / "weights.safetensors") for name in ("cut", "whole"))
    assert all(torch.equal(ours[name], theirs[name]) for name in theirs)


@pytest.mark.parametrize("number", BOTH)
def test_the_second_signal_stops_at_once(number):
    interrupt = Interrupt()
    with held(interrupt):
        signal.raise_signal(number)
        assert interrupt.asked
        time.sleep(TOGETHER)
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(number)
    assert dispositions() == DEFAULTS


def test_an_error_after_the_signal_is_an_interrupt_and_an_error_without_one_is_raised():
    def broken(signaled):
        with held(Interrupt()):
            if signaled:
                signal.raise_signal(signal.SIGINT)
            raise RuntimeError("a worker is gone")

    for signaled, error in ((True, KeyboardInterrupt), (False, RuntimeError)):
        with pytest.raises(error):
            broken(signaled)


def test_handlers_of_other_code_and_other_threads_are_left_alone():
    def others(*_):
        raise AssertionError

    def elsewhere():
        with held(Interrupt()):
            found.append(signal.getsignal(signal.SIGINT))

    found = []
    signal.signal(signal.SIGINT, others)
    elsewhere()
    signal.signal(signal.SIGINT, signal.default_int_handler)
    thread = threading.Thread(target=elsewhere)
    thread.start()
    thread.join()
    assert found == [others, signal.default_int_handler]


def test_an_ignored_signal_stays_ignored_and_the_other_one_is_held():
    interrupt = Interrupt()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with held(interrupt):
        signal.raise_signal(signal.SIGINT)
        assert not interrupt.asked
        signal.raise_signal(signal.SIGTERM)
        assert interrupt.asked
    assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_forked_worker_can_be_terminated():
    reading, writing = os.pipe()
    with held(Interrupt()):
        child = os.fork()
        if child == 0:
            os.write(writing, b"1")
            time.sleep(60)
            os._exit(0)
    os.read(reading, 1)
    os.kill(child, signal.SIGTERM)
    assert os.WTERMSIG(os.waitpid(child, 0)[1]) == signal.SIGTERM


SCRIPT = """
import signal, sys
from nearkin.train import Run, override, train
from tests.train.test_interrupt import SETTINGS, Signaled

class Both(Signaled):
    def step(self, done, figures):
        if done == 1:
            signal.raise_signal(signal.SIGINT)
        super().step(done, figures)

train(override(Run(), SETTINGS), sys.argv[1], device="cpu", reporter=Both(signal.SIGTERM))
"""


@pytest.mark.skipif(os.name != "posix", reason="background jobs of a POSIX shell")
@pytest.mark.soak
def test_a_training_in_the_background_of_a_script_ignores_sigint_and_stops_on_sigterm(tmp_path):
    def ignore():  # as a shell starts `command &` in a script
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)

    root = Path(__file__).parents[2]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(root / "src"), str(root)])}
    command = [sys.executable, "-c", SCRIPT, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, preexec_fn=ignore, check=False)
    assert done.stderr.rstrip().endswith("KeyboardInterrupt"), done.stderr
    assert name_of_newest(tmp_path / "checkpoints") == "step-00000002"
