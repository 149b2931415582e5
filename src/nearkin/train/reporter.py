"""What training tells whoever listens. Nothing below the command line prints."""

import json
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

Figures = Mapping[str, Any]


class Reporter(Protocol):
    """Somebody who listens: a progress bar, plain lines, a test."""

    def message(self, line: str) -> None:
        """Something worth reading."""
        ...

    def started(self, steps: int, done: int) -> None:
        """How many steps there will be, and how many were made before."""
        ...

    def step(self, done: int, figures: Figures) -> None:
        """A step was made."""
        ...

    def epoch(self, figures: Figures) -> None:
        """An epoch has ended."""
        ...


class Silence:
    """Nobody."""

    def message(self, line: str) -> None: ...

    def started(self, steps: int, done: int) -> None: ...

    def step(self, done: int, figures: Figures) -> None: ...

    def epoch(self, figures: Figures) -> None: ...


class Log:
    """Every message and epoch as a line of JSON, always, beside whatever else is listening."""

    def __init__(self, path: Path, listener: Reporter) -> None:
        self.path, self.listener = path, listener

    def _write(self, kind: str, content: Figures) -> None:
        with self.path.open("a", encoding="utf-8") as file:
            file.write(json.dumps({"time": round(time.time(), 3), "kind": kind, **content}) + "\n")

    def message(self, line: str) -> None:
        """Write it down and hand it on."""
        self._write("message", {"text": line})
        self.listener.message(line)

    def started(self, steps: int, done: int) -> None:
        """Write it down and hand it on."""
        self._write("started", {"steps": steps, "done": done})
        self.listener.started(steps, done)

    def step(self, done: int, figures: Figures) -> None:
        """Only handed on: a line for every step would be most of the file."""
        self.listener.step(done, figures)

    def epoch(self, figures: Figures) -> None:
        """Write it down and hand it on."""
        self._write("epoch", figures)
        self.listener.epoch(figures)
