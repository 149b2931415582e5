"""Encoders of timm and torchvision, with their real weights, where both libraries match torch.

    python -m bench.adapters PHOTOS [--download] [--encoders timm:resnet18.a1_in1k,torchvision:mobilenet_v2=FILE]

Prints a table: size and preprocessing as the library gives them, number of features, images a second, and 1-NN by leave-one-out.
A local file of weights follows the name and =. Without --download only such files, and weights that are cached already, are used.
"""

import argparse
import time
from pathlib import Path

import torch
from rich.console import Console
from rich.table import Table

from nearkin import data
from nearkin.compose.affinity import cosine
from nearkin.compose.points import Points
from nearkin.evaluate import knn_accuracy
from nearkin.models import build
from nearkin.models.encoders import find_encoder

ENCODERS = (
    "mobilenet-v2",
    "timm:efficientnet_b0.ra_in1k",
    "timm:resnet50.a1_in1k",
    "timm:vit_small_patch14_dinov2.lvd142m",
    "torchvision:resnet18",
    "torchvision:efficientnet_b0",
)


@torch.no_grad()
def measured(name: str, photos: Path, download: bool, device: torch.device) -> list[str]:
    name, _, file = name.partition("=")
    encoder = find_encoder(name, file or None, download=download)
    framing = encoder.reading.framing
    images = data.open(photos, size=framing.size, crop=framing.crop, interpolation=framing.interpolation, channels=3)
    shape = images.shape
    body = build(encoder.network, image_shape=shape, weights=str(encoder.weights), head=False, **encoder.options).eval().to(device)
    began, rows = time.perf_counter(), []
    for ids in torch.split(images.ids, 64):
        rows.append(body(encoder.reading.standardize(images.read(ids).to(device))).float())
    seconds = time.perf_counter() - began
    labels = None if images.labels is None else images.labels.to(device)
    points = Points(torch.cat(rows), labels, images.ids.to(device))
    right = "" if labels is None else f"{100 * knn_accuracy(points, points, 1, cosine(), exclude_same_id=True):.1f}"
    pixels = f"{framing.size}, crop {framing.crop:g}, {framing.interpolation}"
    return [name, pixels, str(points.embeddings.shape[1]), f"{len(images) / seconds:.0f}", right]


def run() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("photos", type=Path)
    parser.add_argument("--download", action="store_true")
    parser.add_argument("--encoders", default=",".join(ENCODERS))
    arguments = parser.parse_args()
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    table = Table("encoder", "size", "features", "images/s", "1-NN")
    for name in arguments.encoders.split(","):
        try:
            table.add_row(*measured(name, arguments.photos, arguments.download, device))
        except (OSError, ImportError, ValueError) as error:
            table.add_row(name, str(error), "", "", "")
    Console().print(table)


if __name__ == "__main__":
    run()
