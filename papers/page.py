"""docs/papers: one page per paper and an index, written from the saved runs alone."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from papers import codes, hao2018, huang2019, lu2019, ren2014, taylor2010
from papers.cell import AFTER_TEST, Cell
from papers.claim import DEFINITIONS, claim_table, outcomes, restart_table
from papers.claims import CLAIMS, RESTARTS
from papers.comparison import comparison_table
from papers.layout import heading, paragraphs
from papers.lu2019_lead import claim_lines, claim_outcomes
from papers.lu2019_summary import summary
from papers.pictures import picture_lines
from papers.row_table import row_table
from papers.tables import TABLES, verdicts
from papers.verdict import Verdict
from papers.wide_table import below, wide_table

Rows = Sequence[tuple[Cell, Verdict]]
Pictures = Mapping[str, list[str]]
WORDS = ("holds", "does not hold", "not told apart", "not run")
WRITTEN = "Written by `python -m papers` from the JSON in `docs/results/`; no figure of ours is typed by hand."


def _nothing(_: Mapping[tuple[str | None, str], Verdict]) -> list[str]:
    return []


@dataclass(frozen=True)
class Paper:
    """A page: its tables by name, its title, how its rows were made, and warnings computed from the runs."""

    tables: tuple[str, ...]
    name: str
    title: str
    about: tuple[str, ...]
    about_tables: Mapping[str, tuple[str, ...]]
    warnings: Callable[[Mapping[tuple[str | None, str], Verdict]], list[str]] = _nothing


PAPERS = {
    "ren2014": Paper(
        ("ren2014",),
        "Ren et al. (2014)",
        "Learning Convolutional Nonlinear Features for K Nearest Neighbor Image Classification",
        ren2014.ABOUT,
        ren2014.ABOUT_TABLES,
    ),
    "taylor2010": Paper(
        ("taylor2010",), "Taylor et al. (2010)", "Pose-Sensitive Embedding by Nonlinear NCA Regression, supplement", taylor2010.ABOUT, {}
    ),
    "hao2018": Paper(
        ("hao2018",),
        "Hao et al. (2018)",
        "Anchor-based Nearest Class Mean Loss for Convolutional Neural Networks",
        hao2018.ABOUT,
        hao2018.ABOUT_TABLES,
        hao2018.warnings,
    ),
    "huang2019": Paper(("huang2019",), "Huang et al. (2019)", "Unsupervised Deep Learning by Neighbourhood Discovery", huang2019.ABOUT, {}),
    "lu2019": Paper(
        ("lu2019",), "Lu et al. (2019)", "Sampling Wisely: Deep Image Embedding by Top-k Precision Optimization", lu2019.ABOUT, {}
    ),
    "codes": Paper(("codes", "digits"), "Binary codes and digits", "Tables of our own", codes.ABOUT, {}),
}
READING = (
    "Where anything is tuned, it is on a tenth of the training part (on held-out classes for unseen classes); then a model is trained on "
    "the whole training part and measured on the test part after the last epoch.",
    f"- **{AFTER_TEST}**: settings of the row were chosen or changed after test figures had been seen. Such a row is not a clean test; its "
    "note says what happened.",
    "- **reproduced**: the printed figure is within our mean plus or minus the larger of two standard deviations and the 95 % binomial "
    "interval of the test part, and differs from the mean by less than itself. **better**, **short**: it does not, on either side. The "
    "note of a short row lists ablations: its figure with one thing or a few changed.",
    "- **cited**: a figure that the paper quotes from another one. **ours**: nothing is printed. **not run**: not run by us. **diverged**: "
    "every training diverged; where some did, the note counts them, and the figures are those of the others.",
    "- **✓** and **✗**: our mean reaches the printed figure, or it does not; where nothing is printed, a target of ours that the note "
    "names.",
    "- **spread**: standard deviation over trainings. The same seed trained again on a GPU does not give the same figure; where a seed was "
    "trained more than once with the same settings, all trainings count.",
    '- **seconds**: mean of a training or a fit. "one of 4": up to four runs shared a GPU. Seconds on a CPU were measured next to other '
    "work.",
    "- **settings**: how they were selected. *fixed*: not tuned. *held-out tenth*: tuned on a tenth of the training part.",
    "- **Wide tables** (Lu et al.): percent (R@k is recall@k), seconds per 1,000 iterations, and pairs or triplets that contribute to the "
    "loss per iteration (for Prec@k the misplaced ones, with the margin added to negatives). Ours plus or minus the larger of two standard "
    "deviations over seeds and the 95 % bootstrap interval over queries (for NMI, AMI and F1 the range over starts of k-means). A row with "
    "one seed has the interval alone. Two rows are told apart if their difference exceeds both margins combined, the root of the sum of "
    'their squares. "chosen" is the choice of tuning, with its P@1 on held-out classes in brackets.',
)


def page_rows(name: str, results: Path) -> Rows:
    """The cells of a page with their verdicts."""
    return verdicts([cell for table in PAPERS[name].tables for cell in TABLES[table][1]], results)


def paper_page(name: str, rows: Rows, pictures: Pictures | None = None) -> str:
    """The page of a paper: claims, how its rows were made, tables and pictures."""
    paper, pictures = PAPERS[name], pictures or {}
    by_trial = {(cell.trial, cell.figure): verdict for cell, verdict in rows}
    lines = [f"# {paper.name}", "", f"*{paper.title}*", "", f"{WRITTEN} [How to read the tables](index.md#how-to-read-the-tables).", ""]
    lines += paragraphs(paper.warnings(by_trial))
    lines += _claims(name, rows)
    lines += ["## How the rows were made", "", *paragraphs([*paper.about, *(lu2019.protocol() if name == "lu2019" else [])])]
    for table in dict.fromkeys(cell.table for cell, _ in rows):
        some = [(cell, verdict) for cell, verdict in rows if cell.table == table]
        lines += [f"## {heading(table)}", "", *paragraphs(paper.about_tables.get(table, ()))]
        lines += [*comparison_table(some), *wide_table(some), "", *below(some)] if some[0][0].wide else row_table(some, by_trial)
        lines += pictures.get(table, [])
    return "\n".join(lines).rstrip() + "\n"


def _claims(name: str, rows: Rows) -> list[str]:
    """The claims of a paper; for Lu et al. also what the runs say about each question."""
    if name == "lu2019":
        table = claim_lines(rows)
        more = [
            *paragraphs(["The lead is over the strongest of the nine losses; the outcome is against all of them."]),
            *paragraphs(summary(rows)),
        ]
    else:
        table, more = claim_table(CLAIMS.get(name, ()), rows), restart_table(RESTARTS, rows) if name == "ren2014" else []
    how = "[How claims are decided](index.md#how-claims-are-decided): by differences that should be above 0."
    return ["## Claims", "", how, "", *table, *more] if table else []


def claim_counts(name: str, rows: Rows) -> Counter[str]:
    """How many differences of a paper have which outcome."""
    words = (one.word for *_, one in (claim_outcomes(rows) if name == "lu2019" else outcomes(CLAIMS.get(name, ()), rows)))
    return Counter(words)


def index_page(results: Path) -> str:
    """The list of pages with the outcomes of their claims and the states of their cells, and how to read them."""
    lines = ["# The papers, run again", "", *paragraphs([f"Every printed figure of five papers next to ours. {WRITTEN}"])]
    lines += ["| page | " + " | ".join(WORDS) + " | figures: reproduced | better | short | not run | cited |", "|---|" + "---:|" * 9]
    for name, paper in PAPERS.items():
        rows = page_rows(name, results)
        claims, states = claim_counts(name, rows), Counter(verdict.word for cell, verdict in rows if cell.printed is not None)
        counts = [*(claims[word] for word in WORDS), *(states[word] for word in ("reproduced", "better", "short", "not run", "cited"))]
        lines.append(f"| [{paper.name}]({name}.md): {paper.title} | {' | '.join(map(str, counts))} |")
    note = "The first four columns count the differences by which claims are tested, the others the printed figures."
    contest = (
        "More contests: [contest on tables](tables.md), soft neighbors against gradient boosting and others; "
        "[pretrained encoders](encoders.md), frozen or under a head; [tuning an encoder](tuning.md) for classes that it never saw; "
        "[texts with few labels](texts.md); [which loss](which_loss.md); [prefixes of one embedding](matryoshka.md); "
        "[what makes neighbors teach](neighbor-targets.md)."
    )
    lines += ["", *paragraphs([note, contest]), "## How claims are decided", "", *paragraphs(DEFINITIONS)]
    return "\n".join([*lines, "## How to read the tables", "", *paragraphs(READING)]).rstrip() + "\n"


def pages(results: Path) -> dict[str, str]:
    """All pages by file name."""
    pictures = picture_lines(results)
    return {"index.md": index_page(results), **{f"{name}.md": paper_page(name, page_rows(name, results), pictures) for name in PAPERS}}


def write_pages(results: Path, folder: Path) -> list[Path]:
    """Write all pages into a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    written = []
    for name, text in pages(results).items():
        (folder / name).write_text(text, encoding="utf-8")
        written.append(folder / name)
    return written
