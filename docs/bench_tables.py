"""Shared by the parts of docs/performance.md: reading the JSON and laying out tables."""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
Row = dict[str, Any]


def load(name: str) -> dict[str, Any] | None:
    path = HERE / name
    return json.loads(path.read_text()) if path.exists() else None


def about(found: dict[str, Any]) -> str:
    versions = ", ".join(f"{name} {number}" for name, number in found["versions"].items() if number != "absent")
    return f"`{found['command']}`, {found['device']}, {found['date'][:10]}; {versions}."


def table(head: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> list[str]:
    return [f"| {' | '.join(head)} |", "|" + "---|" * len(head), *(f"| {' | '.join(row)} |" for row in rows), ""]


def filled(head: tuple[str, ...], rows: list[tuple[str, ...]]) -> list[str]:
    """The table without empty columns, which were not measured at its size."""
    kept = [column for column in range(len(head)) if any(row[column] for row in rows)]
    return table(tuple(head[column] for column in kept), [tuple(row[column] for column in kept) for row in rows])


def number(value: float | None, form: str = ".3g") -> str:
    return "" if value is None else format(value, form)
