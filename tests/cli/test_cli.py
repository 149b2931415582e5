"""The command line: fast help, clear errors, and a demo that does what it says."""

import contextlib
import io
import json
import os
import resource
import subprocess
import sys
import threading
from concurrent.futures import CancelledError
from pathlib import Path
from typing import Any

import pytest
import torch
from PIL import Image

import nearkin
from nearkin import cli

WRITTEN = {".lock", "checksums.json", "index", "metrics.json", "model.json", "weights.safetensors", "references.safetensors", "scatter.png"}


def child(*arguments: str, program: tuple[str, ...] = ("-m", "nearkin")) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, *program, *arguments], capture_output=True, text=True, check=False)


def seconds_of_children() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def test_help_comes_at_once_and_shows_an_example() -> None:
    taken = []
    for _ in range(3):  # the best of three: others use these cores, too
        before = seconds_of_children()
        done = child("--help")
        taken.append(seconds_of_children() - before)
    assert done.returncode == 0 and "nearkin demo" in done.stdout and "demo " in done.stdout
    assert min(taken) < 0.4


MISTAKES = ["search nowhere --id 3", "evaluate nowhere", "serve nowhere", "index nowhere digits", "export nowhere --onnx"]
MISTAKES += [
    "train no/where",
    "train --resume nowhere",
    "train digits --set lr=3",
    "train digits --set epochs=two",
    "shard no/where --out s",
]


@pytest.mark.parametrize(
    "arguments",
    [["--help"], ["--version"], ["demo", "--help"], ["demo", "--seeds", "0"], ["dmeo"], [], *(mistake.split() for mistake in MISTAKES)],
)
def test_nothing_heavy_is_imported_before_a_verb_runs(arguments: list[str]) -> None:
    code = (
        "import sys\nfrom nearkin import cli\ntry: cli.main(sys.argv[1:])\nexcept SystemExit: pass\n"
        "print(sorted({'torch', 'numpy', 'sklearn', 'rich', 'matplotlib', 'jinja2'} & set(sys.modules)), file=sys.stderr)"
    )
    done = child(*arguments, program=("-c", code))
    assert "Traceback" not in done.stderr and done.stderr.strip().endswith("[]")


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stop:
        cli.main(["--version"])
    assert stop.value.code == 0 and capsys.readouterr().out == f"nearkin {nearkin.__version__}\n"


def test_no_verb_shows_the_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main([]) == 0
    assert capsys.readouterr().out.startswith("usage: nearkin")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["dmeo"], "invalid choice: 'dmeo' (choose from"),
        (["demo", "--seeds", "0"], "argument --seeds: '0' must be a whole number of at least 1"),
        (["demo", "--seeds", "-3"], "argument --seeds: '-3' must be a whole number of at least 1"),
        (["demo", "--seeds", "two"], "argument --seeds: 'two' must be a whole number of at least 1"),
        (["demo", "--fast"], "unrecognized arguments: --fast"),
        (["evaluate", "runs/m", "--data", "new.csv"], "unrecognized arguments: --data new.csv"),  # no abbreviation of --data-root
    ],
)
def test_wrong_options_are_refused(arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stop:
        cli.main(arguments)
    assert stop.value.code == 2 and message in capsys.readouterr().err


def test_a_file_in_the_way_is_reported_before_any_work(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "taken").write_text("")
    assert cli.main(["demo", "--quick", "--out", str(tmp_path / "taken")]) == 1
    assert capsys.readouterr().err == f"nearkin demo: --out {tmp_path / 'taken'} is a file; pass a folder\n"


PIPED = "import sys\nfrom nearkin import cli\ncli._lazily = lambda *_: lambda _: {0}\nsys.exit(cli.main(sys.argv[1:]))"


@pytest.mark.parametrize(
    ("arguments", "verb"),
    [
        (["--help"], "0"),
        (["demo", "--help"], "0"),
        (["demo"], "print('much ' * 100_000)"),
        (["demo"], "__import__('rich.console').console.Console().print('much ' * 100_000)"),
        (["demo"], "print('little')"),
    ],
)
def test_a_closed_pipe_is_no_error(arguments: list[str], verb: str) -> None:
    """`| head`: nothing on stderr, and the status of a program ended by SIGPIPE."""
    reader, writer = os.pipe()
    os.close(reader)
    code = PIPED.format(verb)
    done = subprocess.run([sys.executable, "-c", code, *arguments], stdout=writer, stderr=subprocess.PIPE, text=True, check=False)
    os.close(writer)
    assert done.returncode in ((0, 141) if "--help" in arguments else (141,)) and done.stderr == ""  # argparse forgives on its own


def test_another_broken_pipe_is_an_error(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def broken(_: object) -> int:
        raise BrokenPipeError(32, "Broken pipe")

    monkeypatch.setattr("nearkin.cli._lazily", lambda *_: broken)
    assert cli.main(["demo"]) == 1 and "nearkin demo: [Errno 32] Broken pipe" in capsys.readouterr().err


def test_ctrl_c_prints_one_word_and_no_traceback(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from nearkin.cli import demo

    def interrupted(*arguments: Any, **options: Any) -> None:
        raise KeyboardInterrupt

    threads = torch.get_num_threads()
    monkeypatch.setattr(demo, "fit", interrupted)
    assert cli.main(["demo", "--quick", "--out", str(tmp_path)]) == 130
    assert capsys.readouterr().err.endswith("\nstopped\n")
    assert torch.get_num_threads() == threads and not any(tmp_path.iterdir())


def test_networks_in_training_stop_at_the_end_of_their_epoch_after_ctrl_c() -> None:
    from nearkin.cli.demo import DemoProgress, one_thread_each
    from nearkin.train.loop import Epoch

    watch, begun, tasks = DemoProgress(total=1), threading.Event(), []

    def endless() -> None:
        while True:
            begun.set()
            watch.tick(Epoch(1, 1, 0.0))

    def interrupted() -> None:
        with one_thread_each(watch) as pool:
            tasks.append(pool.submit(endless))
            begun.wait()
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert isinstance(tasks[0].exception(), CancelledError)


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str, str]:
    """One quick demo: its folder, stdout and stderr."""
    out = tmp_path_factory.mktemp("runs") / "demo"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("COLUMNS", "80")
        said = _captured(["demo", "--quick", "--out", str(out)])
    return out, *said


def _captured(arguments: list[str]) -> tuple[str, str]:
    with contextlib.redirect_stdout(io.StringIO()) as out, contextlib.redirect_stderr(io.StringIO()) as err:
        assert cli.main(arguments) == 0
    return out.getvalue(), err.getvalue()


def accuracy(page: dict[str, Any], method: str, dimension: int) -> float:
    (row,) = [row for row in page["rows"] if (row["method"], row["dimension"]) == (method, dimension)]
    return float(row["1-nn"]["mean"])


def test_the_demo_writes_everything(demo: tuple[Path, str, str]) -> None:
    assert {path.name for path in demo[0].iterdir()} == WRITTEN
    with Image.open(demo[0] / "scatter.png") as image:
        assert image.format == "PNG" and image.width == 1200


def test_its_figures_are_whole_and_beat_raw_pixels(demo: tuple[Path, str, str]) -> None:
    page = json.loads((demo[0] / "metrics.json").read_text())
    assert page["command"] == f"nearkin demo --out {demo[0]} --seeds 1 --quick"
    assert page["seeds"] == [0] and page["seconds"] > 0 and page["device"].startswith("cpu")
    assert page["versions"]["nearkin"] == nearkin.__version__ and "torch" in page["versions"]
    assert [(row["method"], row["dimension"]) for row in page["rows"]] == [
        ("raw pixels", 256),
        *[(name, 2) for name in ("PCA", "LDA", "linear NCA", "softmax network", "NCA network")],
        ("PCA", 32),
        ("LDA", 9),
        *[(name, 32) for name in ("linear NCA", "softmax network", "NCA network")],
    ]
    assert accuracy(page, "raw pixels", 256) == pytest.approx(0.69, abs=0.005)
    assert accuracy(page, "NCA network", 32) > 0.8 > accuracy(page, "raw pixels", 256) > accuracy(page, "PCA", 32)
    assert accuracy(page, "NCA network", 2) > 2 * accuracy(page, "linear NCA", 2)


def test_its_folder_is_a_model(demo: tuple[Path, str, str]) -> None:
    from nearkin.data.digits import moved_digits

    test = moved_digits().test
    right = nearkin.load(demo[0]).predict(test.images, k=1, numbers=True) == test.labels
    page = json.loads((demo[0] / "metrics.json").read_text())
    assert float(right.double().mean()) == pytest.approx(accuracy(page, "NCA network", 32))


def test_what_it_says(demo: tuple[Path, str, str]) -> None:
    out, said, progress = demo
    assert "NCA network (nearkin)" in said and "69.0" in said
    assert "LDA has at most 9 dimensions" in " ".join(said.split())
    assert f"Picture: {out / 'scatter.png'}" in said and f"nearkin serve {out}" in said and "nearkin train photos/" in said
    assert len(progress.splitlines()) == 10 and progress.startswith("PCA, 2 dimensions: 1-NN ")  # plain lines, no bar
    assert "\x1b" not in said + progress


def test_without_matplotlib_there_is_a_message_and_no_picture(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    from rich.console import Console

    from nearkin.cli import demo as verb

    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    console = Console(file=io.StringIO(), width=200)
    row = verb.Row("PCA", 2, one=[0.5], shown=torch.zeros(500, 2))
    assert verb.draw(tmp_path, [row], verb.moved_digits(), console) is None
    assert "No picture: figures need matplotlib, which is not installed; pip install 'nearkin[plot]'" in console.file.getvalue()


def test_mean_and_spread() -> None:
    from nearkin.cli.demo import percent

    assert percent([0.9312]) == "93.1"
    assert percent([0.9, 0.92, 0.94]) == "92.0 ± 2.0"
