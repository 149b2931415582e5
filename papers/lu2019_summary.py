"""What the runs say about the claims of [lu2019sampling]: one paragraph per question, generated from the runs.

Is Prec@k ahead of every loss of table 1, all else being equal? Does longer training change that? Which recipe is best? Do the paper's
batches explain its printed lead? Are trained models above the floors? All of it is by P@1 of the test classes, except the recipe, which
is selected like all settings on held-out training classes.
"""

import re
import statistics
from collections.abc import Iterator, Mapping

from papers.comparison import order
from papers.lu2019_batches import explained
from papers.lu2019_lead import lead
from papers.lu2019_longer import longer
from papers.lu2019_rows import HEADLINE, SINGLE, Found, Rows, by_set, items, rank, title, with_batches, with_margin
from papers.lu2019_trials import SETS

PRETRAINED, SCRATCH = "cub", ("cifar", "omniglot")  # data sets with pretrained weights, and without: the first of those gives its settings


def summary(rows: Rows) -> list[str]:
    """Paragraphs, items of lists ("- ...") and lines of tables ("| ..."), in order; nothing before there are runs."""
    sets = by_set(rows)
    first = [*lead(rows, sets)]
    return [*first, *(longer(rows, sets) if first else ()), *_recommended(sets), *explained(sets), *_above_floors(rows, sets)]


def readme_summary(rows: Rows) -> str:
    """The result in one or two sentences: the first paragraph's bold question and place, and that of longer trainings."""
    short = [
        found[0]
        for one in summary(rows)
        for form in (r"\*\*Does optimizing.+?\*\* .+?\.(?= )", r"\*\*Does longer[^:*]+")
        if (found := re.match(form, one))
    ]
    return f"{short[0]} {short[1].removeprefix('**')}." if len(short) > 1 else "".join(short)


def counted(sets: Mapping[str, Found]) -> dict[str, Found]:
    """The data sets that count for the recipe: those with half their rows or more tuned."""
    tuned = {data: {name: one for name, one in found.items() if one.held_out is not None} for data, found in sets.items()}
    return {data: some for data, some in tuned.items() if len(some) >= len(SINGLE) / 2}


def ranked(sets: Mapping[str, Found]) -> list[str]:
    """The rows that were tuned on every one of these data sets, by batches and name: the best on held-out training classes first."""
    shared = [name for name in SINGLE if sets and all(name in found for found in sets.values())]
    return sorted(shared, key=lambda name: -_held_out(sets, name))


def enough(sets: Mapping[str, Found]) -> bool:
    """Whether a recipe can be selected: all data sets count, and there are two rows or more."""
    return all(data in sets for data in (PRETRAINED, *SCRATCH)) and len(ranked(sets)) > 1


def _held_out(sets: Mapping[str, Found], name: str) -> float:
    return statistics.fmean(found[name].held_out or 0.0 for found in sets.values())


def _above_floors(rows: Rows, sets: Mapping[str, Found]) -> Iterator[str]:
    """All single models against the features without any training of ours."""
    floors = {cell.trial: (cell.row, one) for cell, one in rows if cell.column == HEADLINE and one.mean is not None}
    found_floors = []
    for data, found in sets.items():
        for kind in ("pretrained", "projected") if SETS[data].pretrained else ("pixels",):
            if (trial := f"lu2019-{data}-floor-{kind}") in floors:
                row, floor = floors[trial]
                signs = [order(one, floor) for one in found.values()]
                among = f"{signs.count(1)} above it, {signs.count(-1)} below, {signs.count(0)} not told apart"
                found_floors.append(f"{title(data)}: {row}: {floor.mean:.1f}; of {len(signs)} models {among}.")
    if found_floors:
        yield "**Are the trained models above the floors?** All single models of the three protocols:"
        yield from items(found_floors)


def _recommended(all_sets: Mapping[str, Found]) -> Iterator[str]:
    sets = counted(all_sets)
    if not enough(sets):
        return
    ranking = ranked(sets)
    first, second = ranking[:2]
    lines = []
    for data, found in sets.items():
        others = {with_batches(name): one for name, one in found.items() if name != first}
        lines.append(f"{title(data)}: {with_margin(found[first])}; {rank(found[first], others)}.")
    where = ", ".join(title(data) for data in sets)
    yield (
        f"**Which recipe is best?** {with_batches(first)}: of the {len(ranking)} rows that were tuned on all of {where} it has the highest "
        f"P@1 on held-out training classes, {100 * _held_out(sets, first):.1f} on average (one run each, so without a margin). The next, "
        f"{with_batches(second)}, has {100 * _held_out(sets, second):.1f}. `nearkin train DATA --for retrieval` uses it. On the test "
        "classes, which had no part in that selection, against all other single models of the three protocols:"
    )
    yield from items(lines)
