"""What longer trainings say of Prec@k on unseen classes: both of its forms and the best rivals, as far as they were run."""

from collections.abc import Iterator, Mapping

from nearkin.reproduce.contest import apart
from nearkin.reproduce.lu2019 import LONGER, TIMES
from nearkin.reproduce.lu2019_question import FORMS
from nearkin.reproduce.lu2019_rows import Found, Rows, by_trial, known, said, title, with_margin
from nearkin.reproduce.verdict import Verdict

PLACES = {1: "below it", 0: "not told apart from it, or from one of its forms", -1: "above it"}
HOW = (
    "with the settings that the short ones chose; the rivals are those that did best on held-out training classes with 11 images a class, "
    "with 2, and with class vectors."
)


def longer(rows: Rows, sets: Mapping[str, Found]) -> Iterator[str]:
    """One paragraph: the answer against the rival with equal batches, then every data set; and where nothing was run so long."""
    found = by_trial(rows)
    runs: dict[str, Found] = {}
    for data in sets:
        long = {name: one for name in LONGER.get(data, ()) if (one := found.get(f"lu2019-{data}-longer-{name}")) is not None}
        runs |= {data: long} if _own(long) else {}
    missing = [title(data) for data in sets if data not in runs]
    untried = f"Not run on {' and '.join(missing)}; as it begins with a collapse, short ones may understate it ([log](log.md))."
    told = [_on(title(data), long, sets[data]) for data, long in runs.items()]
    if told:
        seeds = max(one.seeds for long in runs.values() for one in long.values())
        how = f"{TIMES} times as many iterations, {'one seed' if seeds == 1 else f'{seeds} seeds'}, {HOW}"
        told = [f"**Would longer trainings answer otherwise?{_answer(runs)}** {how}", *told]
    else:
        told = ["**Would longer trainings answer otherwise?**"]
    yield " ".join([*told, *([untried] if missing else [])])


def _own(long: Found) -> dict[str, Verdict]:
    return {name: one for name, one in long.items() if name.partition("-")[2] in FORMS}


def _sign(own: Mapping[str, Verdict], rival: Verdict) -> int:
    """Where all forms of Prec@k stand to a rival; 0 where they differ."""
    signs = {apart(one, rival) for one in own.values()}
    return signs.pop() if len(signs) == 1 else 0


def _answer(runs: Mapping[str, Found]) -> str:
    """Against the rivals with equal batches, one a data set."""
    places: dict[int, list[str]] = {1: [], 0: [], -1: []}
    for data, long in runs.items():
        own = _own(long)
        for name, one in long.items():
            if name.startswith("11-") and name not in own:
                places[_sign(own, one)].append(title(data))
    words = {1: "ahead of it", 0: "not told apart from it", -1: "behind it"}
    told = ", ".join(f"{words[sign]} on {' and '.join(where)}" for sign, where in places.items() if where)
    return f" Of the losses of table 1 with equal batches one was run as long: Prec@5 is {told}." if told else ""


def _on(where: str, long: Found, short: Found) -> str:
    own = _own(long)
    forms = " and ".join(f"{with_margin(one)} {FORMS[name.partition('-')[2]]}{_before(name, short)}" for name, one in own.items())
    rivals: dict[int, list[str]] = {sign: [] for sign in PLACES}
    for name, one in long.items():
        if name not in own:
            rivals[_sign(own, one)].append(f"{said(name)} {known(one):.1f}{_before(name, short)}")
    told = [f"{PLACES[sign]}: {', '.join(some)}" for sign, some in rivals.items() if some]
    return f"On {where} it has {forms}; {'; '.join(told) or 'its rivals have not been run as long'}."


def _before(name: str, short: Found) -> str:
    return f" (before: {known(short[name]):.1f})" if name in short else ""
