"""The console of the command line."""

from typing import Any

from rich.console import Console

from nearkin.cli.printed import visible


class Terminal(Console):
    """A console that prints control characters of plain texts as their codes; what rich adds for colors is not affected."""

    def print(self, *objects: Any, **options: Any) -> None:
        super().print(*(visible(one) if isinstance(one, str) else one for one in objects), **options)
