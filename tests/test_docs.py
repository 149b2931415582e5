"""The documentation is up to date, its code runs, its links lead somewhere and its names exist."""

import ast
import builtins
import importlib
import json
import re
import signal
import subprocess
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch

import nearkin.compose
from nearkin import objectives
from nearkin import report as explore
from nearkin.compose import affinity, criterion, references, relation, triplets

ROOT = Path(__file__).resolve().parent.parent
OBJECTIVES, PEER = ROOT / "docs/objectives.md", ROOT / "docs/from-pytorch-metric-learning.md"
WITH_CODE = [ROOT / "README.md", OBJECTIVES, PEER, ROOT / "CONTRIBUTING.md"]
EVALUATION = ROOT / "docs/evaluation.md"
PAGES = [*WITH_CODE, ROOT / "CHANGELOG.md", *sorted((ROOT / "docs").rglob("*.md"))]
SECONDS = 60
THEIRS = "pytorch_metric_learning"


def blocks(path: Path) -> list[str]:
    return re.findall(r"^```python\n(.*?)^```", path.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)


BLOCKS = [pytest.param(code, id=f"{path.stem}-{number}") for path in WITH_CODE[1:] for number, code in enumerate(blocks(path))]


@contextmanager
def within(seconds: int) -> Iterator[None]:
    def stop(*_: object) -> None:
        raise TimeoutError(f"the block took more than {seconds} s")

    before = signal.signal(signal.SIGALRM, stop)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def run(code: str) -> dict[str, Any]:
    """A block as a reader would run it, alone."""
    space: dict[str, Any] = {"__name__": "__main__"}
    with within(SECONDS), torch.random.fork_rng():
        exec(compile(code, "<block>", "exec"), space)
    return space


@pytest.mark.parametrize("code", BLOCKS)
def test_every_block_runs(code: str) -> None:
    if THEIRS not in code:
        run(code)
        return
    pytest.importorskip(THEIRS)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        run(code)


def test_the_example_of_the_readme_does_what_its_comment_says(capsys: pytest.CaptureFixture[str]) -> None:
    (code,) = blocks(ROOT / "README.md")
    run(code)
    before, after = (float(line.rstrip("%")) for line in capsys.readouterr().out.split())
    said = [float(number) for number in re.findall(r"(\d+) %", code)]
    assert [before, after] == pytest.approx(said, abs=2)


def test_the_example_of_the_page_on_evaluation_does_what_its_comment_says(capsys: pytest.CaptureFixture[str]) -> None:
    code = blocks(EVALUATION)[0]
    run(code)
    said = re.search(r"# (<1-nn .*>)", code)
    told = capsys.readouterr().out.splitlines()
    assert said is not None and told[0] == said[1] and re.fullmatch(r"MAP@R 0\.\d{3}, R-precision 0\.\d{3}, NMI 0\.\d\d", told[1])


def test_the_figures_about_the_peer_are_those_the_code_gives() -> None:
    pytest.importorskip(THEIRS)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        figures = run(blocks(PEER)[-1])["figures"]
    rows = [[cell.strip() for cell in line.split(" | ")] for line in PEER.read_text(encoding="utf-8").splitlines() if line.startswith("| ")]
    for case, values in figures.items():
        (row,) = [row for row in rows if row[0].removeprefix("| ").startswith(case)]
        numbers = [float(torch.as_tensor(value).detach()) for value in values]
        near = 0.5 if "gradient error" in row[0] else 6e-3  # rounding is the machine's own
        assert [float(cell) for cell in row[1:3]] == pytest.approx(numbers, rel=near, nan_ok=True), case


@cache
def script(name: str) -> ModuleType:
    spec = spec_from_file_location(name, ROOT / f"docs/{name}.py")
    assert spec is not None and spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def check(*arguments: str) -> "subprocess.CompletedProcess[str]":
    path = f"import sys; sys.path.insert(0, {str(ROOT / 'src')!r}); sys.argv = ['generate.py', *{arguments!r}]; "
    code = path + f"import runpy; runpy.run_path({str(ROOT / 'docs/generate.py')!r}, run_name='__main__')"
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=False)


def test_the_generated_pages_are_up_to_date() -> None:
    done = check("--check")
    assert done.returncode == 0, done.stdout + done.stderr


def test_check_notices_a_page_that_is_out_of_date(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    module = script("generate")
    (tmp_path / "page.md").write_text("old")
    monkeypatch.setattr(module, "ROOT", tmp_path)
    monkeypatch.setattr(module, "PAGE", tmp_path / "page.md")
    monkeypatch.setattr(module, "PAPERS", tmp_path / "papers")
    monkeypatch.setattr(sys, "argv", ["generate.py", "--check"])
    assert module.main() == 1
    assert "page.md is out of date; run `make docs`" in capsys.readouterr().out
    assert (tmp_path / "page.md").read_text() == "old"
    monkeypatch.setattr(sys, "argv", ["generate.py"])
    monkeypatch.setattr(module, "readme", (ROOT / "README.md").read_text)
    assert module.main() == 0
    assert (tmp_path / "page.md").read_text() == OBJECTIVES.read_text(encoding="utf-8")


def test_every_named_objective_has_its_section() -> None:
    listed = [name for names in script("objectives_page").FAMILIES.values() for name in names]
    assert sorted(listed) == sorted(set(objectives.__all__) - {"Last", "NeighborhoodObjective", "Objective", "cite"})


def test_every_part_of_a_docstring_reaches_the_page() -> None:
    module, page = script("objectives_page"), " ".join(OBJECTIVES.read_text(encoding="utf-8").split())
    for names in module.FAMILIES.values():
        for cls in (getattr(objectives, name) for name in names):
            about = module.describe(cls)
            shown = [about.equation, about.example, *(module.short(part) for part in about[2:3] + about[4:7])]
            shown += [module.cell(module.short(part)) for parameter in about.parameters for part in parameter]
            assert all(" ".join(part.split()) in page for part in (about.sentence, *shown)), cls
            assert [p.name for p in about.parameters] == [p.name for p in module.arguments(cls)], cls
            assert set(about.passages) == set(cls.keys), cls
            parts = [*about[:3], *(text for parameter in about.parameters for text in parameter), *about[4:7], about.example]
            parts += [*about.passages, *about.passages.values(), *(title for title in module.sections(cls.__doc__))]
            unsaid = module.sections(cls.__doc__).get("Attributes", "")  # for help() alone
            docstring = cls.__doc__.replace("Differs:", "")
            assert len(words(" ".join([*parts, unsaid]))) == len(words(docstring)), cls


def words(text: str) -> list[str]:
    return re.findall(r"\w+", text.replace("<br>", " "))


def test_the_demo_table_is_made_from_its_metrics(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    figure = {"mean": 0.9312, "sd": 0.0044, "values": [0.93, 0.94]}
    row = {"method": "NCA network", "dimension": 2, "seconds": [1.0, 2.0], "1-nn": figure, "10-nn": {**figure, "sd": None}}
    run = {"rows": [row], "seeds": [0, 1], "seconds": 9.6, "device": "cpu", "versions": {"torch": "2"}, "settings": {"iterations": 30}}
    (tmp_path / "demo.json").write_text(json.dumps(run))
    monkeypatch.setattr(script("generate"), "DEMO", tmp_path / "demo.json")
    assert "| NCA network | 2 | 93.1 ± 0.4 | 93.1 | 1.5 |" in script("generate").demo()
    monkeypatch.setattr(script("generate"), "DEMO", tmp_path / "none.json")
    assert script("generate").demo() is None


def test_markers_that_are_gone_are_missed_in_words() -> None:
    with pytest.raises(ValueError, match=r"README.md has no markers <!-- demo --> and <!-- /demo -->; put them back"):
        script("generate").between("nothing", "demo", "table")


def headings(path: Path) -> set[str]:
    return {
        script("objectives_page").anchor(line.lstrip("# "))
        for line in path.read_text(encoding="utf-8").splitlines()
        if line.startswith("#")
    }


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_every_relative_link_leads_somewhere(page: Path) -> None:
    text = re.sub(r"^```.*?^```", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        if not target.startswith(("http://", "https://")):
            name, _, heading = target.partition("#")
            file = page.parent / name if name else page
            assert file.exists(), target
            assert not heading or f"#{heading}" in headings(file), target


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_no_page_holds_a_path_of_some_machine(page: Path) -> None:
    assert not re.search(r"(?<![\w.:/)\]])/\w+/\w+", page.read_text(encoding="utf-8"))


OURS = (nearkin, nearkin.compose, objectives, affinity, relation, criterion, references, triplets, explore, nearkin.NeighborhoodClassifier)
THEIR_HOMES = ("neighbors", "pipeline", "model_selection", "preprocessing", "exceptions")  # of scikit-learn, which the guide speaks of
HOMES = (*OURS, *(importlib.import_module(f"sklearn.{name}") for name in THEIR_HOMES))


def spans(page: Path) -> list[str]:
    text = re.sub(r"^```.*?^```", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    return re.findall(r"`([^`\n]+)`", text)


def named(span: str) -> set[str]:
    """Names that a code span calls or mentions as classes."""
    if re.fullmatch(r"\w+(-\w+)+", span):  # a header or an option, no difference of names
        return set()
    try:
        tree = ast.parse(span, mode="eval")
    except SyntaxError:
        return set()
    called = {node.func.id for node in ast.walk(tree) if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)}
    mentioned = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name) and re.fullmatch(r"[A-Z]\w*[a-z]\w*", node.id)}
    return called | mentioned


def resolved(dotted: str) -> Any:
    """The module or the attribute of a module that a dotted name means."""
    try:
        return importlib.import_module(dotted)
    except ModuleNotFoundError:
        home, _, name = dotted.rpartition(".")
        return getattr(resolved(home), name)


def peer_names() -> set[str]:
    """Names that stand for theirs: the first column, and what the page says of them."""
    text = PEER.read_text(encoding="utf-8")
    first = {name for line in text.splitlines() if line.startswith("| `") for name in re.findall(r"\w+", line.split("|")[1])}
    return first | {"FAMILIES"}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_every_name_exists(page: Path) -> None:
    known = {name for home in HOMES for name in (*dir(home), *getattr(home, "__all__", ()))} | set(dir(builtins)) | {"f"}
    theirs = peer_names()
    for span in spans(page):
        unknown = named(span) - known
        if page in (PEER, ROOT / "CONTRIBUTING.md"):
            unknown -= theirs
        assert not unknown, f"{page.name}: {sorted(unknown)} in `{span}`"
        if re.fullmatch(r"nearkin(\.\w+)+", span.split("(")[0]):
            resolved(span.split("(")[0])


def test_their_names_exist_too() -> None:
    peer = pytest.importorskip(THEIRS)
    homes = [
        importlib.import_module(f"{peer.__name__}.{name}")
        for name in ("losses", "miners", "distances", "reducers", "samplers", "regularizers")
    ]
    homes += [importlib.import_module(f"{peer.__name__}.utils.{name}") for name in ("accuracy_calculator", "inference")]
    known = {name for home in homes for name in dir(home)}
    names = {name for name in peer_names() - {"FAMILIES"} if re.fullmatch(r"[A-Z]\w*[a-z]\w*", name)}
    ours = {name for line in PEER.read_text(encoding="utf-8").splitlines() for name in re.findall(r"\| `nearkin\.\w+` \| `(\w+)`", line)}
    assert names - ours - {"False", "True"} <= known
