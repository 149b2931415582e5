"""`nearkin embed`: encode data with the model of a folder, into one .npz file or a folder of shards."""

from argparse import Namespace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from nearkin import data as sources
from nearkin.cli.datasets import opened
from nearkin.cli.progress import note
from nearkin.cli.terminal import Terminal
from nearkin.cluster.embedding import embed
from nearkin.data.dataset import Dataset
from nearkin.data.disk import explain_full_disk, replacing
from nearkin.data.opener import DATA_ROOT
from nearkin.models.folder import load


def run(arguments: Namespace) -> int:
    """One file if --out ends in .npz, shards otherwise."""
    out = Path(arguments.out)
    if out.suffix == ".npz":
        if arguments.engine or arguments.address or arguments.shard_rows:
            raise ValueError(f"--engine, --address and --shard-rows need a folder of shards, and --out {out} is a file; name a folder")
        return _one_file(arguments, out)
    if out.suffix and not out.is_dir():
        raise ValueError(f"--out {out} must end in .npz, or name a folder for shards")
    if arguments.address and arguments.engine != "ray":
        raise ValueError("--address is the address of a Ray cluster; pass --engine ray, too")
    return _shards(arguments, out)


def run_shard(arguments: Namespace) -> int:
    """Write the data themselves as shards, so that each training rank can read its own."""
    if arguments.address and arguments.engine != "ray":
        raise ValueError("--address is the address of a Ray cluster; pass --engine ray, too")
    how: dict[str, Any] = {"data_root": arguments.data_root or DATA_ROOT, "size": arguments.size, "on_error": "skip", "report": note}
    return _written(arguments, None, sources.open(arguments.data, **how), Path(arguments.out))


def _shards(arguments: Namespace, out: Path) -> int:
    return _written(arguments, arguments.folder, opened(arguments, arguments.data, "skip"), out)


def _written(arguments: Namespace, model_folder: str | None, data: Dataset, out: Path) -> int:
    options = {} if arguments.shard_rows is None else {"rows": arguments.shard_rows}
    found = embed(
        model_folder,
        data,
        out,
        engine=arguments.engine or "local",
        address=arguments.address,
        device=arguments.device,
        report=note,
        verify=not arguments.no_verify,
        **options,
    )
    what = "points" if model_folder is None else "embeddings"
    there = f", already there: {found.known:,}" if found.known else ""
    damaged = f"; damaged and skipped: {found.damaged:,}" if found.damaged else ""
    Terminal(markup=False, highlight=False).print(
        f"{found.points:,} {what} in {out}; shards made: {found.made:,}{there}{damaged}", soft_wrap=True
    )
    return 0


def _one_file(arguments: Namespace, out: Path) -> int:
    """Write embeddings, ids, sources, and labels with class names or targets, if known, as .npz."""
    model = load(arguments.folder, device=arguments.device, verify=not arguments.no_verify)
    data = opened(arguments, arguments.data, "raise")
    rows = [np.asarray(model.encode(data.read(part).numpy())) for part in torch.split(data.ids, 512)]
    arrays = {"embeddings": np.concatenate(rows), "ids": data.ids.numpy(), "sources": np.asarray(data.sources, dtype=np.str_)}
    if data.point_labels is not None:
        arrays["labels" if data.supervision == "classes" else "targets"] = data.point_labels.numpy()
    if data.supervision == "classes":
        arrays["classes"] = np.asarray(data.classes, dtype=np.str_)
    out.parent.mkdir(parents=True, exist_ok=True)
    with explain_full_disk(out.parent, "run the same command again; the previous file is unchanged"), replacing(out) as file:
        np.savez(file, **arrays)  # type: ignore[arg-type]
    Terminal(markup=False, highlight=False).print(
        f"{len(data):,} embeddings of {arrays['embeddings'].shape[1]} dimensions in {arguments.out}"
    )
    return 0
