"""Ctrl-C while a training runs: nothing of it is lost, and nobody has to wait who does not want to."""

import signal
import threading
import time

import pytest
import torch
from safetensors.torch import load_file

from nearkin.train.checkpoint import name_of_newest
from nearkin.train.config import Run, override
from nearkin.train.interrupt import TOGETHER, Interrupt, held
from nearkin.train.reporter import Silence
from nearkin.train.training import train

SETTINGS = {"data.source": "digits", "network.name": "mlp", "epochs": "2", "batch_size": "300", "checkpoint_seconds": "1e9"}


class Pressed(Silence):
    """Ctrl-C in a step."""

    def step(self, done, figures):
        if done == 2:
            signal.raise_signal(signal.SIGINT)
            signal.raise_signal(signal.SIGINT)  # as `timeout -s INT` tells it


def test_the_first_saves_a_checkpoint_from_which_the_very_same_weights_come(tmp_path):
    run = override(Run(), SETTINGS)
    train(run, tmp_path / "whole", device="cpu")
    with pytest.raises(KeyboardInterrupt):
        train(run, tmp_path / "cut", device="cpu", reporter=Pressed())
    assert name_of_newest(tmp_path / "cut" / "checkpoints") == "step-00000002"
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    train(run, tmp_path / "cut", device="cpu", resume=True)
    ours, theirs = (load_file(tmp_path / name / "weights.safetensors") for name in ("cut", "whole"))
    assert all(torch.equal(ours[name], theirs[name]) for name in theirs)


def test_the_second_is_heard_at_once():
    interrupt = Interrupt()
    with held(interrupt):
        signal.raise_signal(signal.SIGINT)
        assert interrupt.asked
        time.sleep(TOGETHER)
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_what_breaks_after_it_is_its_doing_and_what_breaks_without_it_is_told():
    def broken(pressed):
        with held(Interrupt()):
            if pressed:
                signal.raise_signal(signal.SIGINT)
            raise RuntimeError("a worker is gone")

    for pressed, error in ((True, KeyboardInterrupt), (False, RuntimeError)):
        with pytest.raises(error):
            broken(pressed)


def test_handlers_of_others_and_other_threads_are_left_alone():
    def others(*_):
        raise AssertionError

    def elsewhere():
        with held(Interrupt()):
            found.append(signal.getsignal(signal.SIGINT))

    found = []
    before = signal.signal(signal.SIGINT, others)
    try:
        elsewhere()
    finally:
        signal.signal(signal.SIGINT, before)
    thread = threading.Thread(target=elsewhere)
    thread.start()
    thread.join()
    assert found == [others, before]
