"""The page of the contest of losses, and what it recommends."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from nearkin.train.recipes import RECIPES
from papers import which_loss
from papers.table_page import critical_difference
from papers.which_loss import CONTENDERS, SEEDS, SETS, chosen, figure

FIGURES = ("seen 1-nn", "unseen p@1", "unseen map@r")
HEADS = ("1-NN, seen", "P@1, unseen", "MAP@R, unseen")
Saved = Mapping[str, Any]


def write_page(saved: Saved, path: Path) -> Path:
    """Write the page."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(page_of(saved), encoding="utf-8")
    return path


def page_of(saved: Saved) -> str:
    """The page as Markdown: a summary by ranks, then one table a set."""
    words = (which_loss.__doc__ or "").partition("A row is")[2].partition("Every finished")[0]
    text = "# Which loss?\n\nA row is" + words.rstrip() + "\n"
    whole = [name for name in SETS if complete(saved, name)]
    if whole:
        text += _summary(saved, whole)
    for name in SETS:
        if any(key.startswith(f"{name}/") for key in saved):
            text += _table(saved, name)
    devices = sorted({entry["device"] for entry in saved.values() if "device" in entry})
    return text + (f"\nRun on {', '.join(devices)}. `python -m papers which-loss --help` says how.\n" if devices else "")


def complete(saved: Saved, name: str) -> bool:
    """Whether every row of a set that did not diverge in all tuning runs has all its seeds."""
    return all(
        all(f"{name}/{row}/tuning/{number}" in saved for number in range(4))
        and (chosen(saved, name, row) is None or len(runs(saved, name, row)) == SEEDS)
        for row in CONTENDERS
    )


def runs(saved: Saved, name: str, row: str) -> list[Mapping[str, float]]:
    """The figures of the seeds that did not diverge."""
    found = [saved.get(f"{name}/{row}/seed/{number}", {}).get("figures") for number in range(SEEDS)]
    return [figures for figures in found if figures]


def held_out(saved: Saved, name: str, row: str) -> float:
    """The figure on held-out training images and classes, of the best tuning run."""
    return max(figure(saved.get(f"{name}/{row}/tuning/{number}", {})) for number in range(4))


def mean(saved: Saved, name: str, row: str, which: str) -> float:
    """The mean of a figure over the seeds; below all others without any."""
    found = runs(saved, name, row)
    return float(np.mean([figures[which] for figures in found])) if found else -1.0


def ranks(values: Sequence[float]) -> np.ndarray:
    """Ranks from 1, the largest first; equal values share the mean of theirs."""
    x = np.asarray(values)
    return np.asarray((x[None, :] > x[:, None]).sum(1) + ((x[None, :] == x[:, None]).sum(1) + 1) / 2)


def recommended(saved: Saved) -> list[str]:
    """Rows by their mean rank on held-out training images and classes, over the sets that are complete: the first is recommended."""
    whole = [name for name in SETS if complete(saved, name)]
    if not whole:
        raise ValueError("no set of the contest is complete; run `python -m papers which-loss` first")
    order = np.mean([ranks([held_out(saved, name, row) for row in CONTENDERS]) for name in whole], axis=0)
    return [list(CONTENDERS)[place] for place in np.argsort(order, kind="stable")]


def _summary(saved: Saved, whole: Sequence[str]) -> str:
    rows = list(CONTENDERS)
    columns = [[ranks([mean(saved, name, row, which) for row in rows]) for name in whole] for which in FIGURES]
    means = [np.mean(column, axis=0) for column in columns]
    inner = np.mean([ranks([held_out(saved, name, row) for row in rows]) for name in whole], axis=0)
    titles = ", ".join(SETS[name].title.partition(":")[0].partition(" at ")[0] for name in whole)
    text = f"\n## Mean ranks over {titles}\n\n{_advice(inner, len(whole))}\n\n"
    text += f"| objective | held out | {' | '.join(HEADS)} |\n|---|---|---|---|---|\n"
    for place in np.argsort(inner, kind="stable"):
        cells = " | ".join(f"{column[place]:.1f}" for column in (inner, *means))
        text += f"| {CONTENDERS[rows[place]].row} | {cells} |\n"
    return text


def _advice(held_out_ranks: np.ndarray, sets: int) -> str:
    """What the ranks tell apart, and what `--for retrieval` takes from them."""
    names, gap = [CONTENDERS[row].row for row in CONTENDERS], critical_difference(len(CONTENDERS), sets)
    apart = [name for name, rank in zip(names, held_out_ranks, strict=True) if rank - held_out_ranks.min() > gap]
    kept = RECIPES["retrieval"].settings["objective.name"]
    place = next(place for place, row in enumerate(CONTENDERS) if row.replace("-", "_") == kept)
    told = f"only {' and '.join(apart)} {'is' if len(apart) == 1 else 'are'}" if apart else "none is"
    text = (
        f"Of {len(names)} rows; 1 is the best. By the held-out part of the training images and classes "
        f"**{names[int(held_out_ranks.argmin())]}** has the best mean rank, but {sets} sets tell ranks apart only where they differ by "
        f"more than {gap:.1f} (Nemenyi, 5 %): {told} told apart from it. "
    )
    return text + (
        f"`nearkin train --for retrieval` therefore keeps {names[place]}, rank {held_out_ranks[place]:.1f} here: it was chosen on held-out "
        "classes in longer trainings ([the contest of Lu et al.](lu2019.md)), and nothing here is told apart from it."
        if held_out_ranks[place] - held_out_ranks.min() <= gap
        else f"It is told apart from {names[place]}, which `nearkin train --for retrieval` uses."
    )


def _table(saved: Saved, name: str) -> str:
    setting = SETS[name]
    text = f"\n## {setting.title}\n\n{setting.steps} steps of 64 images ({setting.tuning_steps} in tuning); percent, mean and standard"
    text += f" deviation over {SEEDS} seeds.\n\n| objective | held out | {' | '.join(HEADS)} | seeds | chosen |\n"
    text += "|---|---|---|---|---|---|---|\n"
    for row in sorted(CONTENDERS, key=lambda row: -held_out(saved, name, row)):
        found = runs(saved, name, row)
        cells = " | ".join(_spread([figures[which] for figures in found]) for which in FIGURES)
        inner, settings = held_out(saved, name, row), chosen(saved, name, row) or {}
        words = ", ".join(f"{leaf.rpartition('.')[2].replace('learning_rate', 'rate')} {value}" for leaf, value in settings.items())
        text += f"| {CONTENDERS[row].row} | {'' if inner < 0 else f'{100 * inner:.1f}'} | {cells} | {len(found)} | {words} |\n"
    return text


def _spread(values: Sequence[float]) -> str:
    if not values:
        return ""
    return f"{100 * np.mean(values):.1f}" + (f" ± {100 * np.std(values, ddof=1):.1f}" if len(values) > 1 else "")
