"""What contests with protocols of their own share: rows that are saved one by one, and mean and spread over seeds."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from nearkin.data.disk import replacing
from nearkin.train.reporter import Silence


class Printing(Silence):
    """Prints messages."""

    def message(self, line: str) -> None:
        print(line, flush=True)


class Rows(dict[str, Any]):
    """Finished rows by name, read from a JSON file if there is one; `keep` saves another."""

    def __init__(self, target: Path) -> None:
        super().__init__(json.loads(target.read_text(encoding="utf-8")) if target.exists() else {})
        self.target = target

    def keep(self, key: str, row: dict[str, Any]) -> None:
        """Save a row."""
        self[key] = row
        self.target.parent.mkdir(parents=True, exist_ok=True)
        with replacing(self.target) as file:
            file.write((json.dumps(self, indent=1, sort_keys=True) + "\n").encode())
        print(key, row, flush=True)

    def write_page(self, text: str) -> None:
        """Write the page of the rows, in the folder papers next to that of the results."""
        page = self.target.parent.parent / "papers" / f"{self.target.stem}.md"
        page.parent.mkdir(parents=True, exist_ok=True)
        page.write_text(text, encoding="utf-8")
        print(f"wrote {page}")


def spread(values: Sequence[float | None]) -> str:
    """Mean and standard deviation in percent."""
    known = [100 * value for value in values if value is not None]
    if not known:
        return ""
    return f"{np.mean(known):.1f}" + (f" ± {np.std(known, ddof=1):.1f}" if len(known) > 1 else "")
