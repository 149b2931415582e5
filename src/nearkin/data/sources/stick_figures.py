"""Stick figures: drawn people, labeled with the positions of head and hands. They are rendered from a seed; nothing is downloaded.

To learn: the pose, made of two arms of two links each, a leaning torso and a tilting head. To ignore: thickness and stripes of the
clothes, grays, contrast, background clutter and strokes around the figure, which differ from image to image. The figure is also shifted a
little, together with its targets. [taylor2010pose] also learned from rendered people; the generator is ours.
"""

from collections.abc import Iterator
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from nearkin.data.dataset import Dataset
from nearkin.data.sources.local_files import LocalFiles
from nearkin.data.sources.options import ReadOptions

NAME = "stick-figures"
SIZE, TRAIN, TEST = 128, 10_000, 5_000
SMALLEST = 32  # in smaller images an arm is thinner than a pixel
CHUNK = 128  # images drawn at once: their canvases stay in the cache
TARGETS = ("head x", "head y", "left hand x", "left hand y", "right hand x", "right hand y")
STROKES, BLOBS, GRID = 5, 4, 6  # distractors, patches of clutter, and the coarse grid of grays behind everything


class Pose(NamedTuple):
    """Positions of the joints, each (n, 2) as shares of the image's side, x to the right and y down; `left` is the image's left."""

    head: np.ndarray
    neck: np.ndarray
    hip: np.ndarray
    shoulders: tuple[np.ndarray, np.ndarray]  # left, right
    elbows: tuple[np.ndarray, np.ndarray]
    hands: tuple[np.ndarray, np.ndarray]

    def targets(self, size: int) -> np.ndarray:
        """(n, 6) in pixels, in the order of TARGETS; the middle of the first pixel is (0.5, 0.5)."""
        positions: np.ndarray = size * np.concatenate([self.head, *self.hands], axis=1).astype(np.float32)
        return positions


class Stroke(NamedTuple):
    """A round-ended stroke on every canvas, or a disc where it starts where it ends; all in shares of the side."""

    start: Tensor  # (n, 2)
    end: Tensor  # (n, 2)
    radius: Tensor  # (n,)
    gray: Tensor  # (n,)
    striped: bool = False


class Look(NamedTuple):
    """The appearance: everything but the pose, one or a few numbers for each image."""

    cloth: np.ndarray  # (n,) gray
    skin: np.ndarray  # (n,) gray
    background: np.ndarray  # (n,) gray
    grid: np.ndarray  # (n, GRID, GRID) grays added to the background
    limb: np.ndarray  # (n,) radius
    torso: np.ndarray  # (n,) radius
    stripes: np.ndarray  # (n, 4) waves a side along x and y, phase, and strength
    blobs: np.ndarray  # (n, BLOBS, 4) x, y, radius, gray
    strokes: np.ndarray  # (n, STROKES, 6) x, y, direction, length, radius, gray
    contrast: np.ndarray  # (n, 2) factor, shift
    noise: int  # the seed of the pixels' own noise


def stick_figures(train: int = TRAIN, test: int = TEST, size: int = SIZE, seed: int = 0) -> Dataset:
    """`train` and `test` images, size x size, with (x, y) of head, left and right hand in pixels as targets.

    The two parts are drawn from different seeds, so the test images do not depend on the number of training images.
    """
    if size < SMALLEST:
        raise ValueError(f"size ({size}) must be at least {SMALLEST} pixels; in smaller images the arms are thinner than a pixel")
    for name, count in (("train", train), ("test", test)):
        if count < 1:
            raise ValueError(f"{name} ({count}) must be at least 1 image")
    images, targets = zip(*(_part(count, size, [seed, number]) for number, count in enumerate((train, test))), strict=True)
    split = np.repeat(["train", "test"], [train, test])
    return Dataset(NAME, torch.cat(images), targets=torch.cat(targets), target_names=TARGETS, split=split)


def read_stick_figures(local: LocalFiles, options: ReadOptions) -> Dataset:
    """The full set, rendered in the requested size."""
    data = stick_figures(TRAIN, TEST, options.framing.size if options.framing else SIZE)
    assert isinstance(data.inputs, Tensor)
    return replace(data, name=local.name, inputs=options.fit(data.inputs))


def _part(count: int, size: int, seed: list[int]) -> tuple[Tensor, Tensor]:
    """Images (n, 1, size, size) uint8 and targets (n, 6)."""
    pose = drawn_pose(count, np.random.default_rng([*seed, 0]))
    look = drawn_look(count, np.random.default_rng([*seed, 1]))
    return rendered(pose, look, size), torch.from_numpy(pose.targets(size))


def drawn_pose(count: int, random: np.random.Generator) -> Pose:
    """Joint angles, uniform in the range that arms can reach, and a small shift of the whole figure."""
    lean, tilt = random.uniform(-0.12, 0.12, count), random.uniform(-0.35, 0.35, count)
    hip = np.array([0.5, 0.78]) + random.uniform(-0.04, 0.04, (count, 2))
    neck = hip + 0.36 * _toward(lean + np.pi)
    head = neck + 0.12 * _toward(lean + tilt + np.pi)
    aside = 0.09 * np.stack([np.cos(lean), np.sin(lean)], axis=1)
    shoulders, elbows, hands = [], [], []
    for sign in (-1, 1):
        upper = random.uniform(-0.5, 2.9, count)  # from hanging down, outwards and up
        lower = upper + random.uniform(-1.2, 2.2, count)
        shoulders.append(neck + sign * aside)
        elbows.append(shoulders[-1] + 0.15 * _toward(sign * upper))
        hands.append(elbows[-1] + 0.13 * _toward(sign * lower))
    return Pose(head, neck, hip, (shoulders[0], shoulders[1]), (elbows[0], elbows[1]), (hands[0], hands[1]))


def drawn_look(count: int, random: np.random.Generator) -> Look:
    """Grays, thickness, stripes, clutter, strokes and contrast; clothes and skin always differ from the background."""
    uniform = random.uniform
    background = uniform(0.15, 0.85, count)
    waves = uniform(0, 2 * np.pi, count)
    frequency = uniform(4, 12, count)
    return Look(
        cloth=_contrasting(background, random),
        skin=_contrasting(background, random),
        background=background,
        grid=uniform(-1, 1, (count, GRID, GRID)) * uniform(0, 0.2, (count, 1, 1)),
        limb=uniform(0.014, 0.032, count),
        torso=uniform(0.05, 0.085, count),
        stripes=np.stack(
            [frequency * np.cos(waves), frequency * np.sin(waves), uniform(0, 2 * np.pi, count), uniform(0, 0.2, count)], axis=1
        ),
        blobs=uniform([0, 0, 0.03, 0], [1, 1, 0.12, 1], (count, BLOBS, 4)),
        strokes=uniform([0, 0, 0, 0.1, 0.006, 0], [1, 1, 2 * np.pi, 0.3, 0.025, 1], (count, STROKES, 6)),
        contrast=np.stack([uniform(0.4, 1, count), uniform(-0.12, 0.12, count)], axis=1),
        noise=int(random.integers(2**62)),
    )


def rendered(pose: Pose, look: Look, size: int) -> Tensor:
    """(n, 1, size, size) uint8, edges smoothed over a pixel."""
    random = np.random.default_rng(look.noise)
    count = len(look.cloth)
    images = torch.empty(count, 1, size, size, dtype=torch.uint8)
    for first in range(0, count, CHUNK):
        rows = slice(first, min(first + CHUNK, count))
        canvas = _behind(look, rows, size)
        stripes = _stripes(look, rows, size)
        for stroke in _layers(pose, look, rows):
            _draw(canvas, stroke, stripes, size)
        factor, shift = (_column(look.contrast[rows, which]) for which in range(2))
        noise = torch.from_numpy(random.standard_normal(tuple(canvas.shape), dtype=np.float32))
        canvas = 0.5 + factor * (canvas - 0.5) + shift + 0.02 * noise
        images[rows, 0] = (255 * canvas.clamp(0, 1)).round().to(torch.uint8)
    return images


def _layers(pose: Pose, look: Look, rows: slice) -> Iterator[Stroke]:
    """What is drawn, from the back to the front: clutter, most distractors, the figure, and the last distractor across it."""
    for blob in _floats(look.blobs[rows]).unbind(1):
        yield Stroke(blob[:, :2], blob[:, :2], blob[:, 2], blob[:, 3])
    distractors = [_distractor(stroke) for stroke in _floats(look.strokes[rows]).unbind(1)]
    yield from distractors[:-1]
    neck, hip, head = (_floats(joint[rows]) for joint in (pose.neck, pose.hip, pose.head))
    cloth, skin, limb, torso = (_floats(values[rows]) for values in (look.cloth, look.skin, look.limb, look.torso))
    shoulders, elbows, hands = ([_floats(side[rows]) for side in pair] for pair in (pose.shoulders, pose.elbows, pose.hands))
    yield Stroke(neck + 0.15 * (hip - neck), hip, torso, cloth, striped=True)
    yield Stroke(shoulders[0], shoulders[1], limb, cloth, striped=True)
    yield Stroke(head, head, torch.full_like(limb, 0.065), skin)
    for shoulder, elbow, hand in zip(shoulders, elbows, hands, strict=True):
        # Sleeves are a little darker or lighter than the torso; otherwise arms in front of it could not be seen.
        sleeve = torch.where(cloth > 0.5, cloth - 0.15, cloth + 0.15)
        yield Stroke(shoulder, elbow, limb, sleeve, striped=True)
        yield Stroke(elbow, hand, limb, sleeve, striped=True)
        yield Stroke(hand, hand, torch.full_like(limb, 0.03), skin)
    yield distractors[-1]._replace(radius=distractors[-1].radius / 2)


def _distractor(stroke: Tensor) -> Stroke:
    start, direction, length, radius, gray = stroke[:, :2], stroke[:, 2], stroke[:, 3:4], stroke[:, 4], stroke[:, 5]
    return Stroke(start, start + length * torch.stack([direction.cos(), direction.sin()], dim=1), radius, gray)


def _draw(canvas: Tensor, stroke: Stroke, stripes: Tensor, size: int) -> None:
    """Paint one stroke over every canvas (b, size, size), in place."""
    start, along = stroke.start * size, (stroke.end - stroke.start) * size  # (b, 2)
    middles = torch.arange(size) + 0.5
    x = middles - start[:, :1]  # (b, size) columns
    y = middles - start[:, 1:]  # (b, size) rows
    square = along.square().sum(1, keepdim=True).clamp_min(1e-12)
    share = ((x * along[:, :1] / square)[:, None, :] + (y * along[:, 1:] / square)[:, :, None]).clamp_(0, 1)  # of the way to the end
    across = x[:, None, :] - share * along[:, 0, None, None]
    down = y[:, :, None] - share * along[:, 1, None, None]
    distance = across.mul_(across).addcmul_(down, down).sqrt_()  # (b, size, size)
    cover = (stroke.radius[:, None, None] * size + 0.5 - distance).clamp_(0, 1)
    gray = stroke.gray[:, None, None] + stripes if stroke.striped else stroke.gray[:, None, None]
    canvas.add_(cover * (gray - canvas))


def _behind(look: Look, rows: slice, size: int) -> Tensor:
    """(b, size, size): the background's gray with slow changes over it."""
    slow = functional.interpolate(_floats(look.grid[rows])[:, None], (size, size), mode="bilinear", align_corners=True)[:, 0]
    return slow + _column(look.background[rows])


def _stripes(look: Look, rows: slice, size: int) -> Tensor:
    """(b, size, size): what the cloth's pattern adds to its gray."""
    across, down, phase, strength = _floats(look.stripes[rows]).unbind(1)
    places = 2 * torch.pi * (torch.arange(size) + 0.5) / size
    waves = (across[:, None] * places)[:, None, :] + (down[:, None] * places)[:, :, None] + phase[:, None, None]
    return waves.sin_().mul_(strength[:, None, None])


def _contrasting(background: np.ndarray, random: np.random.Generator) -> np.ndarray:
    """Grays in 0..1 that differ from the background by at least a quarter, lighter or darker."""
    room = np.stack([background - 0.25, 0.75 - background], axis=1).clip(0)  # below, above
    lighter = random.uniform(0, 1, len(background)) * room.sum(1) > room[:, 0]
    step = 0.25 + random.uniform(0, 1, len(background)) * np.where(lighter, room[:, 1], room[:, 0])
    grays: np.ndarray = background + np.where(lighter, step, -step)
    return grays


def _toward(angle: np.ndarray) -> np.ndarray:
    """(n, 2) unit steps; 0 is down, a quarter turn is to the right."""
    steps: np.ndarray = np.stack([np.sin(angle), np.cos(angle)], axis=1)
    return steps


def _floats(values: np.ndarray) -> Tensor:
    return torch.from_numpy(np.ascontiguousarray(values, dtype=np.float32))


def _column(values: np.ndarray) -> Tensor:
    """(b,) as (b, 1, 1)."""
    return _floats(values)[:, None, None]
