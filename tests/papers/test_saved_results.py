"""What the saved runs and the pages written from them must keep: every training, every printed figure, and every caveat."""

import json
import re
import statistics
from pathlib import Path

import pytest

from nearkin.evaluate.classification import WEIGHTED_TEMPERATURE
from nearkin.train.config import Run, override
from nearkin.train.validate import VOTERS, VOTING_TEMPERATURE
from papers.__main__ import main as papers_main
from papers.cell import AFTER_TEST, LEGEND
from papers.ledger import Ledger
from papers.page import PAPERS, page_rows, pages, paper_page
from papers.readme_rows import HEADLINE, readme_rows
from papers.tables import TABLES, chosen, verdicts

RESULTS = Path(__file__).resolve().parents[2] / "docs/results"
TRIALS = {trial.name: trial for trials, _ in TABLES.values() for trial in trials}
CELLS = [cell for _, cells in TABLES.values() for cell in cells]
CONTESTS = ("encoders", "matryoshka", "neighbor-targets", "texts", "tuning", "which-loss")  # with protocols and files of their own


def saved(name: str) -> str:
    return paper_page(name, page_rows(name, RESULTS))


@pytest.mark.parametrize("path", sorted(path for path in RESULTS.glob("*.json") if path.stem not in CONTESTS), ids=lambda path: path.stem)
def test_every_saved_ledger_is_that_of_its_trial(path: Path) -> None:
    """A trial whose settings were changed would show as not run."""
    ledger = Ledger.read(RESULTS, TRIALS[path.stem])
    assert ledger.__dict__ == json.loads(path.read_text(encoding="utf-8")) and (ledger.runs or ledger.tuning)


def test_all_five_trainings_of_12_million_images_count() -> None:
    runs = Ledger.read(RESULTS, TRIALS["and-goal12"]).runs
    values = [100 * run["figures"]["weighted-nn"] for run in runs]
    assert [run["seed"] for run in runs] == [0, 1, 1, 2, 2] and sum("earlier" in run for run in runs) == 2
    assert all("same GPU" in run["earlier"] and run["beside"] == 1 for run in runs if "earlier" in run)
    (_, verdict), *again = verdicts([cell for cell in CELLS if (cell.trial, cell.figure) == ("and-goal12", "weighted-nn")], RESULTS)
    assert all((other.mean, other.spread) == (verdict.mean, verdict.spread) for _, other in again)
    assert (verdict.mean, verdict.spread) == (pytest.approx(statistics.fmean(values)), pytest.approx(statistics.stdev(values)))
    assert f"{verdict.mean:.2f} ± {verdict.spread:.2f}" == "84.89 ± 0.25" and verdict.count == "3 (5 trainings)"
    shown = saved("huang2019")
    assert "| 84.89 | 0.25 | 3 (5 trainings) |" in shown
    alone = [line for line in shown.splitlines() if "85.06" in line]
    assert alone and all("mean of all 5 trainings of 3 seeds; the latest of each seed alone have 85.06 ± 0.13" in line for line in alone)


def test_trainings_that_were_repeated_for_a_picture_count_too() -> None:
    repeated = {
        name
        for name, trial in TRIALS.items()
        if (RESULTS / f"{name}.json").exists() and any("earlier" in run for run in Ledger.read(RESULTS, trial).runs)
    }
    assert repeated == {
        "and-goal12",
        "and-base",
        "ren2014-mnist-nca-log",
        "ren2014-mnist-nca-2d",
        "ren2014-cifar-nca-log-crop",
        *(f"hao2018-mnist-2d-{loss}" for loss in ("c-ncm", "e-ncm", "softmax")),
    }


def test_the_table_of_imagenet_is_cited_and_its_own_rows_are_not_run() -> None:
    cells = [(cell, verdict) for cell, verdict in page_rows("huang2019", RESULTS) if "table 2" in cell.table]
    printed = {(cell.row, cell.column): cell.printed for cell, _ in cells}
    assert len({row for row, _ in printed}) == 13 and len(printed) == 12 * 7 - 17 + 1
    assert printed["AND", "linear, conv4"] == 39.7 and printed["Jigsaw", "linear, FC"] == 38.1 and printed["Instance", "kNN, FC"] == 31.3
    assert {verdict.word for cell, verdict in cells if cell.row.startswith("AND")} == {"not run"}
    assert {verdict.word for cell, verdict in cells if not cell.row.startswith("AND")} == {"cited"}
    page = saved("huang2019")
    row = "| AND | 15.60 | 27.00 | 35.90 | 39.70 | 37.90 | 36.70 | 31.30 | not run | ImageNet is not at hand |"
    assert row in page and "| not run: ImageNet is not at hand |" in page


def test_the_page_says_which_temperature_the_weighted_vote_has() -> None:
    words = " ".join(saved("huang2019").split())
    here = f"**Weighted kNN** on this page: {VOTERS} neighbors, temperature {VOTING_TEMPERATURE:g}"
    assert here in words and f"The paper's text says {WEIGHTED_TEMPERATURE:g}, and so does `nearkin evaluate`" in words


def test_the_loss_of_1_nn_by_anchors_is_shown_and_warned_of() -> None:
    page = saved("hao2018")
    words = " ".join(page.split())
    assert "**Warning: the gain of E-NCM on CIFAR-100 is by the nearest anchor only.**" in words
    assert "E-NCM has 44.7 % accuracy, SoftMax 66.3 % and C-NCM 69.2 %" in words
    assert words.index("Warning") < words.index("## Claims")
    rows = [line for line in page.splitlines() if line.startswith("| E-NCM, p = 0.1 | CIFAR100 |")]
    assert len(rows) == 2 and all("| 28.14 | 27.74 | 0.23 | 55.29 | 3 |" in line for line in rows)  # tables 2 and 3
    beside_softmax = "| 28.14 | 27.74 ± 0.23; by 1-NN: 55.29 | 31.66 ± 0.09; by 1-NN: 33.72 | 3 | reproduced ✓ |"
    assert beside_softmax in readme_rows(RESULTS)


def test_the_momentum_of_hao_and_ren_is_named() -> None:
    for name, start in (("hao2018", "hao2018-cifar10-"), ("ren2014", "ren2014-mnist-nca")):
        runs = [override(Run(), trial.settings) for trial in TRIALS.values() if trial.name.startswith(start) and trial.method == "train"]
        assert all(run.optimizer.nesterov and run.optimizer.name == "sgd" for run in runs) and "Nesterov" in saved(name)


def test_e_ncm_on_mnist_is_marked_against_the_print() -> None:
    [(cell, verdict)] = verdicts([cell for cell in CELLS if cell.trial == "hao2018-mnist-e-ncm-p0.1"], RESULTS)
    assert (cell.printed, cell.target) == (0.26, None) and verdict.mean == pytest.approx(0.32) and verdict.state(cell) == "reproduced ✗"


FLAGGED = {cell.trial for cell in CELLS if cell.after_test}


@pytest.mark.parametrize(
    ("trial", "flagged"),
    [
        ("ren2014-mnist-nca-log", True),
        ("ren2014-mnist-raw", True),
        ("ren2014-cifar-nca-log", True),
        ("ren2014-cifar-nca-settled", True),
        ("ren2014-cifar-fast", True),
        ("ren2014-cifar-nca-log-crop", False),
        ("ren2014-mnist-pca-2d", False),
        ("taylor2010-angles-c-ncar", True),
        ("taylor2010-angles-pixels", False),
        ("taylor2010-objects-mlkr", True),
        ("hao2018-cifar10-e-ncm-p0.1", True),
        ("hao2018-cifar10plus-long-e-ncm-p0.1", True),
        ("hao2018-cifar100-hinge-every-p0.1", True),
        ("hao2018-cifar100-e-ncm-p0.1", False),
        ("and-goal12", True),
        ("and-longest", True),
        ("and-e50", False),
        ("lu2019-cub-11-angular", True),
        ("lu2019-cifar-longer-11-angular", True),
        ("lu2019-cub-floor-pretrained", False),
        ("lu2019-omniglot-11-angular", False),
    ],
)
def test_which_rows_had_settings_changed_after_test_figures(trial: str, flagged: bool) -> None:
    assert (trial in FLAGGED) == flagged


def test_every_rendering_marks_the_flagged_rows(capsys: pytest.CaptureFixture[str]) -> None:
    for name in PAPERS:
        page, cells = saved(name), [cell for table in PAPERS[name].tables for cell in TABLES[table][1]]
        for row in {cell.row for cell in cells if cell.after_test}:
            assert f"| {row} {AFTER_TEST} |" in page, row
        assert all(cell.after_test in page for cell in cells)
    text = readme_rows(RESULTS)
    for (trial, figure, what), line in zip(HEADLINE, text.splitlines()[2:], strict=False):
        cell = next(cell for cell in CELLS if (cell.trial, cell.figure) == (trial, figure))
        assert line.startswith(f"| {what} {AFTER_TEST} |" if cell.after_test else f"| {what} |")
    assert LEGEND in text and f"CUB-200-2011{AFTER_TEST}" in text
    assert papers_main(["and-goal12", "lu2019-cub-11-angular", "--list", "--out", str(RESULTS)]) == 0
    listed = capsys.readouterr().out
    assert f"12.5 M images, 5 minutes {AFTER_TEST}" in " ".join(listed.split()) and f"Angular {AFTER_TEST}" in listed
    assert LEGEND in " ".join(listed.split())
    assert papers_main(["and-e50", "--list", "--out", str(RESULTS)]) == 0
    assert AFTER_TEST not in capsys.readouterr().out


def test_claims_come_first_and_have_seeds_spread_and_selection() -> None:
    for name in PAPERS:
        page = saved(name)
        if name == "codes":
            assert "## Claims" not in page  # tables of our own
            continue
        assert page.index("## Claims") < page.index("## How the rows were made")
        assert "| claim | difference | printed | ours | margin | spread | seeds | settings | outcome |" in page
        table = page[page.index("| claim |") :].split("\n\n")[0].splitlines()[2:]
        words = [re.split(r"[,;:]", line.split(" | ")[-1].removesuffix(" |"))[0] for line in table]
        assert set(words) <= {"holds", "does not hold", "not told apart", "not run"} and len(words) > 5


def test_the_index_links_every_page_and_links_of_pages_exist() -> None:
    found = pages(RESULTS)
    assert set(found) == {"index.md", *(f"{name}.md" for name in PAPERS)}
    assert all(f"]({name}.md)" in found["index.md"] for name in PAPERS)
    for text in found.values():
        for link in re.findall(r"\]\(([^)#]+)", text):
            assert link in found or (RESULTS.parent / "papers" / link).resolve().exists(), link


def test_pages_use_plain_words() -> None:
    gone = re.compile(r"\b(wanted|rivals?|documents?|strangers?|anew|nobody|everybody|whoever|goals'|mended?|kin|beside|log\.md)\b", re.I)
    for name, text in {**pages(RESULTS), "README": readme_rows(RESULTS)}.items():
        assert not (found := gone.findall(text)), (name, found)


def test_a_whole_table_lists_its_cited_rows() -> None:
    assert sum("ImageNet" in cell.table for cell in chosen(["huang2019"])[1]) == 68
