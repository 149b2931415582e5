"""From photographs to a model with a frozen encoder: the first time against one bare pass, the second time, and up to the explorer page.

    python -m bench.encoders PHOTOS --weights mobilenet_v2-b0353104.pth --count 5000 --out docs/bench-encoders.json

A bare pass decodes every image and runs the encoder over it, with the same loader and threads, and keeps nothing.
"""

import argparse
import json
import shutil
import tempfile
import time
from pathlib import Path

import torch

from nearkin import data
from nearkin.cli import main as nearkin
from nearkin.data.loader import Loader
from nearkin.models import build
from nearkin.models.encoders import find_encoder
from nearkin.train.folder import device_name


def chosen(photos: Path, count: int, folder: Path) -> Path:
    """Links to `count` images, evenly over the classes."""
    files = sorted(path for path in photos.rglob("*") if path.suffix.lower() in (".jpg", ".jpeg", ".png", ".webp"))
    for at in range(min(count, len(files))):
        path = files[at * len(files) // min(count, len(files))]
        place = folder / "photos" / path.parent.name
        place.mkdir(parents=True, exist_ok=True)
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


def timed(*words: str) -> float:
    began = time.perf_counter()
    if nearkin([*words, "--device", "cpu"]) != 0:
        raise SystemExit(f"nearkin {' '.join(words)} failed")
    return time.perf_counter() - began


def run() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("photos", type=Path)
    parser.add_argument("--weights", required=True)
    parser.add_argument("--count", type=int, default=5000)
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    folder = Path(tempfile.mkdtemp())
    try:
        photos = chosen(arguments.photos, arguments.count, folder)
        train = ("train", str(photos), "--encoder", "mobilenet-v2", "--weights", arguments.weights, "--set", "data.leaks=allow")
        found: dict[str, object] = {"photos": arguments.count, "device": device_name(torch.device("cpu"))}
        found["bare pass"] = bare = bare_pass(photos, arguments.weights)
        found["first training"] = first = timed(*train, "--out", str(folder / "runs" / "a"))
        found["first over bare"] = first / bare
        found["second training"] = timed(*train, "--out", str(folder / "runs" / "b"))
        found["index"] = timed("index", str(folder / "runs" / "a"), str(photos))
        found["explorer page"] = timed("export", str(folder / "runs" / "a"), "--page", str(folder / "page"))
        text = json.dumps({name: round(value, 2) if isinstance(value, float) else value for name, value in found.items()}, indent=1)
        print(text)
        if arguments.out:
            arguments.out.write_text(text + "\n", encoding="utf-8")
    finally:
        shutil.rmtree(folder)


if __name__ == "__main__":
    run()
