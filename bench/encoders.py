"""From photographs to a model with a frozen encoder: the first time against one bare pass, the second time, and up to the explorer page.

    python -m bench.encoders PHOTOS --weights mobilenet_v2-b0353104.pth --count 5000 --out encoders-5000.json
    python -m bench.encoders cub200 --weights mobilenet_v2-b0353104.pth --count 2000 --kinds 20 --out docs/bench-encoders.json

A bare pass decodes every image and runs the encoder over it, with the same loader and threads, and keeps nothing. Every command is a
process of its own; its CPU seconds are those of all its processes. With --kinds, the classes are the most frequent last words of the
folders' names, such as Warbler of 158.Bay_breasted_Warbler, with equally many photographs of each.
"""

import argparse
import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import torch

from nearkin import data
from nearkin.data.loader import Loader
from nearkin.models import build
from nearkin.models.encoders import find_encoder
from nearkin.train.folder import device_name


def chosen(photos: Path, count: int, folder: Path, kinds: int | None = None) -> Path:
    """Links to `count` images, evenly over the classes, or over as many kinds of them."""
    files = sorted(path for path in photos.rglob("*") if path.suffix.lower() in (".jpg", ".jpeg", ".png", ".webp"))
    groups: dict[str, list[Path]] = {}
    for path in files:
        groups.setdefault(path.parent.name if kinds is None else path.parent.name.rpartition("_")[2], []).append(path)
    if kinds is not None:
        groups = dict(sorted(groups.items(), key=lambda group: -len(group[1]))[:kinds])
    for name, some in groups.items():
        here = min(len(some), round(count * len(some) / len(files)) if kinds is None else count // kinds)
        place = folder / "photos" / name
        place.mkdir(parents=True, exist_ok=True)
        for at in range(here):
            path = some[at * len(some) // here]
            (place / f"{at}{path.suffix}").symlink_to(path.resolve())
    return folder / "photos"


@torch.no_grad()
def bare_pass(photos: Path, weights: str) -> float:
    encoder = find_encoder("mobilenet-v2", weights)
    framing = encoder.reading.framing
    images = data.open(photos, size=framing.size, crop=framing.crop, interpolation=framing.interpolation, channels=3)
    body = build("mobilenet-v2", image_shape=images.shape, weights=weights).body.eval().to(memory_format=torch.channels_last)
    began = time.perf_counter()
    for inputs, _ in Loader(images, resident_bytes=-1)(torch.split(images.ids, 128)):
        body(encoder.reading.standardize(inputs).to(memory_format=torch.channels_last))
    return time.perf_counter() - began


def timed(*words: str) -> dict[str, float]:
    """Wall and CPU seconds of a command."""
    before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    subprocess.run([sys.executable, "-m", "nearkin", *words, "--device", "cpu"], check=True)
    wall, after = time.perf_counter() - began, resource.getrusage(resource.RUSAGE_CHILDREN)
    return {"seconds": round(wall, 1), "cpu seconds": round(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, 1)}


def run() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("photos", type=Path)
    parser.add_argument("--weights", required=True)
    parser.add_argument("--count", type=int, default=5000)
    parser.add_argument("--kinds", type=int)
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    folder = Path(tempfile.mkdtemp())
    try:
        photos = chosen(arguments.photos, arguments.count, folder, arguments.kinds)
        train = ("train", str(photos), "--encoder", "mobilenet-v2", "--weights", arguments.weights, "--set", "data.leaks=allow")
        model = str(folder / "runs" / "a")
        found: dict[str, Any] = {"photos": sum(1 for path in photos.rglob("*") if path.is_symlink())}
        found |= {"classes": len(list(photos.iterdir())), "device": device_name(torch.device("cpu"))}
        found["load of the machine"] = round(os.getloadavg()[0], 1)
        found["bare pass"] = {"seconds": round(bare_pass(photos, arguments.weights), 1)}
        found["train"] = timed(*train, "--out", model)
        found["train again, features in the cache"] = timed(*train, "--out", str(folder / "runs" / "b"))
        found["index"] = timed("index", model, str(photos))
        found["export --page"] = timed("export", model, "--page", str(folder / "page"))
        steps = [found[name] for name in ("train", "index", "export --page")]
        found["photographs to page"] = {name: round(sum(step[name] for step in steps), 1) for name in steps[0]}
        text = json.dumps(found, indent=1)
        print(text)
        if arguments.out:
            arguments.out.write_text(text + "\n", encoding="utf-8")
    finally:
        shutil.rmtree(folder)


if __name__ == "__main__":
    run()
