"""What a training reads and writes: its data, and the files of its model folder."""

import json
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from shlex import quote

import torch
from safetensors.torch import save
from torch import Tensor

from nearkin import data as sources
from nearkin.data.checksums import recording, write_json
from nearkin.data.corrections import corrected
from nearkin.data.dataset import Dataset
from nearkin.data.images import QUICK_SIDE, DamagedImageError, Files, image_files, sides_of
from nearkin.data.loader import decoded_once
from nearkin.data.opener import DATA_ROOT, absolute_root, absolute_source
from nearkin.data.pixels import Framing
from nearkin.models.paths import run_page
from nearkin.train.config import Run
from nearkin.train.data_checks import check_enough
from nearkin.train.encoder import automatic, reframed, report_framing, settled, warn_of_few
from nearkin.train.reporter import Reporter

DECODED = 1 << 30  # bytes of decoded images that are kept in memory
SCRATCH_SIDE = 64  # pixels of photographs for a network that is trained from scratch


def rooted(run: Run, data_root: str | Path | None) -> Run:
    """The run with the absolute data root of its known set: `data_root`, else the one it remembers, else the folder data."""
    return replace(run, data=replace(run.data, root=absolute_root(run.data.source, data_root or run.data.root or DATA_ROOT)))


def opened(run: Run, data: Dataset | None, log: Reporter, given: Collection[str] | None = None) -> tuple[Run, Dataset]:
    """The data passed in, or else those that the run names; and the run with the encoder and the size that were chosen for them."""
    run = settled(run, given)  # before data are read: a missing package or file is reported at once
    if data is not None:
        return run, data
    choice = run.data
    found = sources.open(
        choice.source,
        data_root=choice.root or DATA_ROOT,
        size=choice.size,
        crop=choice.crop,
        interpolation=choice.interpolation,
        channels=3 if run.network.pretrained else None,
        **choice.columns(),
        on_error=choice.on_error,
        report=log.message,
    )
    if not run.network.pretrained:
        run = automatic(run, found, given, log)
        run, found = (run, reframed(run, found)) if run.network.pretrained else _sized(run, found, log)
    if not run.network.pretrained:
        warn_of_few(found, log)
    if run.network.pretrained and found.kind == "images":
        report_framing(run, found, log)
    check_enough(run, found, log.message)
    if not (run.network.pretrained and isinstance(found.inputs, Files)):  # an encoder decodes them while it computes features
        found = decoded_once(found, DECODED, log.message)
    found = corrected(found, choice.corrections, log.message)
    check_enough(run, found, lambda _: None)  # again: damaged files are gone
    return run, found


def _sized(run: Run, data: Dataset, log: Reporter) -> tuple[Run, Dataset]:
    """Choose a size for image files that differ in size or are large, and color if one of them is in color."""
    if not isinstance(data.inputs, Files) or (run.data.size is not None and not data.inputs.guessed):
        return run, data
    sides = sides_of(data.inputs.paths)
    if sides is None:
        return run, data
    channels = 3 if data.inputs.guessed and not sides.gray else None
    if run.data.size is None and not (sides.same and sides.largest <= QUICK_SIDE):
        side = min(SCRATCH_SIDE, max(sides.median, 1))
        to = f" to {sides.largest}" if sides.largest > sides.smallest else ""
        log.message(
            f"the short side of the images is {sides.smallest}{to} pixels: they are resized and cut to {side} x {side}; --size changes that"
        )
        run = replace(run, data=replace(run.data, size=side))
    elif channels is None:
        return run, data
    framing = None if run.data.size is None else Framing(run.data.size, run.data.crop, run.data.interpolation)
    return run, replace(data, inputs=image_files(data.inputs.paths, framing, channels or data.shape[0], data.inputs.on_error))


def saved_form(run: Run) -> Run:
    """The run with absolute paths: resuming and evaluating may happen in another working directory."""
    choice = replace(run.data, source=absolute_source(run.data.source), corrections=absolute_source(run.data.corrections))
    return replace(run, data=choice)


def write_run(folder: Path, run: Run) -> None:
    """Write run.json."""
    write_json(folder / "run.json", json.loads(saved_form(run).to_json()))


@contextmanager
def resuming(resume: bool) -> Iterator[None]:
    """Explain what to do about a damaged file on resume: leaving it out would change the points, and the checkpoint would not fit."""
    try:
        yield
    except DamagedImageError as error:
        if not resume:
            raise
        fix = "restore the file and resume, or start a new training in another folder with --skip-damaged"
        raise DamagedImageError(error.reason, fix) from error


WRITTEN = ("README.md", "metrics.json", "model.json", "split.json", "weights.safetensors")


def check_folder(folder: Path, resume: bool) -> None:
    """A new training needs an unused folder, a resumed one the folder it started in."""
    exists = (folder / "run.json").exists()
    if exists and not resume:
        again = f"`nearkin train --resume {quote(str(folder))}`"
        raise FileExistsError(f"{folder} already holds a training; choose another folder, or resume it: {again}")
    if resume:
        run_page(folder)
    others = [] if exists or resume else [name for name in WRITTEN if (folder / name).exists()]
    if others:
        raise FileExistsError(f"{folder} holds {', '.join(others)}, which a training would overwrite; choose another folder")


def device_name(device: torch.device) -> str:
    """The name of the GPU, or the number of CPU threads, for metrics.json."""
    threads = torch.get_num_threads()
    return torch.cuda.get_device_name(device) if device.type == "cuda" else f"cpu, {threads} thread{'s' if threads > 1 else ''}"


def save_weights(path: Path, tensors: dict[str, Tensor]) -> None:
    """Write tensors into a model folder; the file is always complete, and its checksum is recorded."""
    content = save({name: tensor.detach().cpu().contiguous().clone() for name, tensor in tensors.items()})
    with recording(path, path.parent) as file:
        file.write(content)
