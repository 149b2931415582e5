"""`nearkin demo`: six embeddings of shifted digits, and how often the nearest neighbor of each is right."""

import platform
import shlex
import statistics
import time
import warnings
from argparse import Namespace
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import CancelledError, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple, Self

import numpy as np
import torch
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.table import Table
from torch import Tensor, nn

from nearkin import __version__
from nearkin.cli.terminal import Terminal
from nearkin.compose.points import Points
from nearkin.data.checksums import write_json
from nearkin.data.dataset import Dataset
from nearkin.data.digits import CANVAS, Split, moved_digits
from nearkin.evaluate import knn_accuracy
from nearkin.index.collection import build_index
from nearkin.models.small_convnet import convnet
from nearkin.objectives import NCA, Objective, Softmax
from nearkin.report.maps import Panel, scatter
from nearkin.train.loop import Epoch, embed, fit, save

SHAPE = (1, CANVAS, CANVAS)
CLASSES = 10
DIMENSIONS = (2, 32)
OBJECTIVES = ("softmax", "NCA")

# Chosen by 1-NN accuracy on a held-out quarter of the training digits, never by test figures: first among about twenty networks,
# learning rates 0.005 to 0.04 and batches of 64 to 216 with one or two seeds on one split; then among four pairs of batch and rate
# on four splits. This pair has the best mean for both objectives in 2 and 32 dimensions (NCA 87.6 and 97.1 %, softmax 85.3 and
# 97.3 %), in most cases by less than the spread over splits (1 to 4 points).
NETWORK: dict[str, Any] = {"widths": [16, 48], "size": 5, "hidden": 64}
BATCH = 64
RATE = 0.01
EPOCHS = 6


class Budget(NamedTuple):
    """How much to train."""

    seeds: int
    epochs: int
    iterations: int  # of linear NCA


class Job(NamedTuple):
    """One network to train."""

    name: str  # of the objective
    dimension: int
    seed: int
    network: nn.Module
    objective: Objective


@dataclass
class Row:
    """One embedding, with a value for each seed."""

    method: str
    dimension: int
    one: list[float] = field(default_factory=list)  # test accuracy of 1-NN
    ten: list[float] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)
    shown: Tensor | None = None  # the first seed's test embeddings, for the picture

    def add(self, data: Split, train: Tensor, test: Tensor, seconds: float) -> None:
        """Measure one seed's embeddings."""
        references, queries = Points(train, data.train.labels), Points(test, data.test.labels)
        self.one.append(knn_accuracy(queries, references, 1))
        self.ten.append(knn_accuracy(queries, references, 10))
        self.seconds.append(seconds)
        self.shown = test if self.shown is None else self.shown

    def __str__(self) -> str:
        return f"{self.method}, {self.dimension} dimensions: 1-NN {percent(self.one)} %, {sum(self.seconds):.1f} s"


class DemoProgress:
    """A live bar on a terminal, otherwise a line for every row."""

    def __init__(self, total: int) -> None:
        self.console = Terminal(stderr=True, highlight=False)
        columns = (TextColumn("{task.description:<26}"), BarColumn(), TimeElapsedColumn(), TextColumn("left"), TimeRemainingColumn())
        self.bar = Progress(*columns, console=self.console, transient=True, disable=not self.console.is_terminal)
        self.task = self.bar.add_task("", total=total)
        self.stopped = False

    def __enter__(self) -> Self:
        self.bar.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.bar.stop()

    def begin(self, what: str) -> None:
        self.bar.update(self.task, description=what)

    def tick(self, epoch: Epoch) -> None:
        """Advance the bar by one epoch of a network; everything else takes little time."""
        if self.stopped:  # Ctrl-C reaches the main thread only, so the other threads check here
            raise CancelledError
        self.bar.advance(self.task)

    def finish(self, row: Row) -> None:
        if not self.console.is_terminal:
            self.console.print(str(row), markup=False, soft_wrap=True)


def run(arguments: Namespace) -> int:
    """Train, measure, print the table and write the folder."""
    started = time.perf_counter()
    out, budget = arguments.out, budget_for(arguments)
    check_folder(out)
    console = Terminal(highlight=False)
    data = moved_digits()
    train, test = (len(part.labels) for part in data)
    console.print(f"{train:,} training digits and {test} test digits, each at a random place on a {CANVAS} x {CANVAS} canvas.")
    with DemoProgress(total=len(DIMENSIONS) * len(OBJECTIVES) * budget.seeds * budget.epochs) as progress:
        rows = list(linear_rows(data, budget, progress))
        trained, network = network_rows(data, budget, progress)
        rows += trained
    rows.sort(key=lambda row: (row.method != "raw pixels", row.dimension > 2))
    console.print(table(rows, budget))
    save_model(out, network, data)
    index_digits(out, data)
    picture = draw(out, rows, data, console)
    write_metrics(out, rows, budget, arguments, time.perf_counter() - started)
    print_next_steps(console, out, picture, time.perf_counter() - started)
    return 0


def budget_for(arguments: Namespace) -> Budget:
    """Three seeds, or as many as --seeds says."""
    if arguments.quick:
        return Budget(arguments.seeds or 1, epochs=2, iterations=3)
    return Budget(arguments.seeds or 3, epochs=EPOCHS, iterations=50)


def check_folder(out: Path) -> None:
    """Create the folder before a minute of work, or raise."""
    if out.exists() and not out.is_dir():
        raise ValueError(f"--out {out} is a file; pass a folder")
    out.mkdir(parents=True, exist_ok=True)


def linear_rows(data: Split, budget: Budget, progress: DemoProgress) -> Iterator[Row]:
    """Raw pixels and scikit-learn's linear maps, which are deterministic: one run each."""
    from sklearn.decomposition import PCA
    from sklearn.discriminant_analysis import LinearDiscriminantAnalysis as LDA  # noqa: N817
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.neighbors import NeighborhoodComponentsAnalysis as LinearNCA

    train, test = (part.images.flatten(1) for part in data)
    raw = Row("raw pixels", train.shape[1])
    raw.add(data, train, test, 0.0)
    yield raw
    for dimension in DIMENSIONS:
        most = min(dimension, CLASSES - 1)
        methods = {
            "PCA": PCA(dimension, random_state=0),
            "LDA": LDA(solver="eigen", shrinkage="auto", n_components=most),  # without shrinkage it is worse
            "linear NCA": LinearNCA(dimension, init="pca", max_iter=budget.iterations, random_state=0),
        }
        for name, method in methods.items():
            row = Row(name, most if name == "LDA" else dimension)
            progress.begin(f"{name}, {row.dimension} dimensions")
            began = time.perf_counter()
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", ConvergenceWarning)  # the table's caption says so
                method.fit(train.numpy(), data.train.labels.numpy())
            seconds = time.perf_counter() - began
            references, queries = (torch.from_numpy(method.transform(part.numpy())).float() for part in (train, test))
            row.add(data, references, queries, seconds)
            progress.finish(row)
            yield row


def network_rows(data: Split, budget: Budget, progress: DemoProgress) -> tuple[list[Row], nn.Module]:
    """The same network with softmax and with NCA, and the first NCA network with 32 dimensions, to save."""
    rows, kept = [], None
    progress.begin(f"{len(DIMENSIONS) * len(OBJECTIVES) * budget.seeds} networks")
    with one_thread_each(progress) as pool:
        jobs = [fresh(name, dimension, seed) for dimension in DIMENSIONS for name in OBJECTIVES for seed in range(budget.seeds)]
        running = deque((job, pool.submit(train, job, data, budget.epochs, progress.tick)) for job in jobs)
        while running:
            row = Row(f"{running[0][0].name} network", running[0][0].dimension)
            for _ in range(budget.seeds):
                job, trained = running.popleft()
                seconds = trained.result()
                row.add(data, embed(job.network, data.train.images), embed(job.network, data.test.images), seconds)
                kept = job.network if (job.name, job.seed) == ("NCA", 0) else kept
            progress.finish(row)
            rows.append(row)
    assert kept is not None
    return rows, kept


@contextmanager
def one_thread_each(progress: DemoProgress) -> Iterator[ThreadPoolExecutor]:
    """Train several networks at a time, each on one thread.

    They are too small to use several cores, and this way the figures do not depend on the number of cores.
    """
    threads = torch.get_num_threads()
    pool = ThreadPoolExecutor(threads)
    torch.set_num_threads(1)
    try:
        yield pool
    except BaseException:
        progress.stopped = True
        raise
    finally:
        pool.shutdown(cancel_futures=True)
        torch.set_num_threads(threads)


def fresh(name: str, dimension: int, seed: int) -> Job:
    """A network and its objective before training; the seed sets the weights and the order of batches, not the data."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        network = convnet(SHAPE, dimension, **NETWORK)
        return Job(name, dimension, seed, network, NCA() if name == "NCA" else Softmax(CLASSES, dimension))


def train(job: Job, data: Split, epochs: int, tick: Callable[[Epoch], None]) -> float:
    """Train the network and return the seconds it took."""
    began = time.perf_counter()
    images, labels = data.train
    settings: dict[str, Any] = {"epochs": epochs, "batch_size": BATCH, "learning_rate": RATE, "seed": job.seed}
    fit(job.network, job.objective, images, labels, report=tick, **settings)
    return time.perf_counter() - began


def percent(values: list[float]) -> str:
    """'93.1 ± 0.4': mean and standard deviation in percent; for one value only the mean."""
    mean = f"{100 * statistics.fmean(values):.1f}"
    return mean if len(values) == 1 else f"{mean} ± {100 * statistics.stdev(values):.1f}"


def table(rows: list[Row], budget: Budget) -> Table:
    """The results on one screen."""
    spread = f"; ± is the standard deviation over {budget.seeds} seeds (the linear methods are deterministic)" if budget.seeds > 1 else ""
    caption = (
        f"Percent of test digits classified right by their 1 or 10 nearest training digits{spread}.\n"
        f"LDA has at most {CLASSES - 1} dimensions, one less than classes. linear NCA is scikit-learn's with at most "
        f"{budget.iterations} iterations. The two networks differ only in the loss."
    )
    drawn = Table(caption=caption, caption_justify="left")
    drawn.add_column("embedding")
    for heading in ("dimensions", "1-NN", "10-NN", "seconds"):
        drawn.add_column(heading, justify="right")
    for row in rows:
        ours = row.method == "NCA network"
        cells = (row.method + (" (nearkin)" if ours else ""), str(row.dimension), percent(row.one), percent(row.ten))
        took = f"{statistics.fmean(row.seconds):.1f}"
        drawn.add_row(*cells, took, style="bold" if ours else None, end_section=ours or row.method == "raw pixels")
    return drawn


def draw(out: Path, rows: list[Row], data: Split, console: Terminal) -> Path | None:
    """Draw scatter.png: the test digits in 2 dimensions, first seed."""
    titles = {"PCA": "PCA", "LDA": "LDA", "softmax network": "softmax", "NCA network": "NCA (nearkin)"}
    flat = [row for row in rows if row.dimension == 2 and row.method in titles]
    panels = [Panel(titles[row.method], row.shown, data.test.labels, row.one[0]) for row in flat if row.shown is not None]
    try:
        return scatter(panels, out / "scatter.png")
    except ImportError as error:
        console.print(f"No picture: {error}", markup=False)
        return None


def save_model(out: Path, network: nn.Module, data: Split) -> None:
    """Save the NCA network as a model folder."""
    description = {
        "format": 1,
        "kind": "images",
        "shape": list(SHAPE),
        "classes": [str(digit) for digit in range(CLASSES)],
        "targets": [],
        "supervision": "classes",
        "objective": "NCA",
        "why": "it is the demo",
        "metric": "squared_euclidean",
        "network": {"name": "convnet", "dimension": DIMENSIONS[-1], "normalize": False, "options": NETWORK},
        "prepare": [],
    }
    save(out, network, description, Points(embed(network, data.train.images), data.train.labels))


def index_digits(out: Path, data: Split) -> None:
    """Index all digits for the explorer."""
    images = torch.cat([part.images for part in data]).mul(255).round().to(torch.uint8)
    labels, split = torch.cat([part.labels for part in data]), ["train"] * len(data.train.labels) + ["test"] * len(data.test.labels)
    digits = Dataset("digits", images, labels, tuple(str(digit) for digit in range(CLASSES)), split=np.asarray(split))
    build_index(out, digits, replace=True, device="cpu")


def write_metrics(out: Path, rows: list[Row], budget: Budget, arguments: Namespace, seconds: float) -> None:
    """Write metrics.json: all figures and what is needed to reproduce them."""
    quick = " --quick" if arguments.quick else ""
    page = {
        "command": f"nearkin demo --out {out} --seeds {budget.seeds}{quick}",
        "seconds": round(seconds, 2),
        "seeds": list(range(budget.seeds)),
        "device": f"cpu ({platform.machine()}, {torch.get_num_threads()} threads)",
        "versions": {"nearkin": __version__, "python": platform.python_version()}
        | {name: version(name) for name in ("torch", "numpy", "scikit-learn")},
        "settings": {"network": NETWORK, "batch_size": BATCH, "learning_rate": RATE, **budget._asdict()},
        "rows": [figures(row) for row in rows],
    }
    write_json(out / "metrics.json", page)


def figures(row: Row) -> dict[str, Any]:
    """A row of the table as plain data: shares, not percent."""
    page: dict[str, Any] = {"method": row.method, "dimension": row.dimension, "seconds": [round(s, 3) for s in row.seconds]}
    for name, values in {"1-nn": row.one, "10-nn": row.ten}.items():
        sd = statistics.stdev(values) if len(values) > 1 else None
        page[name] = {"mean": statistics.fmean(values), "sd": sd, "values": values}
    return page


def print_next_steps(console: Terminal, out: Path, picture: Path | None, seconds: float) -> None:
    """Say where the picture is, which page to open and how to train on one's own images."""
    lines = [f"\nDone in {seconds:.0f} s. Model and figures: {out}/"]
    if picture is not None:
        lines.append(f"Picture: {picture} (the test digits in 2 dimensions)")
    serve = f"nearkin serve {shlex.quote(str(out))}"
    lines += [
        "\nNext:",
        f"  {serve:<32}  open a page that shows every digit with its neighbors",
        f"  {'nearkin train photos/':<32}  train on your own images, one folder for each class",
    ]
    console.print("\n".join(lines), markup=False, soft_wrap=True)
