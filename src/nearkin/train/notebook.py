"""A progress bar in a notebook: a Reporter for training that draws with ipywidgets (`pip install 'nearkin[notebook]'`)."""

from collections.abc import Mapping
from typing import Any


class NotebookProgress:
    """Show the progress of a training as a bar in a notebook, with the loss and the figures of the last epoch.

    Pass it as `reporter` to `nearkin.train.train`; its method `message` is a `report` for other functions.

    Examples
    --------
    >>> from nearkin.train import NotebookProgress
    >>> reporter = NotebookProgress()  # doctest: +SKIP
    >>> nearkin.train.train(run, "runs/model", reporter=reporter)  # doctest: +SKIP
    """

    def __init__(self) -> None:
        try:
            import ipywidgets
            from IPython.display import display
        except ImportError as error:
            raise ImportError(
                f"a bar in a notebook needs ipywidgets ({error}); install it with: pip install 'nearkin[notebook]'"
            ) from error
        self.bar = ipywidgets.IntProgress(layout={"width": "60%"})
        self.words = ipywidgets.Label("starting")
        display(ipywidgets.HBox([self.bar, self.words]))  # type: ignore[no-untyped-call]

    def message(self, line: str) -> None:
        """Show a line beside the bar.

        Parameters
        ----------
        line : str
            What was chosen, found or skipped.
        """
        self.words.value = line

    def started(self, steps: int, done: int) -> None:
        """Set the length of the bar.

        Parameters
        ----------
        steps : int
            Steps in all.
        done : int
            Steps done before.
        """
        self.bar.max, self.bar.value = steps, done

    def step(self, done: int, figures: Mapping[str, Any]) -> None:
        """Move the bar.

        Parameters
        ----------
        done : int
            Steps done.
        figures : mapping
            The loss of the step.
        """
        self.bar.value = done
        if done == 1 or done % 20 == 0:  # a message to the browser each
            self.words.value = f"loss {figures['loss']:.4f}"

    def epoch(self, figures: Mapping[str, Any]) -> None:
        """Show the figures of an epoch.

        Parameters
        ----------
        figures : mapping
            Its number, loss and validation figures.
        """
        numbers = {name: value for name, value in figures.items() if isinstance(value, float)}
        self.words.value = f"epoch {figures['epoch']}: " + ", ".join(f"{name} {value:.4g}" for name, value in numbers.items())
        self.bar.bar_style = "success" if self.bar.value >= self.bar.max else ""
