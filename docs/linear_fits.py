"""The part of docs/performance.md on linear fits, from docs/bench-linear.json."""

from typing import Any

from bench_tables import Row, load, table

TARGETS = {("fits", 2): 6, ("fits", 64): 3, ("evaluations", 32): 10, ("evaluations", 2): 18}  # times scikit-learn's speed


def linear_part(found: dict[str, Any]) -> list[str]:
    """Linear NCA next to scikit-learn's, the memory of a large fit, LMNN, and the nested comparison with PCA; missed targets are listed."""
    rows = found["rows"]
    raced = [row for row in rows if (row["part"], row.get("components")) in TARGETS]
    cells, short, higher = [], [], True
    for row in raced:
        target = TARGETS[row["part"], row["components"]]
        task = f"{'fit' if row['part'] == 'fits' else 'one evaluation'}, {row['data']}, to {row['components']}"
        theirs, ours = ((row[f"{who} cpu_s"], row[f"{who} objective"]) for who in ("scikit-learn", "nearkin"))
        cells.append((task, f"{theirs[0]:.2f}", f"{ours[0]:.2f}", f"{row['times']:.1f}", str(target), f"{theirs[1]:.5f}", f"{ours[1]:.5f}"))
        short += [f"{task}: {row['times']:.1f} times instead of {target}"] if row["times"] < target else []
        higher &= ours[1] > 0.999 * theirs[1]
    made = f"{found['machine']}, {found['date'][:10]}; torch {found['torch']}, numpy {found['numpy']}"
    lines = ["## Linear fits", "", f"`{found['command']}`, {made}."]
    lines.append(
        "`LinearNCA` and scikit-learn's `NeighborhoodComponentsAnalysis` in alternation, CPU seconds of one thread, best of "
        f"{raced[0]['rounds']}. The objective is the mean probability of a positive soft neighbor; each fit stops by its own defaults"
        + (", and ours never ends more than 0.1 % below." if higher else ".")
    )
    head = ("task", "scikit-learn s", "nearkin s", "times", "target", "its objective", "ours")
    lines += ["", *table(head, cells), f"Missed: {'; '.join(short)}." if short else "All targets are met.", ""]
    both = [f"to {row['components']}{key[5:]} {row[key]:.1f} times" for row in raced for key in row if key.startswith("times, ")]
    lines += [f"One evaluation by the wall clock: {'; '.join(both)}.", ""] if both else []
    for row in rows:
        lines += OTHERS[row["part"]](row) if row["part"] in OTHERS else []
    measured = {row["part"] for row in rows}
    return lines + [f"Not measured in this run: {part}.\n" for part in OTHERS if part not in measured]


def _memory(row: Row) -> list[str]:
    held, before = row["process_mb"], row["of which before the fit"]  # of 2^20 bytes
    added = f"the fit added {held - before:,.0f} MiB to the {before:,.0f} that the process held with the data, {held:,.0f} in all"
    verdict = "target met" if held < 1024 else "target missed"
    return [f"{row['data']} to {row['components']}, one iteration, {row['wall_s']:.0f} s: {added} ({verdict}: below 1,024).", ""]


def _lmnn(row: Row) -> list[str]:
    errors = "; ".join(f"{name.replace(' error %', '')} {value:.2f} %" for name, value in row.items() if "1-NN error" in name)
    took = f"{row['seconds']:.0f} s and {row['iterations']} iterations, {row['threads']} threads"
    printed, best = row["printed LMNN error %"], min(value for name, value in row.items() if name.startswith("LMNN 1-NN"))
    verdict = f", which is missed{_all_digits(printed)}" if best > printed else ""
    return [f"LMNN, {row['data']}: {took}. Errors: {errors}; printed: {printed} %{verdict}.", ""]


def _all_digits(printed: float) -> str:
    """The error of the fit on the whole training part, if that falls short as well."""
    found = load("results/ren2014-mnist-lmnn.json")
    errors = [100 * (1 - run["figures"]["3-nn"]) for run in (found or {"runs": []})["runs"]]
    return f", also by a fit on all digits ([Papers](papers.md): {errors[0]:.2f} %)" if errors and errors[0] > printed else ""


def _nested(row: Row) -> list[str]:
    about = f"A pipeline of scaling, map and k nearest neighbors against the same with PCA (`{row['data']}`), intervals of 95 %:"
    ends = {end: sum(line.endswith(end) for line in row["lines"]) for end in ("better", "worse", "no difference shown")}
    counted = f"Of {len(row['lines'])} comparisons: {', '.join(f'{count} {end}' for end, count in ends.items())}."
    return [about, "", *(f"- {line}" for line in row["lines"]), "", counted, ""]


OTHERS = {"memory": _memory, "lmnn": _lmnn, "nested": _nested}
