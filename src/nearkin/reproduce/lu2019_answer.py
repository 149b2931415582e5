"""What [lu2019sampling] claims, settled by the runs, a paragraph for each question, whichever way they fell.

Is Prec@k ahead of every loss of table 1, all else being equal? Do the document's batches explain its printed lead? What is the best recipe?
Everything is told by P@1 of the test classes, but the recipe, which is chosen like all settings on held-out training classes.
"""

import math
import statistics
from collections.abc import Iterator, Mapping, Sequence

from nearkin.reproduce.cell import Cell
from nearkin.reproduce.contest import apart
from nearkin.reproduce.lu2019 import MARGINS, OTHERS, OURS, SETS, TABLE_1, WITH_VECTORS, Loss
from nearkin.reproduce.lu2019_printed import PRINTED
from nearkin.reproduce.verdict import Verdict

HEADLINE = "P@1"
CHAMPIONS = {"prec5-printed": "as printed", "prec5-released": "as released"}
RELEASED = "11-prec5-released"
SINGLE: Mapping[str, Loss] = {
    **{f"11-{name}": loss for name, loss in {**TABLE_1, **OURS, **MARGINS, **OTHERS}.items()},
    **{f"any-{name}": loss for name, loss in WITH_VECTORS.items()},
    **{f"2-{name}": loss for name, loss in TABLE_1.items()},
}  # every row that is one trained model, by its batches and its name
BATCHES = {"11": "11 images a class", "any": "uniform batches", "2": "2 images a class"}
PRETRAINED, SCRATCH = "cub", ("cifar", "omniglot")  # data sets with weights, and without: the first of them lends its settings
NAMED = 3  # rivals that a sentence names
Rows = Sequence[tuple[Cell, Verdict]]
Found = Mapping[str, Verdict]  # P@1 of the rows of a data set, by batches and name


def answer(rows: Rows) -> list[str]:
    """Paragraphs with an empty line after each; nothing before there is anything to tell."""
    sets = by_set(rows)
    first = " ".join([*_ahead(sets), *_with_vectors(sets), *_above_floors(rows, sets)])
    if not first:
        return []
    parts = [f"{first} {_seeds(sets)}", *_explained(sets), *_recommended(sets)]
    return [line for part in parts for line in (part, "")]


def by_set(rows: Rows) -> dict[str, Found]:
    """P@1 of every single model that was run, by data set."""
    known = {cell.trial: verdict for cell, verdict in rows if cell.column == HEADLINE and verdict.mean is not None}
    found = {data: {name: known[trial] for name in SINGLE if (trial := f"lu2019-{data}-{name}") in known} for data in SETS}
    return {data: some for data, some in found.items() if some}


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


def title(data: str) -> str:
    """A data set's name alone."""
    return SETS[data].title.partition(" at ")[0]


def said(name: str) -> str:
    """A row and its batches, in words."""
    return f"{SINGLE[name].row} with {BATCHES[name.partition('-')[0]]}"


def _seeds(sets: Mapping[str, Found]) -> str:
    counts = [one.seeds for found in sets.values() for one in found.values()]
    few, many = min(counts), max(counts)
    return f"Every row that is compared here has {few if few == many else f'{few} to {many}'} seeds."


def _held_out(sets: Mapping[str, Found], name: str) -> float:
    return statistics.fmean(found[name].held_out or 0.0 for found in sets.values())


def _ahead(sets: Mapping[str, Found]) -> Iterator[str]:
    """Either form of Prec@5 against table 1, with equal batches."""
    for champion, form in CHAMPIONS.items():
        told, won, missing = [], [], False
        for data, found in sets.items():
            rivals = {loss.row: found[f"11-{name}"] for name, loss in TABLE_1.items() if f"11-{name}" in found}
            if f"11-{champion}" not in found or not rivals:
                continue
            told.append(_standing(found[f"11-{champion}"], rivals, title(data)))
            missing |= len(rivals) < len(TABLE_1)
            won += [title(data)] if all(apart(found[f"11-{champion}"], one) > 0 for one in rivals.values()) else []
        if told:
            word = "Yes" if len(won) == len(told) else f"Only on {' and '.join(won)}" if won else "No"
            word += ", as far as they were run" if won and missing else ""
            yield f"**Is Prec@5 {form} ahead of every loss of table 1, all else being equal? {word}.** {' '.join(told)}"


def _standing(own: Verdict, rivals: Mapping[str, Verdict], where: str) -> str:
    """A sentence: how many are behind, ahead (the first few by name), and not to be told apart."""
    signs = {row: apart(own, one) for row, one in rivals.items()}
    ahead = sorted((row for row, sign in signs.items() if sign < 0), key=lambda row: -(rivals[row].mean or 0.0))
    behind, level = (list(signs.values()).count(sign) for sign in (1, 0))
    named = [f"{row} {rivals[row].mean:.1f}" for row in ahead[:NAMED]]
    names = f" ({', '.join(named)}{', ...' if len(ahead) > NAMED else ''})" if ahead else ""
    counted = f"{behind} of {len(rivals)} are below it, {len(ahead)} above{names}, {level} not told apart"
    return f"{where}: {own.mean:.1f} ± {own.margin:.1f}, {counted}."


def _with_vectors(sets: Mapping[str, Found]) -> Iterator[str]:
    """Losses with class vectors, given the batches that suit them."""
    told = []
    for data, found in sets.items():
        rivals = {loss.row: found[f"any-{name}"] for name, loss in WITH_VECTORS.items() if f"any-{name}" in found}
        if RELEASED in found and rivals:
            told.append(_standing(found[RELEASED], rivals, title(data)))
    if told:
        yield f"Against losses with class vectors that are given uniform batches, Prec@5 as released stands so: {' '.join(told)}"


def _above_floors(rows: Rows, sets: Mapping[str, Found]) -> Iterator[str]:
    """Whether learning was worth it: all single models against what there was before."""
    floors = {cell.trial: (cell.row, one) for cell, one in rows if cell.column == HEADLINE and one.mean is not None}
    for data, found in sets.items():
        kind = "pretrained" if SETS[data].pretrained else "pixels"
        if (trial := f"lu2019-{data}-floor-{kind}") in floors:
            row, floor = floors[trial]
            signs = [apart(one, floor) for one in found.values()]
            among = f"of all {len(signs)} single models of the three protocols {signs.count(1)} are above that, {signs.count(-1)} below"
            yield f"{row} has {floor.mean:.1f} on {title(data)}: {among}."


def _explained(sets: Mapping[str, Found]) -> Iterator[str]:
    """The lead of Prec@5 as released over the mean of table 1, under the document's batches and under equal ones."""
    told = []
    for data, found in sets.items():
        names = [name for name in TABLE_1 if f"11-{name}" in found and f"2-{name}" in found]
        if RELEASED in found and names:
            told.append(_lead(found, names, title(data)))
    if told:
        rivals = [PRINTED["cub"][name][0] for name in TABLE_1]
        own = PRINTED["cub"]["prec5-released"][0]
        yield (
            f"**Do the document's batches explain its lead?** In print, on {title('cub')}, Prec@5 is "
            f"{own - statistics.fmean(rivals):.1f} points above the mean of the {len(rivals)} losses of table 1 and "
            f"{own - max(rivals):.1f} above the strongest. {' '.join(told)} "
            "Its network, its image size and its choice of the best look at the test classes are not imitated."
        )


def _lead(found: Found, names: Sequence[str], where: str) -> str:
    own = found[RELEASED]
    theirs = {batches: _mean([found[f"{batches}-{name}"] for name in names]) for batches in ("2", "11")}
    assert own.mean is not None
    leads = {batches: (own.mean - mean, math.hypot(own.margin, margin)) for batches, (mean, margin) in theirs.items()}
    moved, margin = theirs["11"][0] - theirs["2"][0], math.hypot(theirs["11"][1], theirs["2"][1])
    strongest = {batches: max(found[f"{batches}-{name}"].mean or 0.0 for name in names) for batches in leads}
    told = [
        f"{lead:+.1f} ± {within:.1f} points ({own.mean - strongest[batches]:+.1f}) where they have {BATCHES[batches]}"
        for batches, (lead, within) in leads.items()
    ]
    share = f"11 instead of 2 change their mean by {moved:+.1f} ± {margin:.1f}"
    word = _word(leads["2"], leads["11"], (moved, margin))
    return f"{where}: its lead over the mean of {len(names)} (over the strongest) is {' and '.join(told)}; {share}: {word}."


def _mean(some: Sequence[Verdict]) -> tuple[float, float]:
    """Of several rows, and its margin, as if each had a test part of its own."""
    return statistics.fmean(one.mean or 0.0 for one in some), math.hypot(*(one.margin for one in some)) / len(some)


def _word(document: tuple[float, float], equal: tuple[float, float], moved: tuple[float, float]) -> str:
    """What the leads under the document's batches and under equal ones, and what the batches alone change, come to."""
    theirs, ours, batches = (value > margin for value, margin in (document, equal, moved))
    if not theirs:
        return "under the document's batches there is no lead to explain" + (", and with equal ones there is" if ours else "")
    if ours:
        return "the lead stays with equal batches" + (", and the batches add to it" if batches else "")
    return "the batches explain the lead" if batches else "with equal batches it is gone, though what batches change is within its margin"


def _recommended(all_sets: Mapping[str, Found]) -> Iterator[str]:
    sets = counted(all_sets)
    if not enough(sets):
        return
    order = ranked(sets)
    first, second = order[:2]
    told = []
    for data, found in sets.items():
        others = {said(name): one for name, one in found.items() if name != first}
        told.append(_standing(found[first], others, title(data)))
    where = ", ".join(title(data) for data in sets)
    yield (
        f"**What is the best recipe?** {said(first)}: of the {len(order)} rows that were tuned on all of {where} it has the highest P@1 on "
        f"held-out training classes, {100 * _held_out(sets, first):.1f} on average; {100 * _held_out(sets, second):.1f} has the next, "
        f"{said(second)}. On the test classes, which had no say in it, against all other single models of the three protocols: "
        f"{' '.join(told)} `nearkin train DATA --for retrieval` uses it."
    )
