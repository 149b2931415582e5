"""`python -m papers`: run the tables of the five papers again and compare our figures with the printed ones."""

import shutil
import sys
from argparse import ArgumentParser, Namespace, RawDescriptionHelpFormatter
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

import torch
from rich.console import Console

from papers import encoders, matryoshka, neighbor_targets, table_contest, texts, tuning, which_loss
from papers.listing import show
from papers.page import write_pages
from papers.pictures import draw
from papers.running import run_trials
from papers.tables import chosen
from papers.trial_run import Place, unfinished

ABOUT = "Run the tables of the papers again and compare our figures with the printed ones. Every finished run is saved as JSON."
EXAMPLES = """examples:
  python -m papers --list
  python -m papers digits                                a small table that runs anywhere
  python -m papers tables --help                         tables against gradient boosting
  python -m papers encoders --help                       pretrained encoders on photographs
  python -m papers texts --help                          texts with few labels
  python -m papers tuning --help                         tuning an encoder for unseen classes, on a GPU
  python -m papers which-loss --help                     every objective for classes on four data sets
  python -m papers matryoshka --help                     prefixes of one embedding beside models of their size
  python -m papers neighbor-targets --help               targets of learning without labels, on a GPU
  python -m papers ren2014 --data-root data --resume --budget 20 --at-once 4"""


def parser() -> ArgumentParser:
    """The command line."""
    made = ArgumentParser("python -m papers", description=ABOUT, epilog=EXAMPLES, formatter_class=RawDescriptionHelpFormatter)
    named = "ren2014, taylor2010, hao2018, huang2019, lu2019, digits, codes, or the beginning of a trial's name (default: all)"
    made.add_argument("tables", nargs="*", metavar="TABLE", help=named)
    made.add_argument("--list", action="store_true", help="show every cell and its state, and run nothing")
    made.add_argument("--budget", type=float, default=float("inf"), metavar="MINUTES", help="start no run after this time (default: none)")
    made.add_argument(
        "--resume", action="store_true", help="keep saved runs and run only what is missing; without it they are deleted and run again"
    )
    together = "parallel runs, each in its own process (default: 1); on one GPU they take turns unless NVIDIA MPS is on"
    made.add_argument("--at-once", type=int, default=1, metavar="N", help=together)
    saved = "folder of the saved runs; the pages are written to the folder papers next to it (default: %(default)s)"
    made.add_argument("--out", default="docs/results", metavar="FOLDER", help=saved)
    made.add_argument("--data-root", default="data", metavar="FOLDER", help="folder of the known data sets (default: %(default)s)")
    made.add_argument("--device", metavar="NAME", help="cpu, cuda, cuda:1 (default: cuda if available)")
    return made


def main(words: Sequence[str] | None = None) -> int:
    """Run the command; a bad table name or folder is one line on stderr."""
    words = sys.argv[1:] if words is None else words
    contests = {
        "tables": table_contest.main,
        "encoders": encoders.main,
        "texts": texts.main,
        "tuning": tuning.main,
        "which-loss": which_loss.main,
        "matryoshka": matryoshka.main,
        "neighbor-targets": neighbor_targets.main,
    }  # with protocols of their own
    try:
        return contests[words[0]](words[1:]) if words and words[0] in contests else run(parser().parse_args(words))
    except (ValueError, OSError, ImportError) as error:
        print(f"papers: {error}", file=sys.stderr)
        return 2


def run(arguments: Namespace) -> int:
    """Run what is missing, write the pages, and list the cells."""
    console = Console(highlight=False)
    trials, cells = chosen(arguments.tables)
    folder = Path(arguments.out)
    if not arguments.list:
        if not arguments.resume:
            for trial in trials:
                (folder / f"{trial.name}.json").unlink(missing_ok=True)
                shutil.rmtree(unfinished(folder, trial), ignore_errors=True)
        place = Place(str(arguments.data_root), arguments.device or ("cuda" if torch.cuda.is_available() else "cpu"), str(folder))
        timed = {cell.trial for cell in cells if cell.unit == "seconds" and cell.trial is not None}
        complete = run_trials(trials, folder, place, console.print, minutes=arguments.budget, at_once=arguments.at_once, timed=timed)
        if not complete:
            console.print("the budget is used up; `--resume` continues with what is missing")
        if find_spec("matplotlib"):
            draw(folder)
        else:
            console.print("no pictures are drawn: they need matplotlib, pip install 'nearkin[plot]'")
        for page in write_pages(folder, folder.parent / "papers"):
            console.print(f"wrote {page}")
    show(console, cells, folder)
    return 0


if __name__ == "__main__":
    sys.exit(main())
