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
from PIL import Image

import nearkin.compose
import nearkin.data
from nearkin import objectives
from nearkin import report as explore
from nearkin.cli import main
from nearkin.compose import affinity, criterion, references, relation, triplets
from nearkin.data import open as open_data
from nearkin.index import build_index
from nearkin.train import Run, config, override, train

ROOT = Path(__file__).resolve().parent.parent
OBJECTIVES, PEER = ROOT / "docs/objectives.md", ROOT / "docs/from-pytorch-metric-learning.md"
COUNTERPARTS = ROOT / "docs/migration.md"
WITH_CODE = [ROOT / "README.md", OBJECTIVES, PEER, ROOT / "CONTRIBUTING.md", ROOT / "docs/how-to/batches.md"]
START, EVALUATION = ROOT / "docs/start.md", ROOT / "docs/how-to/evaluate.md"
ON_A_MODEL = [ROOT / f"docs/how-to/{name}.md" for name in ("train", "index-and-search", "shards")]  # their code needs a model folder
BUILT = {"_build", "tutorials", "generated"}  # what `make docs` leaves, and git ignores
WRITTEN = [path for path in sorted((ROOT / "docs").rglob("*.md")) if not BUILT & {*path.relative_to(ROOT).parts}]
PAGES = [*WITH_CODE, ROOT / "CHANGELOG.md", *WRITTEN]
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


def test_the_first_lines_of_the_readme_run() -> None:
    code, _ = blocks(ROOT / "README.md")
    space = {"network": torch.nn.Linear(3, 2), "images": torch.randn(8, 3), "labels": torch.arange(8) % 2}
    exec(compile(code, "<block>", "exec"), space)
    assert float(space["loss"].detach()) > 0


@pytest.mark.parametrize("page", [ROOT / "README.md", START], ids=lambda page: page.stem)
def test_the_example_does_what_its_comment_says(page: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code = blocks(page)[-1]
    run(code)
    before, after = (float(line.rstrip("%")) for line in capsys.readouterr().out.split())
    said = [float(number) for number in re.findall(r"(\d+) %", code)]
    assert [before, after] == pytest.approx(said, abs=2)


def test_the_example_of_the_page_on_evaluation_does_what_its_comment_says(capsys: pytest.CaptureFixture[str]) -> None:
    code = blocks(EVALUATION)[0]
    run(code)
    comment = re.search(r"# (<1-nn .*>)", code)
    printed = capsys.readouterr().out.splitlines()
    assert comment is not None and printed[0] == comment[1]
    assert re.fullmatch(r"MAP@R 0\.\d{3}, R-precision 0\.\d{3}, NMI 0\.\d\d", printed[1])


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with photos, models, an index and shards under the names that the pages use."""
    here = tmp_path_factory.mktemp("docs")
    for label, color in (("cat", (200, 40, 40)), ("dog", (40, 40, 200))):
        (here / "photos" / label).mkdir(parents=True)
        for number in range(20):
            Image.new("RGB", (8, 8), tuple(min(255, part + number) for part in color)).save(here / f"photos/{label}/{number}.png")
    Image.new("RGB", (8, 8), (205, 45, 45)).save(here / "query.jpg")
    settings = {"data.source": str(here / "photos"), "epochs": "1", "batch_size": "8", "network.dimension": "4", "data.leaks": "allow"}
    for name in ("model", "photos"):
        train(override(Run(), settings), here / "runs" / name, device="cpu")
    build_index(here / "runs/photos", open_data(str(here / "photos")), device="cpu")
    assert main(["embed", str(here / "runs/photos"), str(here / "photos"), "--out", str(here / "shards"), "--device", "cpu"]) == 0
    return here


@pytest.mark.parametrize("page", ON_A_MODEL, ids=lambda page: page.stem)
def test_the_blocks_that_need_a_model_run(page: Path, trained: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("pyarrow")
    monkeypatch.chdir(trained)
    images = [str(path) for path in sorted(trained.glob("photos/*/*.png"))[:3]]
    for code in blocks(page):
        with within(SECONDS):
            exec(compile(code, "<block>", "exec"), {"__name__": "__main__", "images": images})


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
    monkeypatch.setattr(module, "DEMO_PAGE", tmp_path / "demo.md")
    monkeypatch.setattr(module, "no_labels", module.NO_LABELS.read_text)
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


def test_markers_that_are_gone_are_missed_in_words() -> None:
    with pytest.raises(ValueError, match=r"README.md has no markers <!-- results --> and <!-- /results -->; put them back"):
        script("generate").between("nothing", "results", "table")


def test_the_readme_is_short() -> None:
    assert len((ROOT / "README.md").read_text(encoding="utf-8").splitlines()) <= 160
    assert len((ROOT / "docs/decisions.md").read_text(encoding="utf-8").splitlines()) <= 200


def test_the_figures_of_speed_among_the_decisions_are_those_that_were_saved() -> None:
    def rows(name: str) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = json.loads((ROOT / f"docs/bench-{name}.json").read_text(encoding="utf-8"))["rows"]
        return found

    def times(row: dict[str, Any], other: str) -> float:
        return float(row["seconds"]["nearkin"] / row["seconds"][other])

    said = " ".join((ROOT / "docs/decisions.md").read_text(encoding="utf-8").split())
    wide = [times(row, "faiss flat") for row in rows("knn") if row["d"] >= 256]
    many = [times(row, "faiss flat") for row in rows("knn") if row["k"] == 200]
    on_cuda = [times(row, "torch topk") for row in rows("knn-h200") if row["k"] == 200]
    assert f"Exact search on a CPU takes {min(wide):.2f} to {max(wide):.2f} times as long as faiss flat" in said
    assert f"at k = 200 {max(many):.1f} times as long, and on an H200 up to {max(on_cuda):.1f} times" in said
    softmax = [row["times"] for row in rows("losses") if row["loss"] == "Softmax"]
    assert f"plain `Softmax` {min(softmax):.1f} to {max(softmax):.1f} times that of torch's two unchecked calls" in said


def test_the_glossary_has_fifteen_words() -> None:
    text = (ROOT / "docs/concepts/glossary.md").read_text(encoding="utf-8")
    assert len(re.findall(r"^: ", text, flags=re.MULTILINE)) == 15


def test_the_pages_of_the_reference_list_every_public_name() -> None:
    module = script("reference_pages")
    for room in module.ROOMS:
        names = getattr(importlib.import_module(f"nearkin.{room}"), "__all__", ())
        page = module.room_page(room)
        assert all(f"   {name}\n" in page for name in names), room
    assert set(module.rooms()) == {path.parent.name for path in (ROOT / "src/nearkin").glob("*/__init__.py")}


def test_every_setting_and_every_command_reaches_its_page() -> None:
    module = script("reference_pages")
    page = module.configuration()
    assert all(f"| `{leaf}` |" in page for leaf in config.leaves())
    assert "| `batch_size` | int | `256` |" in page and "| `views` | int | `1` |" in page
    commands = module.command_line()
    assert all(f"## nearkin {verb}" in commands for verb in ("train", "evaluate", "index", "search", "serve", "export", "embed", "shard"))


def test_every_page_is_in_a_table_of_contents() -> None:
    listed = set()
    for page in WRITTEN:
        for block in re.findall(r"^```\{toctree\}\n(.*?)^```", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL):
            for line in (line for line in block.splitlines() if line and not line.startswith(":")):
                pattern = re.sub(r".*<(.*)>", r"\1", line)
                listed |= {path.resolve() for path in page.parent.glob(f"{pattern}.md")}
    assert {path for path in WRITTEN if path != ROOT / "docs/index.md"} - listed == set()


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
            if BUILT & {*file.parts}:  # the site has it; a tutorial is made from its script
                assert file.parent.name != "tutorials" or file.stem == "index" or (ROOT / f"examples/{file.stem}.py").exists(), target
                continue
            assert file.exists(), target
            assert not heading or f"#{heading}" in headings(file), target


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_no_page_holds_a_path_of_some_machine(page: Path) -> None:
    assert not re.search(r"(?<![\w.:/)\]])/\w+/\w+", page.read_text(encoding="utf-8"))


COMPOSED = (affinity, relation, criterion, references, triplets)
OURS = (nearkin, nearkin.compose, nearkin.data, objectives, *COMPOSED, explore, nearkin.NeighborhoodClassifier)
THEIR_HOMES = (
    "compose",
    "neighbors",
    "pipeline",
    "model_selection",
    "preprocessing",
    "exceptions",
)  # of scikit-learn, which the guide speaks of
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
    return names_of_theirs(PEER)


def names_of_theirs(page: Path) -> set[str]:
    text = page.read_text(encoding="utf-8")
    first = {name for line in text.splitlines() if line.startswith("| `") for name in re.findall(r"\w+", line.split("|")[1])}
    return first | {"FAMILIES"}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_every_name_exists(page: Path) -> None:
    known = {name for home in HOMES for name in (*dir(home), *getattr(home, "__all__", ()))} | set(dir(builtins)) | {"f"}
    theirs = peer_names() | names_of_theirs(COUNTERPARTS)
    for span in spans(page):
        unknown = named(span) - known
        if page in (PEER, COUNTERPARTS, ROOT / "CONTRIBUTING.md"):
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
