"""The table of binary codes: every kind at every length, on data small enough for a test."""

from dataclasses import replace

import torch

from nearkin.data import open as open_data
from nearkin.data import partition
from nearkin.train.config import Run, override
from papers import codes
from papers.cell import Trial
from papers.codes import BITS, CELLS, DATA, KINDS, TRIALS

SMALL = {"network.name": "mlp", "network.dimension": "16", "epochs": "3", "batch_size": "200", "objective.name": "nca"}


def test_every_length_and_kind_has_its_cells_and_bytes() -> None:
    rows = {(cell.table, cell.row): cell.note for cell in CELLS}
    assert len(rows) == len(CELLS) == len(DATA) * len(BITS) * len(KINDS) * 2 + 2 * len(BITS)
    assert rows["Binary codes, MNIST (ours)", "64 bits, learned code: 10-NN accuracy"] == "8 bytes per point"
    assert rows["Binary codes, CIFAR-10 (ours)", "64 bits, float embedding: P@10"] == "256 bytes per point"
    for trial in TRIALS:
        if trial.method == "codes":
            assert override(Run(), trial.settings).codes.learn == trial.name.endswith("learned")


def test_figures_of_every_kind_come_from_one_evaluation() -> None:
    data = open_data("digits")
    data = data.with_split(partition(data, None, {"train": 0.8, "test": 0.2}, 0).names)
    trial = Trial("made", "digits", SMALL, method="codes")
    figures = codes.perform(trial, 0, data, "cpu")
    assert {name.split()[0] for name in figures} == {"float", "sign", "itq"} and figures["float 10-nn"] > 0.85
    assert all(0.2 < value <= 1 for value in figures.values())
    learned = codes.perform(replace(trial, settings={**SMALL, "codes.learn": "true"}), 0, data, "cpu")
    assert set(learned) == {"learned 10-nn", "learned p@10"} and min(learned.values()) > 0.6


def test_speeds_are_measured_on_one_thread(monkeypatch) -> None:
    monkeypatch.setattr(codes, "REFERENCES", 2000)
    monkeypatch.setattr(codes, "QUERIES", 20)
    before = torch.get_num_threads()
    found = codes.speed(Trial("speed", "none", {"bits": "16"}, method="codes_speed"), 0)
    assert set(found) == {"float", "code"} and min(found.values()) > 0 and torch.get_num_threads() == before
