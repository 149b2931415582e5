"""Does optimizing Prec@k beat the other losses of [lu2019sampling], all else being equal? Generated from the runs, whatever they say.

Further paragraphs cover its other forms, losses with class vectors, and what the result rests on: seeds, and rates at the edge of what
was tuned. `lu2019_longer` covers longer trainings.
"""

import math
from collections.abc import Iterator, Mapping, Sequence

from papers.cell import AFTER_TEST
from papers.claim import HEADS, Outcome, line
from papers.comparison import COLUMNS_COMPARED, order
from papers.lu2019 import ACTIVE
from papers.lu2019 import AFTER_TEST as CHANGED
from papers.lu2019_rows import SINGLE, Found, Rows, best_first, by_set, by_trial, known, title, with_margin
from papers.lu2019_trials import MARGINS, NOT_RUN, OURS, SETS, TABLE_1, WITH_VECTORS

FORMS = {"prec5-printed": "as printed", "prec5-released": "as released"}
EQUAL = (
    "Figures are P@1 of the test classes in percent; network, batches, augmentation, iterations, optimizer and number of tuning runs are "
    "the same for all."
)
QUESTION = "Does optimizing Prec@k beat every loss of table 1, all else being equal?"
CLAIM = "Prec@5 beats every loss of table 1 (table 1; here with equal batches for all)"
K = 5
STUCK = 0.999  # share of misplaced neighbors; a random embedding, with the margin added to negatives, has some 0.994
FLOORS = {True: ("pretrained", "the pretrained network untouched is"), False: ("pixels", "raw pixels are")}  # by whether it is pretrained
Signs = Mapping[str, Mapping[str, int]]  # by form and baseline: 1 where Prec@k is above, -1 where it is below


def claim_outcomes(rows: Rows) -> list[tuple[str, str, Outcome]]:
    """The claim for every data set and form: data set, label, and outcome, with the lead over the strongest loss."""
    sets, found = by_set(rows), list[tuple[str, str, Outcome]]()
    printed = {cell.trial: cell.printed for cell, _ in rows if cell.column == "P@1" and cell.printed is not None}
    for data in SETS:
        theirs = [printed.get(f"lu2019-{data}-2-{name}", printed.get(f"lu2019-{data}-11-{name}")) for name in TABLE_1]
        own = printed.get(f"lu2019-{data}-11-prec5-released")
        lead = None if own is None or None in theirs else own - max(value for value in theirs if value is not None)
        for form, label in FORMS.items():
            name = f"{title(data)}, {label}: Prec@5 minus the strongest loss, P@1"
            shown = lead if form == "prec5-released" else None
            found.append((data, name, _outcome(sets.get(data, {}), form, shown)))
    return found


def _outcome(found: Found, form: str, printed: float | None) -> Outcome:
    """Holds where Prec@k is above all others, does not hold where any is above it."""
    own, others = found.get(f"11-{form}"), {name: found[f"11-{name}"] for name in TABLE_1 if f"11-{name}" in found}
    if own is None or not others:
        return Outcome("not run", printed=printed)
    signs = [order(own, one) for one in others.values()]
    strongest = max(others.values(), key=known)
    spreads = [one.spread for one in (own, strongest) if one.spread is not None]
    return Outcome(
        "holds" if min(signs) > 0 else "does not hold" if min(signs) < 0 else "not told apart",
        known(own) - known(strongest),
        math.hypot(own.margin, strongest.margin),
        printed,
        max(spreads, default=None),
        min(own.seeds, strongest.seeds),
        own.selection,
    )


def claim_lines(rows: Rows) -> list[str]:
    """The claim as lines of the table of claims."""
    lines = []
    for number, (data, label, one) in enumerate(claim_outcomes(rows)):
        printed, ours = ("" if value is None else f"{value:+.2f}" for value in (one.printed, one.ours))
        margin, spread = ("" if value is None or one.ours is None else f"{value:.2f}" for value in (one.margin, one.spread))
        settings = f"{one.settings} {AFTER_TEST}" if one.settings and data in CHANGED else one.settings
        word = f"{one.word}: the data are not at hand" if data in NOT_RUN and one.ours is None else one.word
        lines.append(line([CLAIM if number == 0 else "", label, printed, ours, margin, spread, str(one.seeds or ""), settings, word]))
    return [line(HEADS), "|" + "---|" * len(HEADS), *lines, ""]


def lead(rows: Rows, sets: Mapping[str, Found]) -> Iterator[str]:
    """The result, other forms and losses, and what it rests on; nothing before a form of Prec@k and a loss of table 1 were run."""
    met = {data: signs for data, found in sets.items() if (signs := _signs(found, [*TABLE_1]))}
    if met:
        first = f"**{QUESTION} {_word(met)}.** {_places(met)} {EQUAL} {_lengths(met)}"
        yield " ".join([first, *(_on(data, sets[data], signs, rows) for data, signs in met.items()), *_by_other_columns(rows)])
        more = [*_other_forms(sets), *_with_vectors(sets)]
        if more:
            yield " ".join(["**Do its other forms, or losses with class vectors, change that?**", *more])
        yield " ".join(["**What does that rest on?**", _seeds(sets), *_rates(sets)])


def _signs(found: Found, baselines: list[str], batches: str = "11", forms: Mapping[str, str] = FORMS) -> Signs:
    """Every form that was run against the baselines that were."""
    run = [f"{batches}-{name}" for name in baselines if f"{batches}-{name}" in found]
    own = {form: found[f"11-{form}"] for form in forms if f"11-{form}" in found}
    return {form: {name: order(one, found[name]) for name in run} for form, one in own.items()} if run else {}


def _ahead(signs: Mapping[str, int]) -> bool:
    return min(signs.values()) > 0


def _word(met: Mapping[str, Signs]) -> str:
    """Yes, only on some data sets, no, or not shown."""
    won = {form: [data for data, signs in met.items() if form in signs and _ahead(signs[form])] for form in FORMS}
    partly = any(len(some) < len(TABLE_1) for signs in met.values() for some in signs.values())
    cut = ", as far as they were run" if partly else ""
    if all(_ahead(some) for signs in met.values() for some in signs.values()):
        return f"Yes{cut}"
    if any(won.values()):
        where = [f"{FORMS[form]} on {' and '.join(map(title, some))}" for form, some in won.items() if some]
        return f"Only {', and '.join(where)}{cut}"
    lost = {data: any(min(some.values()) < 0 for some in signs.values()) for data, signs in met.items()}
    if not any(lost.values()):
        return "Not shown: none is above it, but some cannot be told apart from it"
    shown, level = ([title(data) for data, sign in lost.items() if sign is which] for which in (True, False))
    return f"Not shown on {' and '.join(level)}, no on {' and '.join(shown)}" if level else "No, on no data set"


def _places(met: Mapping[str, Signs]) -> str:
    """Its place on every data set, in a sentence."""
    places = []
    for data, signs in met.items():
        every = [list(some.values()) for some in signs.values()]
        if all(min(some) >= 0 for some in every):
            place = "ahead of all" if all(min(some) > 0 for some in every) else "among the best"
        else:
            place = f"behind {'most' if all(some.count(-1) > len(some) / 2 for some in every) else 'some'} of them"
        places.append(f"{place} on {title(data)}")
    return f"It is {', '.join(places)}."


def _lengths(met: Mapping[str, Signs]) -> str:
    lengths = [f"{int(SETS[data].settings['iterations']):,} on {title(data)}" for data in met]
    return f"Iterations: {', '.join(lengths)}; longer trainings are covered below."


def _by_other_columns(rows: Rows) -> Iterator[str]:
    """P@1 is the headline of the paper; Prec@5 is closer to P@5."""
    counted = []
    for column in COLUMNS_COMPARED[1:]:
        met = {data: _signs(found, [*TABLE_1]) for data, found in by_set(rows, column).items()}
        above = {data: [list(some.values()).count(-1) for some in signs.values()] for data, signs in met.items() if signs}
        if above:
            counted.append(f"by {column} {', '.join(f'{_numbers(counts)} on {title(data)}' for data, counts in above.items())}")
    if counted:
        yield f"Of the {len(TABLE_1)} losses, above it are {'; '.join(counted)}."


def _on(data: str, found: Found, signs: Signs, rows: Rows) -> str:
    """A sentence on a data set: its figures, how many losses are above it and level with it, and the floor."""
    figures = " and ".join(f"{with_margin(found[f'11-{form}'])} {FORMS[form]}" for form in signs)
    above_any = {SINGLE[name].row: found[name] for some in signs.values() for name, sign in some.items() if sign < 0}
    names = f" ({best_first(above_any)})" if above_any else ""
    above, level = ([list(some.values()).count(sign) for some in signs.values()] for sign in (-1, 0))
    count = len(next(iter(signs.values())))
    parts = [f"{_numbers(above)} of {count} {_are(above)} above it{names}"]
    higher = [
        sum(sign == 0 and known(found[name]) > known(found[f"11-{form}"]) for name, sign in some.items()) for form, some in signs.items()
    ]
    parts += [f"{_numbers(level)} {_are(level)} not told apart from it ({_numbers(higher)} with a higher mean)"] if any(level) else []
    if not any(above) and not any(level):
        parts = [f"all {count} are below it"]
    start = "from pretrained weights" if SETS[data].pretrained else "from scratch"
    text = ", ".join([*parts, *_not_above_floor(data, found, signs, rows)])
    return f"On {title(data)}, {start}, it has {figures}: {text}.{_stuck(data, signs, rows)}"


def _numbers(counts: Sequence[int]) -> str:
    """One number for each form, or a single one where they agree."""
    return " and ".join(str(count) if count else "none" for count in dict.fromkeys(counts))


def _are(counts: Sequence[int]) -> str:
    return "is" if set(counts) <= {0, 1} and len(set(counts)) == 1 else "are"


def _not_above_floor(data: str, found: Found, signs: Signs, rows: Rows) -> list[str]:
    """Where no form of it is above the features without any training of ours."""
    kind, words = FLOORS[SETS[data].pretrained]
    floor = by_trial(rows).get(f"lu2019-{data}-floor-{kind}")
    if floor is None:
        return []
    against = [order(found[f"11-{form}"], floor) for form in signs]
    if max(against) > 0:
        return []
    return [f"and {words} {'above it, too' if max(against) < 0 else 'not told apart from it'} ({known(floor):.1f})"]


def _stuck(data: str, signs: Signs, rows: Rows) -> str:
    """What the count of misplaced neighbors says about a training that stays collapsed."""
    active = by_set(rows, ACTIVE).get(data, {})
    places = K * int(SETS[data].settings["batch_size"])
    shares = [known(active[f"11-{form}"]) / places for form in signs if f"11-{form}" in active]
    if not shares or min(shares) < STUCK:
        return ""
    return (
        f" There at least {math.floor(1000 * min(shares)) / 10:.1f} % of the {K} nearest in a batch (with the margin added to negatives) "
        "were misplaced throughout the training, as in a collapsed embedding."
    )


def _other_forms(sets: Mapping[str, Found]) -> Iterator[str]:
    """Other k, terms, margins and a memory."""
    others = {name: loss.row for name, loss in {**OURS, **MARGINS}.items() if name not in FORMS}
    met = {data: _signs(found, [*TABLE_1], forms=others) for data, found in sets.items()}
    run = {form for signs in met.values() for form in signs}
    won = [f"{others[form]} on {title(data)}" for data, signs in met.items() for form, some in signs.items() if _ahead(some)]
    if run:
        first = f"Of its {len(run)} other forms (other k, terms and margins, a memory)"
        yield (
            f"{first} these are ahead of every loss of table 1: {', '.join(won)}."
            if won
            else f"{first} none is ahead of them all anywhere."
        )


def _with_vectors(sets: Mapping[str, Found]) -> Iterator[str]:
    """Losses with class vectors, with the batches that suit them, against the forms of Prec@k together."""
    parts = []
    for data, found in sets.items():
        signs = _signs(found, [*WITH_VECTORS], "any")
        if signs:
            baselines = list(next(iter(signs.values())))
            above, below = ([name for name in baselines if all(some[name] == sign for some in signs.values())] for sign in (-1, 1))
            names = f" ({best_first({SINGLE[name].row: found[name] for name in above})})" if above else ""
            parts.append(f"{len(above)} of {len(baselines)} above{names} and {len(below)} below on {title(data)}")
    if parts:
        yield f"Losses with class vectors in uniform batches, which suit them, against either form: {', '.join(parts)}."


def _seeds(sets: Mapping[str, Found]) -> str:
    counts = [one.seeds for found in sets.values() for one in found.values()]
    few, many = min(counts), max(counts)
    seeds = str(few) if few == many else f"{few} to {many}"
    return f"Every trained row that is compared has {seeds} seeds; a floor without randomness has one."


def _rates(sets: Mapping[str, Found]) -> Iterator[str]:
    """With two rates every choice is at an edge: which edge, and what rows with four rates chose."""
    lower, inner, fixed = list[str](), 0, 0
    for data, found in sets.items():
        _, low, middle, high = SETS[data].rates
        two = [one.chosen.startswith(f"rate {low},") for one in found.values() if one.chosen.startswith((f"rate {low},", f"rate {high},"))]
        lower += [f"{sum(two)} of {len(two)} on {title(data)}"] if two else []
        four = [one.chosen for name in MARGINS if (one := found.get(f"11-{name}")) is not None and one.chosen]
        inner, fixed = inner + sum(one in (f"rate {low}", f"rate {middle}") for one in four), fixed + len(four)
    if lower:
        yield (
            "Rows with a setting of their own chose between two rates, so every choice is at an edge, and any row, baseline or "
            f"Prec@{K}, may be below what it could reach. The lower rate was chosen by {', '.join(lower)}."
        )
    if fixed:
        yield f"Prec@{K} with a fixed margin chose among four rates, and neither the lowest nor the highest in {inner} of {fixed} cases."
