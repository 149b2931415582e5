"""Training throughput on one GPU against the loop people write today: `python -m bench.training --out FILE.json [--peers DIR]`.

Ours: data on the device as uint8, augmentation, forward, backward, optimizer and objective in one CUDA graph. The peer: a
DataLoader with 0, 4, 8 and 16 persistent pinned workers, torchvision transforms and pytorch-metric-learning's loss on the
same network and batch; the best of them counts. First-step time (compile, capture) is reported apart; each row is measured
with the network as it is and through torch.compile.
"""

import argparse
import json
import sys
import time
from datetime import UTC, datetime
from pathlib import Path

import torch
from torch import Tensor

from nearkin.data import Dataset
from nearkin.train.assemble import assemble, captured
from nearkin.train.config import Run, override

SECONDS = 3.0


def images(n: int, channels: int, side: int) -> Dataset:
    """Random pictures: throughput does not look at them."""
    generator = torch.Generator().manual_seed(0)
    pixels = torch.randint(0, 256, (n, channels, side, side), generator=generator, dtype=torch.uint8)
    return Dataset("random", pixels, labels=torch.randint(0, 10, (n,), generator=generator), classes=tuple("0123456789"))


def ours(settings: dict[str, str], data: Dataset) -> dict[str, float]:
    """Images a second of the captured step, and the time until it ran for the first time."""
    run = override(Run(), settings)
    started = time.perf_counter()
    parts = assemble(run, data, torch.device("cuda"))
    step = captured(run, parts)
    parts.network.train()
    for count, ids in enumerate(parts.sampler):
        step(ids.cuda())
        if count == 5:
            break
    torch.cuda.synchronize()
    first = time.perf_counter() - started
    done, started, before = 0, time.perf_counter(), torch.cuda.memory_allocated()
    while time.perf_counter() - started < SECONDS:
        for ids in parts.sampler:
            step(ids.cuda(non_blocking=True))
            done += len(ids)
            if time.perf_counter() - started > SECONDS:
                break
        torch.cuda.synchronize()
    took = time.perf_counter() - started
    return {"images_per_second": done / took, "first_step_seconds": first, "memory_growth_bytes": torch.cuda.memory_allocated() - before}


class _Pictures(torch.utils.data.Dataset[tuple[Tensor, int]]):
    def __init__(self, data: Dataset, transform: object) -> None:
        from PIL import Image

        arrays = data.inputs.permute(0, 2, 3, 1).numpy()
        self.pictures = [Image.fromarray(a[:, :, 0] if a.shape[2] == 1 else a) for a in arrays]
        self.labels, self.transform = data.labels.tolist(), transform

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, row: int) -> tuple[Tensor, int]:
        return self.transform(self.pictures[row]), self.labels[row]


def peer(settings: dict[str, str], data: Dataset, workers: int, augment: bool) -> float:
    """Images a second of a DataLoader, torchvision and pytorch-metric-learning."""
    from pytorch_metric_learning.distances import LpDistance
    from pytorch_metric_learning.losses import NCALoss
    from torchvision import transforms as t

    run = override(Run(), settings)
    network = assemble(run, data, torch.device("cuda")).network.train()
    steps = [t.RandomResizedCrop(32, (0.2, 1.0)), t.ColorJitter(0.4, 0.4, 0.4, 0.4), t.RandomGrayscale(0.2)] if augment else []
    transform = t.Compose([*steps, t.ToTensor(), t.Normalize(0.5, 0.25)])
    kept = {"num_workers": workers, "pin_memory": True, "persistent_workers": workers > 0}
    loader = torch.utils.data.DataLoader(_Pictures(data, transform), run.batch_size, shuffle=True, drop_last=True, **kept)
    loss_of = NCALoss(distance=LpDistance(normalize_embeddings=False, power=2))
    optimizer = torch.optim.SGD(network.parameters(), lr=0.01, momentum=0.9)
    done, started = 0, None
    for count, (x, y) in enumerate(_forever(loader)):
        if count == 3:
            torch.cuda.synchronize()
            done, started = 0, time.perf_counter()
        with torch.autocast("cuda", torch.bfloat16, enabled=run.precision == "bfloat16"):
            z = network(x.cuda(non_blocking=True).to(memory_format=torch.channels_last))
        loss = loss_of(z.float(), y.cuda(non_blocking=True))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        done += len(x)
        if started is not None and time.perf_counter() - started > SECONDS:
            break
    torch.cuda.synchronize()
    return done / (time.perf_counter() - started)


def _forever(loader: object) -> object:
    while True:
        yield from loader


MNIST = {
    "network.name": "ren2014-mnist",
    "network.dimension": "64",
    "objective.name": "nca",
    "batch_size": "1000",
    "precision": "bfloat16",
}
CIFAR = {
    "network.name": "resnet18",
    "network.dimension": "128",
    "network.normalize": "true",
    "objective.name": "instance_discrimination",
    "objective.options.precision": "fast",
    "augment.name": "discovery",
    "precision": "bfloat16",
    "optimizer.learning_rate": "0.03",
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--peers", type=Path, help="a folder with pytorch_metric_learning, where it is not installed")
    parser.add_argument("--workers", type=int, nargs="*", default=[0, 4, 8, 16])
    arguments = parser.parse_args()
    if arguments.peers:
        sys.path.insert(0, str(arguments.peers))
    if not torch.cuda.is_available():
        sys.exit("bench.training needs a CUDA device")
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = True
    torch.backends.cudnn.benchmark = True
    digits, color = images(60_000, 1, 28), images(50_000, 3, 32)
    results: dict[str, object] = {"device": torch.cuda.get_device_name(), "date": datetime.now(UTC).isoformat(), "torch": torch.__version__}
    rows = {
        "ren2014 MNIST net, NCA, batch 1,000": (MNIST, digits, False),
        "CIFAR ResNet-18, bank of 50,000, bf16, batch 128": ({**CIFAR, "batch_size": "128"}, color, True),
        "CIFAR ResNet-18, bank of 50,000, bf16, batch 512": ({**CIFAR, "batch_size": "512"}, color, True),
    }
    for name, (settings, data, augment) in rows.items():
        row: dict[str, object] = dict(ours(settings, data))
        row["compiled"] = ours({**settings, "compile": "true"}, data)
        plain = {key: value for key, value in settings.items() if not key.startswith("objective")}
        row["peer"] = {str(w): peer({**plain, "objective.name": "nca"}, data, w, augment) for w in arguments.workers}
        fastest = max(row["images_per_second"], row["compiled"]["images_per_second"])
        row["ratio"] = fastest / max(row["peer"].values())
        results[name] = row
        print(name, json.dumps(row), flush=True)
        if arguments.out:  # after every row: the machine may be taken away
            arguments.out.write_text(json.dumps(results, indent=2) + "\n")


if __name__ == "__main__":
    main()
