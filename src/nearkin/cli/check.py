"""`nearkin check`: compare every file of a model folder, an index or a folder of shards with its checksum."""

import json
from argparse import Namespace
from collections.abc import Callable, Iterator
from pathlib import Path

from rich.table import Table
from rich.text import Text

from nearkin.cli.printed import visible
from nearkin.cli.terminal import Terminal
from nearkin.data.checksums import CHECKSUMS, EDITED, Checked, accept, check_all
from nearkin.data.disk import FileDamagedError
from nearkin.data.lock import owned
from nearkin.data.shards import ShardDamagedError, is_sharded, read_manifest
from nearkin.data.shards.files import check_record

FIXES = {
    "index": "rebuild the index: nearkin index DIR DATA --replace",
    "atlas": "nothing: it is built again when it is needed",
    "checkpoints": "nothing: the checkpoint before it is used",
    "shards": "run the same `nearkin embed` or `nearkin shard` again: it makes only what is missing",
    "files": f"restore it from a copy, or train again; {EDITED}",
}


def run(arguments: Namespace) -> int:
    """Check, print a table, and return 1 if a file is damaged."""
    folder, console = Path(arguments.folder), Terminal(highlight=False, soft_wrap=True, width=1000)
    if not folder.is_dir():
        raise FileNotFoundError(f"{folder} is not a folder; name a model folder, the folder of an index, or a folder of shards")
    if arguments.accept:
        with owned(folder):
            console.print(f"{accept(folder):,} changed files are recorded as they are now in {folder / CHECKSUMS}", markup=False)
    found = list(_checked(folder))
    if not found:
        raise ValueError(f"{folder} holds nothing with checksums: neither a model of this version, nor an index, nor shards")
    wrong = [(part, one) for part, one in found if one.wrong]
    table = Table("file", "state", "what to do")
    for part, one in sorted(found, key=lambda pair: not pair[1].wrong):
        fix = FIXES[part] if one.wrong else ""
        table.add_row(Text(visible(one.name)), Text(visible(one.wrong) or "whole"), Text(fix))
    console.print(table)
    counted = f"{len(found):,} files, {len(wrong):,} damaged"
    console.print(counted if wrong else f"{counted}: every file matches its checksum")
    return 1 if wrong else 0


def _checked(folder: Path) -> Iterator[tuple[str, Checked]]:
    """Every file that has a checksum, with its part of the folder."""
    if (folder / CHECKSUMS).exists():
        for one in _tried(CHECKSUMS, lambda: check_all(folder)):
            yield "files", one
    for place in (folder, folder / "index"):
        if (place / "manifest.json").exists():
            for one in _index(place, folder):
                yield "index", one
    for path in sorted((folder / "atlas").glob("*.safetensors")):
        from nearkin.serve.atlas.store import is_whole

        yield "atlas", Checked(f"atlas/{path.name}", "" if is_whole(path) else "does not match its checksum")
    for path in sorted((folder / "checkpoints").glob("step-*")):
        yield "checkpoints", Checked(f"checkpoints/{path.name}", _checkpoint(path))
    if is_sharded(folder):
        for one in _tried("shards.json", lambda: [_shard(folder, record) for record in read_manifest(folder)[1]]):
            yield "shards", one


def _tried(name: str, work: Callable[[], list[Checked]]) -> list[Checked]:
    """What the work finds, after the file that lists the others; if that one is damaged, it alone."""
    try:
        return [Checked(name, ""), *work()]
    except (FileDamagedError, ShardDamagedError):
        return [Checked(name, "does not match its own checksum")]


def _index(place: Path, folder: Path) -> Iterator[Checked]:
    from nearkin.index.durable import IndexDamagedError
    from nearkin.index.local import LocalIndex

    inside = "" if place == folder else f"{place.name}/"
    try:
        index = LocalIndex.open(place)
    except (IndexDamagedError, KeyError, TypeError):
        yield Checked(f"{inside}manifest.json", "does not match its own checksum")
        return
    yield Checked(f"{inside}manifest.json", "")
    for name, wrong in index.damaged_files():
        yield Checked(f"{inside}{name}", wrong)


def _checkpoint(path: Path) -> str:
    from nearkin.data.disk import digest
    from nearkin.train.saved_run import read_state

    try:
        right = digest(path / "tensors.safetensors") == read_state(path)["tensors_sha256"]
    except (OSError, ValueError, KeyError, TypeError, AttributeError, json.JSONDecodeError) as error:
        return str(error) if isinstance(error, ValueError) and "checksum" in str(error) else "cannot be read"
    return "" if right else "tensors.safetensors does not match its checksum"


def _shard(folder: Path, record: dict[str, object]) -> Checked:
    try:
        check_record(folder, record, whole=True)
    except ShardDamagedError as error:
        return Checked(str(record["file"]), str(error).partition("; ")[0].removeprefix(f"{folder / str(record['file'])} "))
    return Checked(str(record["file"]), "")
