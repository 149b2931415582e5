"""The guide's pages: each has all sections, its example runs and draws its figure, its links resolve."""

import os
import re
import subprocess
import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

import pytest

import nearkin

ROOT = Path(__file__).resolve().parents[2]
GUIDE = ROOT / "docs/how-to/estimators"
PAGES = {
    "LinearNCA": "linear-nca",
    "LMNN": "lmnn",
    "LinearNCARegression": "linear-nca-regression",
    "MLKR": "mlkr",
    "ProbabilisticPCA": "probabilistic-pca",
    "NeighborhoodEmbedding": "neighborhood-embedding",
    "NeighborhoodClassifier": "neighborhood-classifier",
    "NeighborhoodRegressor": "neighborhood-regressor",
    "TabularNCAClassifier": "tabular-nca-classifier",
    "TabularNCARegressor": "tabular-nca-regressor",
}

QUICK = ("linear-nca", "lmnn", "neighborhood-classifier")  # the others run in `make soak`


def example(page):
    spec = spec_from_file_location("draw", GUIDE / "draw.py")
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.example(page)


def test_every_estimator_has_a_page_and_no_page_is_left_over():
    assert {page.stem for page in GUIDE.glob("*.md")} == {*PAGES.values(), "index"}
    from nearkin import estimators

    assert set(estimators.__all__) == set(PAGES) <= set(nearkin.__all__)


@pytest.mark.parametrize(("name", "page"), PAGES.items())
def test_every_page_has_its_parts(name, page):
    text = (GUIDE / f"{page}.md").read_text(encoding="utf-8")
    assert text.startswith(f"# {name}\n") and "**When to use it.**" in text
    assert re.findall(r"^## (.*)", text, re.MULTILINE) == ["Mathematics", "Complexity", "Tips", "Example"]
    assert f"]({page}.png)" in text and (GUIDE / f"{page}.png").stat().st_size > 10_000


@pytest.mark.parametrize("page", [*PAGES.values(), "index"])
def test_every_link_leads_somewhere(page):
    for target in re.findall(r"\]\(([^)\s#]+)", (GUIDE / f"{page}.md").read_text(encoding="utf-8")):
        assert (GUIDE / target).exists(), target


@pytest.mark.parametrize("page", [pytest.param(page, marks=() if page in QUICK else pytest.mark.soak) for page in PAGES.values()])
def test_every_example_runs_and_draws_its_picture(page, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    exec(compile(example(GUIDE / f"{page}.md"), page, "exec"), {"__name__": "__main__"})
    assert (tmp_path / f"{page}.png").stat().st_size > 10_000
    figures = [float(number) for number in re.findall(r"-?\d+\.\d+", capsys.readouterr().out)]
    assert len(figures) >= 2
    if page not in ("mlkr", "probabilistic-pca", "neighborhood-embedding", "neighborhood-classifier"):
        assert figures[-1] > figures[0]  # the page's own model comes last, and is better


@pytest.mark.soak
def test_the_nested_comparison_runs_and_gives_intervals():
    path = ROOT / "examples/scikit_learn/nested_cross_validation.py"
    env = {**os.environ, "PYTHONPATH": str(ROOT / "src"), "OMP_NUM_THREADS": "1"}
    done = subprocess.run([sys.executable, "-W", "error", path], capture_output=True, text=True, env=env, timeout=1200, check=False)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert len(lines) == 12
    for line in lines:
        gain, low, high = (float(number) for number in re.search(r"gain (\S+) \[(\S+), (\S+)\]", line).groups())
        assert low <= gain <= high
        assert line.endswith("better" if low > 0 else "worse" if high < 0 else "no difference shown") or 0 in (low, high)
