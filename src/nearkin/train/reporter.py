"""How training reports progress. Nothing below the command line prints: it calls a reporter."""

import json
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

from nearkin.data.disk import append_line
from nearkin.data.progress import Progress

Figures = Mapping[str, Any]


class Reporter(Protocol):
    """Receives the progress of a training: a progress bar, plain lines, a test.

    Pass an object with these four methods as `reporter` to `nearkin.train.train`.

    Examples
    --------
    >>> class Losses:
    ...     def __init__(self):
    ...         self.losses = []
    ...     def message(self, line): ...
    ...     def started(self, steps, done): ...
    ...     def step(self, done, figures): ...
    ...     def epoch(self, figures):
    ...         self.losses.append(figures["loss"])
    >>> from nearkin.train import Reporter
    >>> reporter: Reporter = Losses()
    """

    def message(self, line: str) -> None:
        """Receive a line of text.

        Parameters
        ----------
        line : str
            What was chosen, found or skipped; warnings begin with "warning".
        """
        ...

    def started(self, steps: int, done: int) -> None:
        """Receive the length of the training, before its first step.

        Parameters
        ----------
        steps : int
            Steps of the whole training.
        done : int
            Steps already made, if the training is resumed.
        """
        ...

    def step(self, done: int, figures: Figures) -> None:
        """Receive the figures of a step.

        Parameters
        ----------
        done : int
            Steps made so far.
        figures : mapping
            ``loss``, ``rate`` and, if the objective counts them, ``valid`` queries.
        """
        ...

    def epoch(self, figures: Figures) -> None:
        """Receive the figures of an epoch that has ended.

        Parameters
        ----------
        figures : mapping
            ``epoch``, ``loss``, ``steps``, ``points_per_second``, the results of validation and the number of ``validation points``.
        """
        ...


class Silence:
    """A reporter that ignores everything."""

    def message(self, line: str) -> None: ...

    def started(self, steps: int, done: int) -> None: ...

    def step(self, done: int, figures: Figures) -> None: ...

    def epoch(self, figures: Figures) -> None: ...


class Log:
    """Writes every message and epoch as a line of JSON, and forwards everything to another reporter."""

    def __init__(self, path: Path, listener: Reporter) -> None:
        self.path, self.listener = path, listener

    def _write(self, kind: str, content: Figures) -> None:
        append_line(self.path, json.dumps({"time": round(time.time(), 3), "kind": kind, **content}))

    def message(self, line: str) -> None:
        """Write and forward; progress is forwarded only."""
        if not isinstance(line, Progress):
            self._write("message", {"text": line})
        self.listener.message(line)

    def started(self, steps: int, done: int) -> None:
        """Write and forward."""
        self._write("started", {"steps": steps, "done": done})
        self.listener.started(steps, done)

    def step(self, done: int, figures: Figures) -> None:
        """Forward only: a line per step would fill the file."""
        self.listener.step(done, figures)

    def epoch(self, figures: Figures) -> None:
        """Write and forward."""
        self._write("epoch", figures)
        self.listener.epoch(figures)
