"""What longer trainings say about Prec@k on unseen classes: both of its forms and the best baselines, as far as they were run."""

from collections.abc import Iterator, Mapping
from dataclasses import replace

from papers.comparison import order
from papers.lu2019_lead import FORMS
from papers.lu2019_rows import Found, Rows, by_trial, known, title, with_batches, with_margin
from papers.lu2019_trials import LONGER, TABLE_1, TIMES
from papers.verdict import Verdict

QUESTION = "Does longer training change the result?"
PLACES = {1: "below Prec@5", 0: "not told apart from one or both of its forms", -1: "above Prec@5"}
HOW = (
    "with the settings that the short trainings chose. The margin is the larger of the row's own and that of its short training, whose "
    "seeds show the variation. The baselines are those that are best on held-out training classes with 11 images per class, with 2, and "
    "with class vectors."
)


def longer(rows: Rows, sets: Mapping[str, Found]) -> Iterator[str]:
    """One paragraph: the result against the baseline with equal batches, then every data set, and where no long training was run."""
    found = by_trial(rows)
    runs: dict[str, Found] = {}
    for data, short in sets.items():
        long = {name: one for name in LONGER.get(data, ()) if (one := found.get(f"lu2019-{data}-longer-{name}")) is not None}
        runs |= {data: {name: _with_seeds(one, short.get(name)) for name, one in long.items()}} if _own(long) else {}
    missing = [title(data) for data in sets if data not in runs]
    parts = [f"**{QUESTION}{_result(runs)}**"]
    if runs:
        seeds = sorted({one.seeds for long in runs.values() for one in long.values()})
        parts.append(f"{TIMES} times as many iterations, {' to '.join(map(str, seeds))} {'seed' if seeds == [1] else 'seeds'}, {HOW}")
    parts += [_on(title(data), long, sets[data]) for data, long in runs.items()]
    if missing:
        parts.append(f"Not run on {' and '.join(missing)}. Prec@5 starts with a collapsed embedding, so short trainings may understate it.")
    yield " ".join(parts)


def _with_seeds(one: Verdict, short: Verdict | None) -> Verdict:
    """The margin of a row with one seed covers queries alone; that of its short training covers seeds, too."""
    return one if short is None else replace(one, margin=max(one.margin, short.margin))


def _own(long: Found) -> dict[str, Verdict]:
    return {name: one for name, one in long.items() if name.partition("-")[2] in FORMS}


def _equal(long: Found) -> str | None:
    """The baseline with the same batches, if it was run."""
    return next((name for name in long if name.startswith("11-") and name not in _own(long)), None)


def _sign(own: Mapping[str, Verdict], baseline: Verdict) -> int:
    """How all forms of Prec@k compare with a baseline; 0 where they differ."""
    signs = {order(one, baseline) for one in own.values()}
    return signs.pop() if len(signs) == 1 else 0


def _result(runs: Mapping[str, Found]) -> str:
    """No where the one baseline with equal batches that was run is above Prec@5; otherwise open, because the others were not run."""
    signs = {title(data): _sign(_own(long), long[name]) for data, long in runs.items() if (name := _equal(long)) is not None}
    if not signs:
        return ""
    no, still = ([data for data, sign in signs.items() if (sign < 0) is lost] for lost in (True, False))
    word = "; ".join(f"{label} on {' and '.join(where)}" for label, where in (("no", no), ("open", still)) if where)
    places = ", ".join(
        f"{PLACES[place]} on {' and '.join(where)}"
        for place in PLACES
        if (where := [data for data, sign in signs.items() if sign == place])
    )
    first = f"{word[0].upper()}{word[1:]}: of the {len(TABLE_1)} losses of table 1 one per data set was run as long with equal batches"
    return f" {first}. It is {places}."


def _on(where: str, long: Found, short: Found) -> str:
    own, equal = _own(long), _equal(long)
    forms = " and ".join(f"{with_margin(one)} {FORMS[name.partition('-')[2]]}{_before(name, short)}" for name, one in own.items())
    baselines: dict[int, list[str]] = {sign: [] for sign in PLACES}
    for name, one in long.items():
        if name not in own:
            baselines[_sign(own, one)].append(f"{with_batches(name)} {known(one):.1f}{_before(name, short)}")
    parts = [f"{PLACES[sign]}: {', '.join(some)}" for sign, some in baselines.items() if some] or [
        "its baselines have not been run as long"
    ]
    if equal is not None and equal in short:
        parts.append(f"the short training of the baseline with equal batches is {PLACES[_sign(own, short[equal])]}")
    return f"On {where} it has {forms}; {'; '.join(parts)}."


def _before(name: str, short: Found) -> str:
    return f" (short: {known(short[name]):.1f})" if name in short else ""
