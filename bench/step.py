"""What a loss adds to a training step: ResNet-18, 512 images of 32 x 32, a plain eager loop, with NCA and with a mean square instead.

python -m bench.step --device cuda
"""

import argparse
import time

import torch
from torch import Tensor

from nearkin import NCA
from nearkin.models import build


def seconds(network: torch.nn.Module, loss_of: torch.nn.Module | None, images: Tensor, labels: Tensor, steps: int) -> float:
    """Seconds of one step, mean of `steps`."""
    optimizer = torch.optim.SGD(network.parameters(), 1e-3)
    device = images.device.type

    def step() -> None:
        embeddings = network(images)
        loss = embeddings.square().mean() if loss_of is None else loss_of(embeddings, labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

    for _ in range(3):
        step()
    if device == "cuda":
        torch.cuda.synchronize()
    start = time.perf_counter()
    for _ in range(steps):
        step()
    if device == "cuda":
        torch.cuda.synchronize()
    return (time.perf_counter() - start) / steps


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cuda")
    parser.add_argument("--batch", type=int, default=512)
    parser.add_argument("--dimension", type=int, default=128)
    parser.add_argument("--steps", type=int, default=40)
    args = parser.parse_args()
    torch.manual_seed(0)
    network = build("resnet18", image_shape=(3, 32, 32), dimension=args.dimension).to(args.device)
    images = torch.randn(args.batch, 3, 32, 32, device=args.device)
    labels = torch.randint(10, (args.batch,), device=args.device)
    plain, ours = [], []
    for _ in range(3):  # in turns
        plain.append(seconds(network, None, images, labels, args.steps))
        ours.append(seconds(network, NCA(), images, labels, args.steps))
    without, with_loss = min(plain), min(ours)
    print(f"{1e3 * without:.2f} ms a step without, {1e3 * with_loss:.2f} ms with NCA: {100 * (with_loss / without - 1):+.1f} %")


if __name__ == "__main__":
    main()
