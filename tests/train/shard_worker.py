"""One rank of two, over shards: steps with a divided bank, a training that is stopped, and one that resumes a single process.

Run by test_shard_ranks under torchrun.
"""

import json
import sys
from functools import partial
from pathlib import Path

import torch
from torch import nn

from nearkin import data as sources
from nearkin import objectives as o
from nearkin.train import ranks
from nearkin.train.config import Run, override
from nearkin.train.spread_bank import BankPart, collect, spread
from nearkin.train.step import Step
from nearkin.train.training import Loop, train

SIZE, WIDE, DIMENSION = 21, 6, 4  # 21 slots over two ranks: uneven parts
STOP = 7  # the step a training is stopped after
OBJECTIVES = ("nca", "instance_discrimination")


class Stopped(Exception):  # noqa: N818
    """Raised to stop the training."""


def run_over(shards: Path, objective: str) -> Run:
    settings = {"network.name": "mlp", "network.dimension": "4", "batch_size": "32", "epochs": "2", "checkpoint_seconds": "0"}
    settings |= {
        "data.source": str(shards),
        "data.validation": "0",
        "data.test": "0",
        "objective.name": objective,
        "augment.name": "none",
    }  # ranks draw for themselves
    return override(Run(), settings)


def interrupted(run: Run, folder: Path) -> dict[int, int]:
    """Train until step STOP is saved; returns how often each shard was read."""
    real, loops = Loop._maybe_save, list[Loop]()

    def mortal(self: Loop, last: bool = False) -> None:
        real(self, last)
        loops.append(self)
        if self.steps == STOP:
            raise Stopped

    Loop._maybe_save = mortal  # type: ignore[method-assign]
    try:
        train(run, folder, device="cpu")
    except Stopped:
        return dict(loops[-1].data.train.inputs.cache.read)  # type: ignore[union-attr]
    finally:
        Loop._maybe_save = real  # type: ignore[method-assign]
    raise AssertionError("it was to be stopped")


def two_steps(objective: o.NeighborhoodObjective) -> dict[str, torch.Tensor]:
    """The network and the bank after two steps in float64, and the neighborhoods in that bank."""
    torch.manual_seed(1)
    network = nn.Sequential(nn.Linear(WIDE, 8), nn.Tanh(), nn.Linear(8, DIMENSION)).double()
    inputs = torch.randn(SIZE, WIDE, dtype=torch.float64)
    optimizer = torch.optim.SGD(network.parameters(), lr=0.5, momentum=0.9)
    step = Step(network, objective, optimizer, read=lambda ids: inputs[ids], answers=None, prepare=lambda x: x, generator=torch.Generator())
    losses = []
    for start in (0, 8):
        ids = torch.cat([torch.arange(start, start + 12), torch.tensor([start])])  # one of them twice
        losses.append(step(ranks.share(ids)))
    bank = objective.references
    collect(objective)
    found = {**network.state_dict(), "losses": torch.stack(losses)}
    vectors = bank.whole if isinstance(bank, BankPart) else bank.vectors
    return found | ({} if vectors is None else {"bank": vectors})


def banked() -> dict[str, dict[str, torch.Tensor]]:
    found = {}
    some = torch.where(torch.arange(SIZE) % 3 == 0, torch.arange(SIZE) % 4, -1)
    kinds = {
        "instances": o.InstanceDiscrimination,
        "discovery": o.NeighborhoodDiscovery,
        "streamed": partial(o.NeighborhoodDiscovery, engine="torch"),
        "weighted, with some classes": partial(o.NeighborhoodDiscovery, weighted=True, labels=some, engine="torch"),
        "each": partial(o.NeighborhoodDiscovery, quantifier="each"),  # its bank is not spread: every rank has the whole
    }
    for name, made in kinds.items():
        torch.manual_seed(5)
        objective = made(SIZE, DIMENSION).double()
        if isinstance(objective, o.NeighborhoodDiscovery):
            weight = torch.linspace(0, 1, SIZE) if name.startswith("weighted") else None
            objective.trust((torch.arange(SIZE)[:, None] + 3) % SIZE, torch.arange(SIZE) % 2 == 0, weight)
        spread(objective)
        found[name] = two_steps(objective)
        if isinstance(objective.references, BankPart):
            found[f"{name} neighborhoods"] = objective.references.discover(3, 0.1)._asdict()
    return found


def main(place: Path) -> None:
    torch.set_num_threads(1)
    rank, _ = ranks.start("cpu")
    torch.save(banked(), place / f"banked.{rank}")
    read = {name: interrupted(run_over(place / "shards", name), place / f"two-{name}") for name in OBJECTIVES}
    (place / f"read.{rank}").write_text(json.dumps(read))
    train(run_over(place / "shards", "instance_discrimination"), place / "one-instance_discrimination", device="cpu", resume=True)
    data = sources.open(place / "pictures")
    train(run_over(place / "pictures", "nca"), place / "two-pictures", data=data, device="cpu")
    (place / f"pictures.{rank}").write_text(json.dumps(data.inputs.cache.read))  # type: ignore[union-attr]
    ranks.stop()
    (place / f"threads.{rank}").write_text(json.dumps([(one / "comm").read_text().strip() for one in Path("/proc/self/task").glob("*")]))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
