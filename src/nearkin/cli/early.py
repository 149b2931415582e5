"""What is told before torch is imported, which takes seconds: folders and data that are not there, settings that nobody knows."""

import os
from argparse import Namespace
from collections.abc import Iterable
from pathlib import Path

from nearkin.run import Run, model_page, override, run_page

READS_MODEL = ("evaluate", "embed", "search", "serve", "export")


def check(arguments: Namespace) -> None:
    """Refuse what the verb itself would refuse later, in the same words."""
    given = [getattr(arguments, name, None) for name in ("data", "add")]
    if arguments.verb in READS_MODEL or (arguments.verb == "index" and any(given)):
        model_page(Path(arguments.folder))
    if arguments.verb == "train":
        if arguments.resume is not None:
            run_page(Path(arguments.resume))
        override(Run(), set_leaves(arguments.set))
    for what in filter(None, given):
        _check_there(what)


def set_leaves(items: Iterable[str]) -> dict[str, str]:
    """What --set says, by leaf."""
    settings = {}
    for item in items:
        leaf, equals, value = item.partition("=")
        if not equals:
            raise ValueError(f"--set {item!r} must read leaf=value, such as optimiser.learning_rate=0.05")
        settings[leaf] = value
    return settings


def _check_there(what: str) -> None:
    """A path that leads nowhere; a bare name may be a known set's, and the list of those takes torch to read."""
    if os.path.basename(what) != what and not os.path.exists(os.path.expanduser(what)):
        raise FileNotFoundError(f"DATA {what!r} is neither a file or folder nor a known data set; mend the path")
