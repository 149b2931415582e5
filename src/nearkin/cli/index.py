"""`nearkin index`: build, extend, reduce and repair the index of a model folder."""

from argparse import Namespace
from pathlib import Path

from nearkin.cli.datasets import opened
from nearkin.cli.progress import note
from nearkin.cli.terminal import Terminal
from nearkin.data.dataset import Dataset
from nearkin.data.disk import explain_full_disk
from nearkin.data.lock import owned
from nearkin.data.progress import Ticker
from nearkin.data.shards import Shards, is_sharded, open_shards
from nearkin.index.collection import Added, build_in_milvus, build_index, model_version, open_index
from nearkin.index.contract import VectorIndex
from nearkin.index.local import LocalIndex
from nearkin.index.milvus import MilvusIndex
from nearkin.index.milvus_folder import address, confirmed_address, open_in_milvus
from nearkin.index.milvus_load import load_shards

MOST_IDS = 10_000_000  # of one --delete


def run(arguments: Namespace) -> int:
    """Build or add, delete, choose the backend, compact and check, in this order; then print the state of the index."""
    with owned(Path(arguments.folder)), explain_full_disk(Path(arguments.folder), "run the same command again; the index is as it was"):
        return _run(arguments)


def _run(arguments: Namespace) -> int:
    place = address(arguments.folder)
    in_milvus = arguments.backend == "milvus" or place is not None
    _check(arguments, in_milvus)
    console = Terminal(markup=False, highlight=False, soft_wrap=True)
    source = arguments.data or arguments.add
    data = _read(arguments, source) if source else None  # errors in the data show up before an index is created or replaced
    if data is None:
        index = _opened_alone(arguments)
    elif isinstance(data, Shards):
        index = _load(arguments, data, console)
    elif arguments.data:
        how = {"replace": arguments.replace, "device": arguments.device, "report": note, "verify": not arguments.no_verify}
        backend = "milvus" if in_milvus else arguments.backend or "exact"
        where = {"uri": arguments.uri, "name": arguments.name, "milvus_index": arguments.milvus_index}
        collection, added = build_index(arguments.folder, data, backend=backend, **where, **how)
        _print_added(console, added)
        index = collection.index
    else:
        collection = open_index(arguments.folder, device=arguments.device, uri=arguments.uri, verify=not arguments.no_verify)
        _print_added(console, collection.add(data, note))
        index = collection.index
    _maintain(arguments, index, console)
    _print_state(console, index)
    return 0


def _opened_alone(arguments: Namespace) -> VectorIndex:
    """The index without its model, which maintenance does not need."""
    place = confirmed_address(arguments.folder, arguments.uri)
    if place is not None:
        return open_in_milvus(place)
    return LocalIndex.open(Path(arguments.folder) / "index", verify=not arguments.no_verify)


def _check(arguments: Namespace, in_milvus: bool) -> None:
    if arguments.data and arguments.add:
        raise ValueError("DATA builds an index and --add adds to one; pass one of them")
    if arguments.replace and not arguments.data:
        raise ValueError("--replace needs DATA to build the index from")
    if arguments.uri is not None and not in_milvus:
        raise ValueError(f"--uri {arguments.uri} needs --backend milvus")
    source = arguments.data or arguments.add
    if source and is_sharded(source) and not in_milvus:
        raise ValueError(f"{source} holds shards, which only --backend milvus --uri URI can load; build a local index from data")
    if in_milvus and (arguments.backend not in (None, "milvus") or arguments.compact or arguments.check):
        raise ValueError(
            "the index is in Milvus, which maintains its own files: --compact, --check and other backends are not available; "
            "to build a local index instead, remove milvus.json from the folder"
        )


def _read(arguments: Namespace, source: str) -> Shards | Dataset:
    """Shards of this model, or data."""
    if not is_sharded(source):
        return opened(arguments, source, "skip")
    shards = open_shards(source)
    shards.check_model(model_version(Path(arguments.folder)))
    return shards


def _load(arguments: Namespace, shards: Shards, console: Terminal) -> VectorIndex:
    """Load shards into Milvus, or those that are missing there."""
    if arguments.data:
        options = {"milvus_index": arguments.milvus_index, "replace": arguments.replace, "keep": True, "device": arguments.device}
        options["verify"] = not arguments.no_verify
        index = build_in_milvus(Path(arguments.folder), arguments.uri, arguments.name, **options).index
    else:
        index = open_index(arguments.folder, device=arguments.device, uri=arguments.uri, verify=not arguments.no_verify).index
    assert isinstance(index, MilvusIndex)
    ticker = Ticker(note, f"loading {shards.folder}", len(shards), "points")
    for step in load_shards(index, shards):
        ticker.update(step.points)
    console.print(f"{len(shards):,} points of {shards.folder} are in the index")
    return index


def _maintain(arguments: Namespace, index: VectorIndex, console: Terminal) -> None:
    if arguments.delete:
        _delete(arguments, index, console)
    _change_classes(arguments, index, console)
    if arguments.store:
        set_store(index, arguments.store, console)
    if arguments.backend not in (None, "milvus") and not arguments.data:
        index.build(arguments.backend)
    if arguments.compact:
        index.compact()
    if arguments.check:
        index.verify()
        console.print("every file matches its checksum")


def set_store(index: VectorIndex, store: str, console: Terminal) -> None:
    """Store the vectors smaller, and say how much smaller."""
    if not isinstance(index, LocalIndex):
        raise ValueError(f"--store {store} is for a local index, and this one is in Milvus; leave it out")
    before = index.vector_bytes
    index.set_store(store)
    console.print(f"vectors stored as {index.store}: {index.vector_bytes / 1e6:.1f} MB, before {before / 1e6:.1f} MB")


def _change_classes(arguments: Namespace, index: VectorIndex, console: Terminal) -> None:
    try:
        if arguments.rename_class:
            old, new = _pair(arguments.rename_class, "--rename-class", "old=new")
            index.rename_class(old, new)
            console.print(f"{old} is now {new}")
        if arguments.remove_class:
            console.print(f"{arguments.remove_class} removed with its {index.remove_class(arguments.remove_class):,} points")
        if arguments.label:
            name, listed = _pair(arguments.label, "--label", "name=3,17,100-199")
            ids = parsed_ids(listed, "--label")
            index.relabel(ids, name)
            console.print(f"{len(ids):,} points are now {name}")
    except KeyError as error:
        raise ValueError(f"{error.args[0]}; nothing was changed") from None


def _pair(text: str, option: str, form: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals or not name or not value:
        raise ValueError(f"{option} {text!r} must read {form}")
    return name, value


def _delete(arguments: Namespace, index: VectorIndex, console: Terminal) -> None:
    ids = parsed_ids(arguments.delete)
    try:
        index.delete(ids)
    except KeyError as error:
        raise ValueError(f"--delete: {error.args[0]}; nothing was removed") from None
    console.print(f"{len(ids):,} points removed")


def parsed_ids(text: str, option: str = "--delete") -> list[int]:
    """'3,17,100-199' as numbers."""
    found: list[int] = []
    for piece in text.split(","):
        first, dash, last = piece.strip().partition("-")
        if not first.isdecimal() or (dash and not last.isdecimal()):
            raise ValueError(f"{option} {text!r}: {piece.strip()!r} is not an id; pass whole numbers and ranges such as 3,17,100-199")
        count = int(last or first) + 1 - int(first)
        if len(found) + count > MOST_IDS:
            raise ValueError(f"{option} {text!r}: {piece.strip()!r} would be {count:,} ids; name at most {MOST_IDS:,} at a time")
        found += range(int(first), int(last or first) + 1)
    return found


def _print_added(console: Terminal, added: Added) -> None:
    damaged = f", {added.damaged:,} could not be decoded" if added.damaged else ""
    known = f", {added.known:,} were already in the index" if added.known else ""
    console.print(f"{added.added:,} points added{known}{damaged}")


def _print_state(console: Terminal, index: VectorIndex) -> None:
    console.print(f"{index.count:,} points of {index.dimension} dimensions in {index.location}, searched by {index.backend}")
    rule = index.calibration
    if rule is None:
        console.print("no affinity tells points of the same class: there are too few labeled pairs to fit one, or their classes overlap")
    else:
        console.print(
            f"likely of the same class from affinity {rule['threshold']:.4g}: accuracy {rule['accuracy']:.1%}, averaged over pairs of the "
            f"same and of different classes; fitted on {rule['fitted_on']}"
        )
