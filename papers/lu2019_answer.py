"""What [lu2019sampling] claims, settled by the runs, a paragraph for each question, whichever way they fell.

Is Prec@k ahead of every loss of table 1, all else being equal? Would longer trainings answer otherwise? What is the best recipe? Do the
document's batches explain its printed lead? Was learning worth it? Everything is told by P@1 of the test classes, but the recipe, which is
chosen like all settings on held-out training classes.
"""

import statistics
from collections.abc import Iterator, Mapping

from papers.contest import apart
from papers.lu2019 import SETS
from papers.lu2019_batches import explained
from papers.lu2019_longer import longer
from papers.lu2019_question import question
from papers.lu2019_rows import HEADLINE, SINGLE, Found, Rows, by_set, listed, said, standing, title, with_margin

PRETRAINED, SCRATCH = "cub", ("cifar", "omniglot")  # data sets with weights, and without: the first of them lends its settings


def answer(rows: Rows) -> list[str]:
    """Paragraphs, items of lists ("- ...") and lines of tables ("| ..."), in order; nothing before there is anything to tell."""
    sets = by_set(rows)
    asked = [*question(rows, sets)]
    return [*asked, *(longer(rows, sets) if asked else ()), *_recommended(sets), *explained(sets), *_above_floors(rows, sets)]


def counted(sets: Mapping[str, Found]) -> dict[str, Found]:
    """The data sets that have a say in the recipe: those of which half the rows or more are tuned, so that a run cut short has none."""
    tuned = {data: {name: one for name, one in found.items() if one.held_out is not None} for data, found in sets.items()}
    return {data: some for data, some in tuned.items() if len(some) >= len(SINGLE) / 2}


def ranked(sets: Mapping[str, Found]) -> list[str]:
    """The rows that were tuned on every one of these data sets, by batches and name: the best on held-out training classes first."""
    shared = [name for name in SINGLE if sets and all(name in found for found in sets.values())]
    return sorted(shared, key=lambda name: -_held_out(sets, name))


def enough(sets: Mapping[str, Found]) -> bool:
    """Whether a recipe can be made: all data sets have a say, and there is something to choose from."""
    return all(data in sets for data in (PRETRAINED, *SCRATCH)) and len(ranked(sets)) > 1


def _held_out(sets: Mapping[str, Found], name: str) -> float:
    return statistics.fmean(found[name].held_out or 0.0 for found in sets.values())


def _above_floors(rows: Rows, sets: Mapping[str, Found]) -> Iterator[str]:
    """Whether learning was worth it: all single models against what there was before."""
    floors = {cell.trial: (cell.row, one) for cell, one in rows if cell.column == HEADLINE and one.mean is not None}
    told = []
    for data, found in sets.items():
        for kind in ("pretrained", "projected") if SETS[data].pretrained else ("pixels",):
            if (trial := f"lu2019-{data}-floor-{kind}") in floors:
                row, floor = floors[trial]
                signs = [apart(one, floor) for one in found.values()]
                among = f"{signs.count(1)} above it, {signs.count(-1)} below, {signs.count(0)} not told apart"
                told.append(f"{title(data)}: {row}: {floor.mean:.1f}; of {len(signs)} models {among}.")
    if told:
        yield "**Was learning worth it?** All single models of the three protocols against what was there before:"
        yield from listed(told)


def _recommended(all_sets: Mapping[str, Found]) -> Iterator[str]:
    sets = counted(all_sets)
    if not enough(sets):
        return
    order = ranked(sets)
    first, second = order[:2]
    told = []
    for data, found in sets.items():
        others = {said(name): one for name, one in found.items() if name != first}
        told.append(f"{title(data)}: {with_margin(found[first])}; {standing(found[first], others)}.")
    where = ", ".join(title(data) for data in sets)
    yield (
        f"**What is the best recipe?** {said(first)}: of the {len(order)} rows that were tuned on all of {where} it has the highest P@1 on "
        f"held-out training classes, {100 * _held_out(sets, first):.1f} on average (one run each, so without a margin); "
        f"{100 * _held_out(sets, second):.1f} has the next, {said(second)}. `nearkin train DATA --for retrieval` uses it. On the test "
        "classes, which had no say in it, against all other single models of the three protocols:"
    )
    yield from listed(told)
