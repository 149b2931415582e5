"""What is told before torch is imported, which takes seconds: folders and data that are not there, settings that nobody knows."""

import os
from argparse import Namespace
from collections.abc import Iterable
from pathlib import Path

from nearkin.models.paths import model_page, run_page
from nearkin.train.config import Run, override

READS_MODEL = ("evaluate", "embed", "search", "serve", "export")


def check(arguments: Namespace) -> None:
    """Refuse what the verb itself would refuse later, in the same words."""
    given = [getattr(arguments, name, None) for name in ("data", "add")]
    if arguments.verb in READS_MODEL or (arguments.verb == "index" and any(given)):
        model_page(Path(arguments.folder))
    if arguments.verb == "train":
        if arguments.resume is not None:
            _check_data_of(run_page(Path(arguments.resume)), arguments.data_root)
        override(Run(), set_leaves(arguments.set))
    for what in filter(None, given):
        _check_there(what)


def set_leaves(items: Iterable[str]) -> dict[str, str]:
    """What --set says, by leaf."""
    settings = {}
    for item in items:
        leaf, equals, value = item.partition("=")
        if not equals:
            raise ValueError(f"--set {item!r} must read leaf=value, such as optimizer.learning_rate=0.05")
        settings[leaf] = value
    return settings


def _check_data_of(page: Path, data_root: str | None) -> None:
    """A training goes on with the data it was begun with, which may have been moved since."""
    choice = Run.from_json(page.read_text(encoding="utf-8")).data
    if data_root is None and choice.root and not os.path.isdir(choice.root):
        moved = "move it back, or pass --data-root FOLDER with its new place"
        raise FileNotFoundError(
            f"{page.parent} read {choice.source} from the data root {choice.root}, which is no folder any more; {moved}"
        )
    for leaf, what in (("source", choice.source), ("corrections", choice.corrections)):
        if _leads_nowhere(what):
            moved = f"put it back, or write where it is now into {page} (data, {leaf}), and resume"
            raise FileNotFoundError(f"{page.parent} was begun with {what}, which is no longer there; {moved}")


def _leads_nowhere(what: str) -> bool:
    """A path without anything; a bare name may be a known set's, and the list of those takes torch to read."""
    return os.path.basename(what) != what and not os.path.exists(os.path.expanduser(what))


def _check_there(what: str) -> None:
    if _leads_nowhere(what):
        raise FileNotFoundError(f"DATA {what!r} is neither a file or folder nor a known data set; mend the path")
