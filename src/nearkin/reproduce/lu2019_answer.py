"""What [lu2019sampling] claims, settled by the runs, a paragraph for each question, whichever way they fell.

Is Prec@k ahead of every loss of table 1, all else being equal? Do the document's batches explain its printed lead? What is the best recipe?
Everything is told by P@1 of the test classes, but the recipe, which is chosen like all settings on held-out training classes.
"""

import math
import statistics
from collections.abc import Iterator, Mapping, Sequence

from nearkin.reproduce.cell import Cell
from nearkin.reproduce.contest import apart
from nearkin.reproduce.lu2019 import BATCHES, MARGINS, OTHERS, OURS, SETS, TABLE_1, WITH_VECTORS, Loss
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
PRETRAINED, SCRATCH = "cub", ("cifar", "omniglot")  # data sets with weights, and without: the first of them lends its settings
NAMED = 3  # rivals that a sentence names
EXPLAINED = "the batches explain the lead"
Rows = Sequence[tuple[Cell, Verdict]]
Found = Mapping[str, Verdict]  # P@1 of the rows of a data set, by batches and name


def answer(rows: Rows) -> list[str]:
    """Paragraphs, and items of lists ("- ..."), in order; nothing before there is anything to tell."""
    sets = by_set(rows)
    asked = " ".join(_ahead(sets))  # one paragraph: the question that the tables are there for
    first = [*([f"By P@1 of the test classes. {asked}"] if asked else []), *_with_vectors(sets), *_above_floors(rows, sets)]
    return [*first, _seeds(sets), *_explained(sets), *_recommended(sets)] if first else []


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
    seeds = str(few) if few == many else f"{few} to {many}"
    return f"Every trained row that is compared here has {seeds} seeds; a floor without chance has one."


def _held_out(sets: Mapping[str, Found], name: str) -> float:
    return statistics.fmean(found[name].held_out or 0.0 for found in sets.values())


def _ahead(sets: Mapping[str, Found]) -> Iterator[str]:
    """Either form of Prec@5 against table 1, with equal batches."""
    for champion, form in CHAMPIONS.items():
        told, won, lost, missing = [], [], False, False
        for data, found in sets.items():
            rivals = {loss.row: found[f"11-{name}"] for name, loss in TABLE_1.items() if f"11-{name}" in found}
            if f"11-{champion}" not in found or not rivals:
                continue
            signs = [apart(found[f"11-{champion}"], one) for one in rivals.values()]
            told.append(_standing(found[f"11-{champion}"], rivals, title(data)))
            missing |= len(rivals) < len(TABLE_1)
            won += [title(data)] if min(signs) > 0 else []
            lost |= min(signs) < 0
        if told:
            none = "No" if lost else "Not shown: none is above it, but some cannot be told apart from it"
            word = "Yes" if len(won) == len(told) else f"Only on {' and '.join(won)}" if won else none
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


def _listed(told: Sequence[str]) -> list[str]:
    return [f"- {one}" for one in told]


def _with_vectors(sets: Mapping[str, Found]) -> Iterator[str]:
    """Losses with class vectors, given the batches that suit them."""
    told = []
    for data, found in sets.items():
        rivals = {loss.row: found[f"any-{name}"] for name, loss in WITH_VECTORS.items() if f"any-{name}" in found}
        if RELEASED in found and rivals:
            told.append(_standing(found[RELEASED], rivals, title(data)))
    if told:
        yield "Against losses with class vectors that are given uniform batches, Prec@5 as released stands so:"
        yield from _listed(told)


def _above_floors(rows: Rows, sets: Mapping[str, Found]) -> Iterator[str]:
    """Whether learning was worth it: all single models against what there was before."""
    floors = {cell.trial: (cell.row, one) for cell, one in rows if cell.column == HEADLINE and one.mean is not None}
    told = []
    for data, found in sets.items():
        for kind in ("pretrained", "projected") if SETS[data].pretrained else ("pixels",):
            if (trial := f"lu2019-{data}-floor-{kind}") in floors:
                row, floor = floors[trial]
                signs = [apart(one, floor) for one in found.values()]
                among = f"{signs.count(1)} of {len(signs)} are above that, {signs.count(-1)} below, {signs.count(0)} not told apart"
                told.append(f"{title(data)}: {row} has {floor.mean:.1f}; {among}.")
    if told:
        yield "Was learning worth it? All single models of the three protocols against what was there before:"
        yield from _listed(told)


def _explained(sets: Mapping[str, Found]) -> Iterator[str]:
    """The lead of Prec@5 as released over the losses of table 1, under the document's batches and under equal ones."""
    told, words = list[str](), list[str]()
    for data, found in sets.items():
        names = [name for name in TABLE_1 if f"11-{name}" in found and f"2-{name}" in found]
        if RELEASED in found and names:
            lead, word = _lead(found, names, title(data))
            rows = {TABLE_1[name].row: found[f"2-{name}"] for name in names}
            told += [lead, _standing(found[RELEASED], rows, f"{title(data)}, under the document's batches")]
            words.append(word)
    if told:
        rivals = sorted(PRINTED["cub"][name][0] for name in TABLE_1)
        own = PRINTED["cub"]["prec5-released"][0]
        short = "Yes" if set(words) == {EXPLAINED} else "No" if EXPLAINED not in words else "Not everywhere"
        yield (
            f"**Do the document's batches explain its lead? {short}.** In print, on {title('cub')}, Prec@5 is "
            f"{own - rivals[len(rivals) // 2]:.1f} points above the middle one of the {len(rivals)} losses of table 1 and "
            f"{own - rivals[-1]:.1f} above the strongest. The middle one, because losses that hardly learn would draw a mean down. "
            "The document's network, its image size and its choice of the best look at the test classes are not imitated."
        )
        yield from _listed(told)


def _lead(found: Found, names: Sequence[str], where: str) -> tuple[str, str]:
    """A sentence, and what the leads come to."""
    own = found[RELEASED]
    order = {batches: sorted((found[f"{batches}-{name}"] for name in names), key=_known) for batches in ("2", "11")}
    middle = {batches: some[len(some) // 2] for batches, some in order.items()}
    leads = {batches: _gap(own, one) for batches, one in middle.items()}
    told = [
        f"{lead:+.1f} ± {within:.1f} points ({_known(own) - _known(order[batches][-1]):+.1f}) where they have {BATCHES[batches]}"
        for batches, (lead, within) in leads.items()
    ]
    moved = _gap(middle["11"], middle["2"])
    word = _word(leads["2"], leads["11"], moved)
    share = f"11 instead of 2 change the middle one by {moved[0]:+.1f} ± {moved[1]:.1f}"
    return f"{where}: its lead over the middle one of {len(names)} (over the strongest) is {' and '.join(told)}; {share}: {word}.", word


def _known(one: Verdict) -> float:
    assert one.mean is not None
    return one.mean


def _gap(one: Verdict, other: Verdict) -> tuple[float, float]:
    """By how much the first is above the other, and the margin of that."""
    return _known(one) - _known(other), math.hypot(one.margin, other.margin)


def _word(document: tuple[float, float], equal: tuple[float, float], moved: tuple[float, float]) -> str:
    """What the leads under the document's batches and under equal ones, and what the batches alone change, come to."""
    theirs, ours, batches = (value > margin for value, margin in (document, equal, moved))
    if not theirs:
        return "under the document's batches there is no lead to explain" + (", and with equal ones there is" if ours else "")
    if ours:
        more = ", and the batches add to it" if batches else ", and is larger than with the document's" if moved[0] < -moved[1] else ""
        return "the lead stays with equal batches" + more
    return EXPLAINED if batches else "with equal batches it is gone, though what batches change is within its margin"


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
        f"{said(second)}. `nearkin train DATA --for retrieval` uses it. On the test classes, which had no say in it, against all other "
        "single models of the three protocols:"
    )
    yield from _listed(told)
