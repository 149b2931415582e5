"""`nearkin explore`: evaluate and index vectors that are given, and show them; or show a model folder."""

from argparse import Namespace
from pathlib import Path
from shlex import quote

from nearkin.cli import evaluate, serve
from nearkin.cli.index import set_store
from nearkin.cli.terminal import Terminal
from nearkin.index.collection import open_index
from nearkin.index.given import STATE, is_given

REFERENCES = 300_000  # the others are compared with so many at most, in a few GB; `nearkin evaluate` takes all of them
PAIRS = 1 << 24  # that the curves count
QUERIES = 2000  # of vectors without splits: enough for two digits, in seconds


def run(arguments: Namespace) -> int:
    """Evaluate, unless it was done since the vectors were read; then serve until stopped."""
    folder = Path(arguments.folder)
    if arguments.store:
        set_store(
            open_index(folder, device=arguments.device, verify=not arguments.no_verify).index, arguments.store, Terminal(highlight=False)
        )
    if is_given(folder) and not arguments.no_evaluation and not _is_evaluated(folder):
        how = {
            "data": None,
            "part": "test",
            "weights": "best",
            "compare": False,
            "probes": False,
            "figures": False,
            "rescale": None,
            "no_label_check": True,
            "no_pictures": True,
            "pairs": PAIRS,
            "references": REFERENCES,
        }
        chosen = {
            "folder": str(folder),
            "device": arguments.device,
            "no_verify": arguments.no_verify,
            "queries": QUERIES,
            "data_root": None,
        }
        evaluate.run(Namespace(**how, **chosen, out=None, shards=None))
    if not arguments.no_serve:
        return serve.run(arguments)
    place, report = quote(str(folder)), folder / "report.html"
    found = f"{folder} is ready: " + (f"its report is {report}, " if report.exists() else "")
    Terminal(highlight=False).print(
        f"{found}`nearkin explore {place}` opens its page, and `nearkin export {place} --page OUT` writes the page as files.",
        soft_wrap=True,
        markup=False,
    )
    return 0


def _is_evaluated(folder: Path) -> bool:
    done, made = folder / "evaluation.json", folder / STATE
    return done.exists() and done.stat().st_mtime_ns >= made.stat().st_mtime_ns
