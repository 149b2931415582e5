"""The rows of results that the README and the guide to data without labels show."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import mean, stdev
from typing import Any

from papers.cell import AFTER_TEST, LEGEND, Cell
from papers.claim import line
from papers.huang2019_trials import ELSEWHERE, WAYS, figures_of
from papers.lu2019_summary import readme_summary
from papers.table_methods import MAIN, OURS
from papers.table_page import CHOSEN_ON, paired_tests, ranks, read_records, seeds_in_words, shared_by_tuned, untouched
from papers.tables import TABLES, verdicts
from papers.verdict import Verdict

HEADLINE = (  # trial, figure, and what it is
    ("ren2014-mnist-nca-log", "1-nn", "NCA network, MNIST, 1-NN error % (Ren et al., 2014)"),
    ("ren2014-cifar-nca-log", "10-nn", "NCA network, CIFAR-10, 10-NN accuracy % (the same)"),
    ("hao2018-cifar10plus-e-ncm-p0.1", "class vectors", "fixed anchors, CIFAR-10 with crop and flip, error % (Hao et al., 2018)"),
    ("hao2018-cifar100-e-ncm-p0.1", "class vectors", "fixed anchors, CIFAR-100, error % (the same)"),
    ("and-goal25", "weighted-nn", "no labels, CIFAR-10, discovery in rounds, 25 M images, weighted kNN accuracy %"),
    ("and-alone25", "weighted-nn", "the same without neighbors (instance discrimination alone)"),
)
RECIPE = next(iter(WAYS))
BOOSTED = ("LightGBM", "XGBoost", "CatBoost")
BASELINES = {  # softmax on the same network with the same data and length, which the papers compare with
    "ren2014-mnist-nca-log": "ren2014-mnist-softmax",
    "ren2014-cifar-nca-log": "ren2014-cifar-softmax",
    "hao2018-cifar10plus-e-ncm-p0.1": "hao2018-cifar10plus-softmax-p0.1",
    "hao2018-cifar100-e-ncm-p0.1": "hao2018-cifar100-softmax-p0.1",
}
HEADS = ("what", "printed", "ours", "softmax, same network", "seeds", "verdict")


def readme_rows(results: Path, link: str = "docs/papers") -> str:
    """A table of a few rows, marked like those of the pages, and the result on unseen classes."""
    cells = [cell for _, some in TABLES.values() for cell in some]
    shown = [next(cell for cell in cells if (cell.trial, cell.figure) == (trial, figure)) for trial, figure, _ in HEADLINE]
    found = [(*one, what) for one, (*_, what) in zip(verdicts(shown, results), HEADLINE, strict=True) if one[1].mean is not None]
    against = [replace(cell, trial=BASELINES[cell.trial]) for cell in shown if cell.trial in BASELINES]
    beside = {cell.trial: figure(cell, verdict) for cell, verdict in verdicts(against, results)}
    rows = (_row(*one, beside.get(BASELINES.get(one[0].trial or ""), "")) for one in found)
    lines = [line(HEADS), "|---|---:|---:|---:|---:|---|", *map(line, rows)]
    marks = f" {LEGEND}." if any(cell.after_test for cell, *_ in found) else ""
    lines += ["", f"± is the standard deviation over trainings.{marks} [One page per paper]({link}/index.md) has every figure and claim."]
    if words := readme_summary(verdicts(TABLES["lu2019"][1], results)):
        lines += ["", f"Unseen classes (Lu et al., 2019, table 1): {words} [The evidence]({link}/lu2019.md)."]
    return "\n".join(lines)


def readme_contests(results: Path, link: str = "docs/papers") -> str:
    """What was measured beside the papers: tables, encoders tuned for unseen classes and with few labels, images without labels."""
    return "\n".join([*_tables(results, link), *_tuning(results, link), *_texts(results, link), *_without_labels(results, link)])


def _tables(results: Path, link: str) -> list[str]:
    records = read_records(results / "tables")
    of = {method: mean(some) for method, some in ranks(records, MAIN).items() if some}
    fresh, tests = ranks(untouched(records), MAIN)[OURS], paired_tests(records, list(of))
    if not fresh or not set(BOOSTED) <= set(of):
        return []
    others = ", ".join(f"{name} {of[name]:.2f}" for name in ("CatBoost", "LightGBM", "XGBoost", "kNN"))
    won = ", ".join(f"{name} on {tests[name][0]} of {sum(tests[name][:3])}" for name in BOOSTED)
    return [
        f"- **Tables**: {len(records)} public sets, default settings, {len(of)} methods: mean rank {of[OURS]:.2f} (1 is the best;"
        f" {others}). Ahead of {won} (Wilcoxon with Holm's correction: p <= {max(tests[name][3] for name in BOOSTED):.2g})."
        f" The defaults were chosen on inner splits of {len(CHOSEN_ON)} of these sets; on the others the rank is {mean(fresh):.2f}."
        f"{_tuned_tables(records)} [Every set]({link}/tables.md)."
    ]


def _tuned_tables(records: Sequence[Mapping[str, Any]]) -> str:
    ranked, shared = shared_by_tuned(records)
    if not shared:
        return ""
    of = {name: mean(some) for name, some in ranks(shared, ranked).items()}
    others = sorted(ranked[1:], key=of.__getitem__)
    said = ", ".join(f"{name.partition(' (')[0]} {of[name]:.2f}" for name in others)
    nearest, (*_, p) = others[0], paired_tests(shared, ranked, ranked[0])[others[0]]
    short = nearest.partition(" (")[0]
    apart = "" if p < 0.05 else f"; not told apart from {short}, p = {p:.2f}"
    fresh = {name: mean(some) for name, some in ranks(untouched(shared), ranked).items() if some}
    on_others = f", on the others {fresh[ranked[0]]:.2f} and {short} {fresh[nearest]:.2f}" if fresh else ""
    each = f"Tuned, {ranked[0].partition('(')[2].rstrip(')')} each, {len(shared)} sets, {seeds_in_words(shared, ranked)} seeds"
    return f" {each}: {of[ranked[0]]:.2f} ({said}){on_others}{apart}."


def _tuning(results: Path, link: str) -> list[str]:
    if not (results / "tuning.json").exists():
        return []
    tuned = json.loads((results / "tuning.json").read_text(encoding="utf-8"))
    before = 100 * tuned["mobilenet-v2/untouched"]["scores"]["test"]["p@1"]
    found = [100 * run["scores"]["1"]["p@1"] for name, run in tuned.items() if name.startswith("mobilenet-v2/test/")]
    return [
        f"- **Photos of classes that training did not see**: MobileNetV2 tuned on the first 100 kinds of birds of CUB finds another image"
        f" of the same kind first for {mean(found):.1f} ± {stdev(found):.1f} % of the images of the other 100 kinds; untouched {before:.1f}"
        f" % ({len(found)} seeds). [How it was chosen]({link}/tuning.md)."
    ]


def _texts(results: Path, link: str) -> list[str]:
    if not (results / "texts.json").exists():
        return []
    saved = json.loads((results / "texts.json").read_text(encoding="utf-8"))
    counts, seeds = (8, 16, 64), (0, 1, 2)

    def accuracy(method: str) -> str:
        of = {labels: [saved[f"{labels}/{method}/{seed}"]["scores"]["accuracy"] for seed in seeds] for labels in counts}
        return ", ".join(f"{100 * mean(some):.1f}" for some in of.values())

    if any(f"{labels}/{method}/{seed}" not in saved for labels in counts for method in ("tuned", "SetFit") for seed in seeds):
        return []
    times = saved["64/SetFit/0"]["passes"] / saved["64/tuned/0"]["passes"]
    return [
        f"- **Texts with few labels**: all-MiniLM-L6-v2 tuned on {', '.join(map(str, counts))} texts of each of 20 newsgroups is right for"
        f" {accuracy('tuned')} % of the test texts; untouched {accuracy('frozen')}; SetFit, which passes {times:.1f} times as many texts"
        f" through the encoder, {accuracy('SetFit')} ({len(seeds)} seeds). [The protocol]({link}/texts.md)."
    ]


def figure(cell: Cell, verdict: Verdict) -> str:
    """Our figure with its spread, and the error by 1-NN where that is another figure."""
    ours = cell.text(verdict.mean) + ("" if verdict.spread is None else f" ± {cell.text(verdict.spread)}")
    return ours + ("" if verdict.extra is None else f"; by 1-NN: {cell.text(verdict.extra)}")


def _row(cell: Cell, verdict: Verdict, what: str, softmax: str) -> list[str]:
    mark = f" {AFTER_TEST}" if cell.after_test else ""
    state = verdict.word if cell.printed is None else verdict.state(cell)
    return [what + mark, cell.text(cell.printed), figure(cell, verdict), softmax, verdict.count, state]


def _without_labels(results: Path, link: str) -> list[str]:
    runs = {name: _runs(results, f"and-{name}", "weighted-nn") for name in ("recipe25", "goal25", "alone25")}
    if not all(runs.values()):
        return []
    found, rounds, apart = ((f"{_percent(some)} %", f"{len(some)} seeds") for some in runs.values())
    return [
        f"- **Color images without labels**: what `--for discovery` trains, a ResNet-18 with a teacher's neighbors as targets, is right by"
        f" weighted kNN for {found[0]} of the test images of CIFAR-10 after 25 million views ({found[1]}); after as many views discovery in"
        f" rounds for {rounds[0]} and instance discrimination for {apart[0]} ({apart[1]}). [Other data, where it is not always"
        f" ahead]({link}/huang2019.md), and [what makes neighbors teach]({link}/neighbor-targets.md)."
    ]


def ways_without_labels(results: Path) -> str:
    """A table of the ways to learn without labels, on all data that they were tried on."""
    ways = [(way, row) for way, (row, _) in WAYS.items()]
    lines = [
        line(("test images of", "", "views", *(row for _, row in ways), "raw pixels")),
        "|---|---|---:" + "|---:" * (len(ways) + 1) + "|",
    ]
    sets = {"CIFAR-10": ("cifar10", dict(zip(WAYS, ("recipe25", "goal25", "alone25"), strict=True)))}
    for short, (words, data, _, _) in ELSEWHERE.items():
        sets[words] = data, {**{way: f"{short}-by-{way}" for way in WAYS}, "raw": f"{short}-raw"}
    for words, (data, trials) in sets.items():
        if not (seen := _runs(results, f"and-{trials[RECIPE]}", "images")):
            continue
        views = f"{seen[0] / 1e8:.1f} M"  # runs have percent
        for voters, name in figures_of(data).items():
            found = [_runs(results, f"and-{trials[way]}", name) if way in trials else [] for way in (*WAYS, "raw")]
            lines.append(line((words, voters, views, *map(_percent, found))))
    return "\n".join(lines)


def _runs(results: Path, trial: str, name: str) -> list[float]:
    path = results / f"{trial}.json"
    runs = json.loads(path.read_text(encoding="utf-8"))["runs"] if path.exists() else []
    return [100 * run["figures"][name] for run in runs if name in run["figures"]]


def _percent(found: Sequence[float]) -> str:
    if not found:
        return ""
    return f"{mean(found):.1f}" + (f" ± {stdev(found):.1f}" if len(found) > 1 else "")
