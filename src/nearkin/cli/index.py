"""`nearkin index`: make, fill, thin out and mend the index of a model folder."""

from argparse import Namespace
from pathlib import Path

from rich.console import Console

from nearkin.cli.datasets import opened
from nearkin.cli.progress import note
from nearkin.data.dataset import Dataset
from nearkin.data.shards import Shards, is_sharded, open_shards
from nearkin.index.collection import Added, build_index, model_version, open_index
from nearkin.index.contract import VectorIndex
from nearkin.index.local import LocalIndex
from nearkin.index.remote import Address, address, make_remote, open_remote


def run(arguments: Namespace) -> int:
    """Do what was asked, in this order: make or add, delete, choose the backend, compact, check; then tell how it stands."""
    _check(arguments)
    console = Console(markup=False, highlight=False, soft_wrap=True)
    if arguments.backend == "milvus" or address(arguments.folder) is not None:
        return _in_milvus(arguments, console)
    if arguments.data:
        data = opened(arguments, arguments.data, "skip")
        made, added = build_index(
            arguments.folder, data, backend=arguments.backend or "exact", replace=arguments.replace, device=arguments.device, report=note
        )
        _tell_added(console, added)
        index = made.index
    elif arguments.add:
        collection = open_index(arguments.folder, device=arguments.device)
        _tell_added(console, collection.add(opened(arguments, arguments.add, "skip"), note))
        index = collection.index
    else:
        index = LocalIndex.open(Path(arguments.folder) / "index")
    _maintain(arguments, index, console)
    _tell(console, index)
    return 0


def _check(arguments: Namespace) -> None:
    if arguments.data and arguments.add:
        raise ValueError("DATA makes an index and --add adds to one; give one of them")
    if arguments.replace and not arguments.data:
        raise ValueError("--replace needs DATA to make the index from")
    if arguments.uri is not None and arguments.backend != "milvus":
        raise ValueError(f"--uri {arguments.uri} is for --backend milvus; name that, too")
    if arguments.backend != "milvus" and address(arguments.folder) is None and arguments.data and is_sharded(arguments.data):
        raise ValueError(f"{arguments.data} holds shards, which --backend milvus --uri URI loads; a local index is made from data")


def _in_milvus(arguments: Namespace, console: Console) -> int:
    """The same where the index is in Milvus."""
    what = arguments.data or arguments.add
    if arguments.backend not in (None, "milvus") or arguments.compact or arguments.check:
        raise ValueError("the index is in Milvus, which looks after its files itself; for a local one remove milvus.json from the folder")
    given = _given(arguments, what) if what else None  # what cannot be read is told before an index is made or replaced
    if arguments.data:
        place = address(arguments.folder) if arguments.uri is None else Address(arguments.uri, arguments.name)
        if place is None:
            raise ValueError("--backend milvus needs --uri: a path that ends in .db, or the address of a server")
        options = {"kind": arguments.milvus_index, "replace": arguments.replace, "device": arguments.device}
        collection = make_remote(arguments.folder, place, again=isinstance(given, Shards), **options)
    else:
        collection = open_remote(arguments.folder, device=arguments.device)
    if isinstance(given, Shards):
        console.print(f"{collection.load(given, note):,} points of {what} are in the index")
    elif given is not None:
        _tell_added(console, collection.add(given, note))
    if arguments.delete:
        _delete(arguments, collection.index, console)
    index = collection.index
    console.print(f"{index.count:,} points of {index.dimension} dimensions in {index.place}, searched by {index.backend}")
    return 0


def _given(arguments: Namespace, what: str) -> Shards | Dataset:
    """Shards of this model, or data."""
    if not is_sharded(what):
        return opened(arguments, what, "skip")
    shards = open_shards(what)
    shards.check_model(model_version(Path(arguments.folder)))
    return shards


def _delete(arguments: Namespace, index: VectorIndex, console: Console) -> None:
    ids = parsed_ids(arguments.delete)
    try:
        index.delete(ids)
    except KeyError as error:
        raise ValueError(f"--delete: {error.args[0]}; nothing was removed") from None
    console.print(f"{len(ids):,} points removed")


def _maintain(arguments: Namespace, index: LocalIndex, console: Console) -> None:
    if arguments.delete:
        _delete(arguments, index, console)
    if arguments.backend and not arguments.data:
        index.build(arguments.backend)
    if arguments.compact:
        index.compact()
    if arguments.check:
        index.verify()
        console.print("every file matches its checksum")


def parsed_ids(text: str) -> list[int]:
    """'3,17,100-199' as numbers."""
    found: list[int] = []
    for piece in text.split(","):
        first, dash, last = piece.strip().partition("-")
        if not first.isdecimal() or (dash and not last.isdecimal()):
            raise ValueError(f"--delete {text!r}: {piece.strip()!r} is no id; give whole numbers and ranges such as 3,17,100-199")
        found += range(int(first), int(last or first) + 1)
    return found


def _tell_added(console: Console, added: Added) -> None:
    damaged = f", {added.damaged:,} could not be decoded" if added.damaged else ""
    known = f", {added.known:,} were there already" if added.known else ""
    console.print(f"{added.added:,} points added{known}{damaged}")


def _tell(console: Console, index: LocalIndex) -> None:
    console.print(f"{index.count:,} points of {index.dimension} dimensions in {index.folder}, searched by {index.backend}")
    rule = index.calibration
    if rule is None:
        console.print("no verdict 'same kind?': too few labeled pairs to fit one on")
    else:
        console.print(
            f"'same kind?' from affinity {rule['threshold']:.4g}: right for {rule['accuracy']:.1%}, the two kinds weighed "
            f"alike; fitted on {rule['fitted_on']}"
        )
