"""What longer trainings say of Prec@k on unseen classes: both of its forms and the best rivals, as far as they were run."""

from collections.abc import Iterator, Mapping
from dataclasses import replace

from papers.contest import apart
from papers.lu2019 import LONGER, TABLE_1, TIMES
from papers.lu2019_question import FORMS
from papers.lu2019_rows import Found, Rows, by_trial, known, said, title, with_margin
from papers.verdict import Verdict

QUESTION = "Would longer trainings answer otherwise?"
PLACES = {1: "below Prec@5", 0: "not told apart from one or both of its forms", -1: "above Prec@5"}
HOW = (
    "with the settings that the short ones chose; a margin here is the larger of the row's own and that of its short training, whose seeds "
    "say what chance does. The rivals are those that did best on held-out training classes with 11 images a class, with 2, and with class "
    "vectors."
)


def longer(rows: Rows, sets: Mapping[str, Found]) -> Iterator[str]:
    """One paragraph: the answer against the rival with equal batches, then every data set; and where nothing was run so long."""
    found = by_trial(rows)
    runs: dict[str, Found] = {}
    for data, short in sets.items():
        long = {name: one for name in LONGER.get(data, ()) if (one := found.get(f"lu2019-{data}-longer-{name}")) is not None}
        runs |= {data: {name: _with_chance(one, short.get(name)) for name, one in long.items()}} if _own(long) else {}
    missing = [title(data) for data in sets if data not in runs]
    told = [f"**{QUESTION}{_answer(runs)}**"]
    if runs:
        seeds = sorted({one.seeds for long in runs.values() for one in long.values()})
        told.append(f"{TIMES} times as many iterations, {' to '.join(map(str, seeds))} {'seed' if seeds == [1] else 'seeds'}, {HOW}")
    told += [_on(title(data), long, sets[data]) for data, long in runs.items()]
    if missing:
        told.append(f"Not run on {' and '.join(missing)}; as it begins with a collapse, short ones may understate it ([log](log.md)).")
    yield " ".join(told)


def _with_chance(one: Verdict, short: Verdict | None) -> Verdict:
    """A row of one seed has an interval over queries alone, which knows nothing of the chance in its training."""
    return one if short is None else replace(one, margin=max(one.margin, short.margin))


def _own(long: Found) -> dict[str, Verdict]:
    return {name: one for name, one in long.items() if name.partition("-")[2] in FORMS}


def _equal(long: Found) -> str | None:
    """The rival with the same batches, if it was run."""
    return next((name for name in long if name.startswith("11-") and name not in _own(long)), None)


def _sign(own: Mapping[str, Verdict], rival: Verdict) -> int:
    """Where all forms of Prec@k stand to a rival; 0 where they differ."""
    signs = {apart(one, rival) for one in own.values()}
    return signs.pop() if len(signs) == 1 else 0


def _answer(runs: Mapping[str, Found]) -> str:
    """Where the one rival with equal batches that was run is above it, no; else it is open, since the others were not run."""
    signs = {title(data): _sign(_own(long), long[name]) for data, long in runs.items() if (name := _equal(long)) is not None}
    if not signs:
        return ""
    no, still = ([data for data, sign in signs.items() if (sign < 0) is wanted] for wanted in (True, False))
    word = "; ".join(f"{said} on {' and '.join(where)}" for said, where in (("no", no), ("open", still)) if where)
    stands = ", ".join(
        f"{PLACES[place]} on {' and '.join(where)}"
        for place in PLACES
        if (where := [data for data, sign in signs.items() if sign == place])
    )
    first = f"{word[0].upper()}{word[1:]}: of the {len(TABLE_1)} losses of table 1 one on each was run as long with equal batches"
    return f" {first}, which is {stands}."


def _on(where: str, long: Found, short: Found) -> str:
    own, equal = _own(long), _equal(long)
    forms = " and ".join(f"{with_margin(one)} {FORMS[name.partition('-')[2]]}{_before(name, short)}" for name, one in own.items())
    rivals: dict[int, list[str]] = {sign: [] for sign in PLACES}
    for name, one in long.items():
        if name not in own:
            rivals[_sign(own, one)].append(f"{said(name)} {known(one):.1f}{_before(name, short)}")
    told = [f"{PLACES[sign]}: {', '.join(some)}" for sign, some in rivals.items() if some] or ["its rivals have not been run as long"]
    if equal is not None and equal in short:
        told.append(f"the short training of the rival with equal batches is {PLACES[_sign(own, short[equal])]}")
    return f"On {where} it has {forms}; {'; '.join(told)}."


def _before(name: str, short: Found) -> str:
    return f" (before: {known(short[name]):.1f})" if name in short else ""
