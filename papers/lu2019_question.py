"""Is Prec@k ahead of the losses of its time, all else being equal? One paragraph, whichever way the runs of [lu2019sampling] fell.

Others say how its other forms stand, and losses with class vectors, and what all this rests on: seeds, and rates at the
edge of what was offered. What longer trainings say is told by `lu2019_longer`.
"""

import math
from collections.abc import Iterator, Mapping, Sequence

from papers.contest import ASKED, apart
from papers.lu2019 import ACTIVE, MARGINS, OURS, SETS, TABLE_1, WITH_VECTORS
from papers.lu2019_rows import SINGLE, Found, Rows, best_first, by_set, by_trial, known, title, with_margin

FORMS = {"prec5-printed": "as printed", "prec5-released": "as released"}
EQUAL = (
    "Figures are P@1 of the test classes in percent; network, batches, augmentation, iterations, optimizer and number of tuning runs are "
    "the same for all."
)
QUESTION = "Does optimizing Prec@k beat every loss of table 1, all else being equal?"
K = 5
STUCK = 0.999  # of the places that the loss looks at; in a random embedding, where the margin helps strangers, some 0.994 are misplaced
FLOORS = {True: ("pretrained", "the pretrained network untouched is"), False: ("pixels", "raw pixels are")}  # by whether it is pretrained
Signs = Mapping[str, Mapping[str, int]]  # by form and rival: 1 where Prec@k is above, -1 where it is below


def question(rows: Rows, sets: Mapping[str, Found]) -> Iterator[str]:
    """The answer, what else was tried, and what it rests on; nothing before a form of Prec@k was run beside a loss of table 1."""
    met = {data: signs for data, found in sets.items() if (signs := _signs(found, [*TABLE_1]))}
    if met:
        first = f"**{QUESTION} {_word(met)}.** {_places(met)} {EQUAL} {_lengths(met)}"
        told = [_on(data, sets[data], signs, rows) for data, signs in met.items()]
        yield " ".join([first, *told, *_by_other_columns(rows)])
        more = [*_other_forms(sets), *_with_vectors(sets)]
        if more:
            yield " ".join(["**Do its other forms, or losses with class vectors, change that?**", *more])
        yield " ".join(["**What does that rest on?**", _seeds(sets), *_rates(sets)])


def _signs(found: Found, rivals: list[str], batches: str = "11", forms: Mapping[str, str] = FORMS) -> Signs:
    """Every form that was run against the rivals that were."""
    run = [f"{batches}-{name}" for name in rivals if f"{batches}-{name}" in found]
    own = {form: found[f"11-{form}"] for form in forms if f"11-{form}" in found}
    return {form: {name: apart(one, found[name]) for name in run} for form, one in own.items()} if run else {}


def _ahead(signs: Mapping[str, int]) -> bool:
    return min(signs.values()) > 0


def _word(met: Mapping[str, Signs]) -> str:
    """Yes, only here and there, no, or not shown."""
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
    shown, level = ([title(data) for data, sign in lost.items() if sign is wanted] for wanted in (True, False))
    return f"Not shown on {' and '.join(level)}, no on {' and '.join(shown)}" if level else "No, on no data set"


def _places(met: Mapping[str, Signs]) -> str:
    """Where it stands on every data set, in a sentence."""
    told = []
    for data, signs in met.items():
        every = [list(some.values()) for some in signs.values()]
        if all(min(some) >= 0 for some in every):
            place = "ahead of all" if all(min(some) > 0 for some in every) else "among the best"
        else:
            place = f"behind {'most' if all(some.count(-1) > len(some) / 2 for some in every) else 'some'} of them"
        told.append(f"{place} on {title(data)}")
    return f"It is {', '.join(told)}."


def _lengths(met: Mapping[str, Signs]) -> str:
    told = [f"{int(SETS[data].settings['iterations']):,} on {title(data)}" for data in met]
    return f"Iterations: {', '.join(told)}; what longer trainings say stands below."


def _by_other_columns(rows: Rows) -> Iterator[str]:
    """P@1 is what the document looks at; Prec@5 is nearer to P@5."""
    told = []
    for column in ASKED[1:]:
        met = {data: _signs(found, [*TABLE_1]) for data, found in by_set(rows, column).items()}
        above = {data: [list(some.values()).count(-1) for some in signs.values()] for data, signs in met.items() if signs}
        if above:
            told.append(f"by {column} {', '.join(f'{_numbers(counts)} on {title(data)}' for data, counts in above.items())}")
    if told:
        yield f"Of the {len(TABLE_1)} there are above it {'; '.join(told)}."


def _on(data: str, found: Found, signs: Signs, rows: Rows) -> str:
    """A sentence on a data set: its figures, how many are above it and level with it, and what was there before."""
    figures = " and ".join(f"{with_margin(found[f'11-{form}'])} {FORMS[form]}" for form in signs)
    above_any = {SINGLE[name].row: found[name] for some in signs.values() for name, sign in some.items() if sign < 0}
    names = f" ({best_first(above_any)})" if above_any else ""
    above, level = ([list(some.values()).count(sign) for some in signs.values()] for sign in (-1, 0))
    count = len(next(iter(signs.values())))
    told = [f"{_numbers(above)} of {count} {_are(above)} above it{names}"]
    higher = [
        sum(sign == 0 and known(found[name]) > known(found[f"11-{form}"]) for name, sign in some.items()) for form, some in signs.items()
    ]
    told += [f"{_numbers(level)} {_are(level)} not told apart from it ({_numbers(higher)} with a higher mean)"] if any(level) else []
    if not any(above) and not any(level):
        told = [f"all {count} are below it"]
    start = "from pretrained weights" if SETS[data].pretrained else "from scratch"
    text = ", ".join([*told, *_not_above_floor(data, found, signs, rows)])
    return f"On {title(data)}, {start}, it has {figures}: {text}.{_stuck(data, signs, rows)}"


def _numbers(counts: Sequence[int]) -> str:
    """One number for each form, and one alone where they agree."""
    return " and ".join(str(count) if count else "none" for count in dict.fromkeys(counts))


def _are(counts: Sequence[int]) -> str:
    return "is" if set(counts) <= {0, 1} and len(set(counts)) == 1 else "are"


def _not_above_floor(data: str, found: Found, signs: Signs, rows: Rows) -> list[str]:
    """Where no form of it is above what was there before."""
    kind, words = FLOORS[SETS[data].pretrained]
    floor = by_trial(rows).get(f"lu2019-{data}-floor-{kind}")
    if floor is None:
        return []
    against = [apart(found[f"11-{form}"], floor) for form in signs]
    if max(against) > 0:
        return []
    return [f"and {words} {'above it, too' if max(against) < 0 else 'not told apart from it'} ({known(floor):.1f})"]


def _stuck(data: str, signs: Signs, rows: Rows) -> str:
    """What the count of misplaced neighbors says of a training that never got anywhere."""
    active = by_set(rows, ACTIVE).get(data, {})
    places = K * int(SETS[data].settings["batch_size"])
    shares = [known(active[f"11-{form}"]) / places for form in signs if f"11-{form}" in active]
    if not shares or min(shares) < STUCK:
        return ""
    return (
        f" There at least {math.floor(1000 * min(shares)) / 10:.1f} % of the {K} places that its loss looks at, the nearest in a batch "
        "when the margin helps strangers, were misplaced all the while, as in a collapsed embedding ([log](log.md))."
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
    """Losses with class vectors, given the batches that suit them, against the forms of Prec@k together."""
    told = []
    for data, found in sets.items():
        signs = _signs(found, [*WITH_VECTORS], "any")
        if signs:
            rivals = list(next(iter(signs.values())))
            above, below = ([name for name in rivals if all(some[name] == sign for some in signs.values())] for sign in (-1, 1))
            names = f" ({best_first({SINGLE[name].row: found[name] for name in above})})" if above else ""
            told.append(f"{len(above)} of {len(rivals)} above{names} and {len(below)} below on {title(data)}")
    if told:
        yield f"Losses with class vectors in uniform batches, which suit them, against either form: {', '.join(told)}."


def _seeds(sets: Mapping[str, Found]) -> str:
    counts = [one.seeds for found in sets.values() for one in found.values()]
    few, many = min(counts), max(counts)
    seeds = str(few) if few == many else f"{few} to {many}"
    return f"Every trained row that is compared so far has {seeds} seeds; a floor without chance has one."


def _rates(sets: Mapping[str, Found]) -> Iterator[str]:
    """With two rates every choice is at an edge: which edge, and what rows with four rates took."""
    told, inner, fixed = [], 0, 0
    for data, found in sets.items():
        _, low, middle, high = SETS[data].rates
        two = [one.chosen.startswith(f"rate {low},") for one in found.values() if one.chosen.startswith((f"rate {low},", f"rate {high},"))]
        told += [f"{sum(two)} of {len(two)} on {title(data)}"] if two else []
        four = [one.chosen for name in MARGINS if (one := found.get(f"11-{name}")) is not None and one.chosen]
        inner, fixed = inner + sum(one in (f"rate {low}", f"rate {middle}") for one in four), fixed + len(four)
    if told:
        yield (
            "Rows with a setting of their own chose between two rates, so that every choice is at an edge, and a row may lie below what it "
            f"could reach, a rival as well as Prec@{K}; the lower rate was taken by {', '.join(told)}."
        )
    if fixed:
        yield f"Prec@{K} with a fixed margin chose among four, and took neither the lowest nor the highest in {inner} of {fixed} cases."
