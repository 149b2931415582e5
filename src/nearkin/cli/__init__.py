"""The command line: `nearkin VERB ...`.

This file only says what there is to say; a verb's own module, and with it torch, is imported when the verb runs, so
that help and mistyped options are answered at once.
"""

import argparse
import sys
from collections.abc import Callable, Sequence
from importlib import import_module
from pathlib import Path

from nearkin import __version__

ABOUT = "Learn embeddings whose nearest neighbours are right: from classes, from numbers, or from no labels at all."
FIRST = "The first thing to try, about a minute on a laptop:\n  nearkin demo\n\nHelp on a verb:\n  nearkin demo --help"
DEMO = """Train a small network with NCA on digits that were moved about, and compare its nearest neighbours with those of raw
pixels, PCA, LDA, linear NCA and the same network trained with softmax. Nothing is downloaded."""
DEMO_WRITES = """writes into --out:
  scatter.png           the test digits in 2 dimensions, four embeddings side by side
  metrics.json          every figure, with seeds, seconds, settings and versions
  weights.safetensors   the network trained with NCA, 32 dimensions; model.json describes it,
                        references.safetensors are its training embeddings

examples:
  nearkin demo                          three seeds
  nearkin demo --quick --out runs/try   one seed, few epochs"""


def main(argv: Sequence[str] | None = None) -> int:
    """Run one verb; the exit status. Errors in what was asked are told in one line, Ctrl-C in one word."""
    parser = _parser()
    arguments = parser.parse_args(argv)
    if arguments.verb is None:
        parser.print_help()
        return 0
    try:
        status: int = arguments.run(arguments)
        return status
    except KeyboardInterrupt:
        print("\nstopped", file=sys.stderr)
        return 130
    except (ValueError, OSError, ImportError) as error:
        print(f"nearkin {arguments.verb}: {error}", file=sys.stderr)
        return 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="nearkin", description=ABOUT, epilog=FIRST, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--version", action="version", version=f"nearkin {__version__}")
    verbs = parser.add_subparsers(dest="verb", metavar="VERB", title="verbs")
    _add_demo(verbs)
    return parser


def _add_demo(verbs: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    parser = verbs.add_parser(
        "demo",
        help="train on scikit-learn's digits, compare, draw (a minute, no download)",
        description=DEMO,
        epilog=DEMO_WRITES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--out", type=Path, default=Path("runs/demo"), metavar="FOLDER", help="where to write (default: %(default)s)")
    parser.add_argument("--seeds", type=_at_least_one, metavar="N", help="networks trained for each row (default: 3, with --quick 1)")
    parser.add_argument("--quick", action="store_true", help="one seed and few epochs: does it run? (about 10 seconds)")
    parser.set_defaults(run=_lazily("nearkin.cli.demo"))


def _lazily(module: str) -> Callable[[argparse.Namespace], int]:
    """The module's `run`, imported when called."""

    def run(arguments: argparse.Namespace) -> int:
        status: int = import_module(module).run(arguments)
        return status

    return run


def _at_least_one(text: str) -> int:
    """A whole number from 1, for argparse."""
    try:
        number = int(text)
    except ValueError:
        number = 0
    if number < 1:
        raise argparse.ArgumentTypeError(f"{text!r} must be a whole number of at least 1")
    return number
