"""All tables with their cells and trials, and the verdicts on them."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path

from nearkin.compose.validation import nearest_name
from papers import (
    codes,
    digits,
    hao2018,
    hao2018_scales,
    hao2018_trials,
    huang2019,
    huang2019_trials,
    lu2019,
    lu2019_trials,
    ren2014,
    ren2014_trials,
    taylor2010,
)
from papers.cell import Cell, Trial
from papers.ledger import Ledger
from papers.verdict import Verdict, judge

TABLES: dict[str, tuple[tuple[Trial, ...], tuple[Cell, ...]]] = {
    "ren2014": (ren2014_trials.TRIALS, ren2014.CELLS),
    "taylor2010": (taylor2010.TRIALS, taylor2010.CELLS),
    "hao2018": ((*hao2018_trials.TRIALS, *hao2018_scales.TRIALS), hao2018.CELLS),
    "lu2019": (lu2019_trials.TRIALS, lu2019.CELLS),
    "huang2019": (huang2019_trials.TRIALS, huang2019.CELLS),
    "digits": (digits.TRIALS, digits.CELLS),
    "codes": (codes.TRIALS, codes.CELLS),
}


def chosen(names: Sequence[str]) -> tuple[tuple[Trial, ...], tuple[Cell, ...]]:
    """Trials and cells by the names of tables or the beginnings of names of trials; all of them without any name."""
    trials: list[Trial] = []
    for name in names or tuple(TABLES):
        found = TABLES[name][0] if name in TABLES else tuple(trial for trial in _all_trials() if trial.name.startswith(name))
        if not found:
            near = nearest_name(name, [*TABLES, *(trial.name for trial in _all_trials())])
            raise ValueError(f"TABLE {name!r} is unknown{near}; choose one of {', '.join(TABLES)}, or the beginning of a trial's name")
        trials += [trial for trial in found if trial not in trials]
    selected = {trial.name for trial in trials}
    whole = names or tuple(TABLES)  # of a whole table also the cited rows
    cells = tuple(
        cell for name, (_, some) in TABLES.items() for cell in some if cell.trial in selected or (cell.trial is None and name in whole)
    )
    return tuple(trials), cells


def verdicts(cells: Sequence[Cell], folder: Path) -> list[tuple[Cell, Verdict]]:
    """Every cell with the verdict from the saved runs."""
    trials = {trial.name: trial for trial in _all_trials()}
    ledgers = {name: Ledger.read(folder, trial) for name, trial in trials.items()}
    found = []
    for cell in cells:
        if cell.trial is None:
            found.append((cell, judge(cell, [], None)))
            continue
        ledger = ledgers[cell.trial]
        trial = trials[cell.trial]
        judged = judge(cell, ledger.runs, trial.data, trial.held_out)
        found.append((cell, replace(judged, chosen=_chosen(ledger, _rows()), selection=trial.selection, held_out=ledger.held_out)))
    return found


def _chosen(ledger: Ledger, rows: Mapping[str | None, str]) -> str:
    """The settings that tuning chose, or the members of an ensemble."""
    members = dict.fromkeys(" and ".join(rows[name] for name in run["members"]) for run in ledger.runs if "members" in run)
    names = {leaf: leaf.rpartition(".")[2].replace("learning_rate", "rate") for leaf in ledger.chosen}
    return ", ".join([*members, *(f"{name} {ledger.chosen[leaf]}" for leaf, name in names.items())])


@cache
def _rows() -> Mapping[str | None, str]:
    return {cell.trial: cell.row for _, some in TABLES.values() for cell in some}


def _all_trials() -> list[Trial]:
    return [trial for some, _ in TABLES.values() for trial in some]
