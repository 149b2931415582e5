"""The command line: `nearkin VERB ...`.

This file only says what there is to say; a verb's own module, and with it torch, is imported when the verb runs, so
that help, mistyped options and folders that are not there are answered at once.
"""

import argparse
import sys
from collections.abc import Callable, Sequence
from importlib import import_module
from pathlib import Path

from nearkin import __version__
from nearkin.cli.early_checks import check
from nearkin.cli.pipes import UNREAD, nobody_reads

ABOUT = "Learn embeddings whose nearest neighbors are right: from classes, from numbers, or from no labels at all."
FIRST = "The first thing to try, about a minute on a laptop:\n  nearkin demo\n\nHelp on a verb:\n  nearkin demo --help"
DEMO = """Train a small network with NCA on digits that were moved about, and compare its nearest neighbors with those of raw
pixels, PCA, LDA, linear NCA and the same network trained with softmax. Nothing is downloaded."""
DEMO_WRITES = """writes into --out:
  scatter.png           the test digits in 2 dimensions, four embeddings side by side
  metrics.json          every figure, with seeds, seconds, settings and versions
  weights.safetensors   the network trained with NCA, 32 dimensions; model.json describes it,
                        references.safetensors are its training embeddings
  index                 all digits as it embeds them: `nearkin serve` shows them, and which neighbors are wrong

examples:
  nearkin demo                          three seeds
  nearkin demo --quick --out runs/try   one seed, few epochs"""


TRAIN = """Train an embedding whose nearest neighbors are right. The objective is chosen by what the data know of themselves
(classes: NCA; numbers: NCA regression; nothing: neighborhood discovery) unless it is named. Part of labeled data is
held out for validation and for one look at the end. Interrupted trainings resume exactly."""
TRAIN_EXAMPLES = """examples:
  nearkin train photos/ --out runs/photos             a folder for each class
  nearkin train table.csv --set data.target_columns=x,y
  nearkin train mnist --data-root data --network ren2014-mnist --epochs 20 --set augment.name=shift
  nearkin train vectors.npz --objective precision_at_k --set sampler.name=per_class
  nearkin train unlabeled/ --set data.size=64        without labels: images in one folder, made 64 x 64
  nearkin train unlabeled/ --for discovery           the same for color images on a GPU, longer
  nearkin train birds/ --for retrieval                settings for finding kinds that training has not met
  nearkin train photos/ --find-rate                   the largest learning rate at which the objective falls steadily
  nearkin train --resume runs/photos"""
EXPORT = (
    """Write the network, preparation included, as ONNX and compare it; or the explorer of the index, as a folder that opens from disk."""
)
EXPORT_EXAMPLES = """examples:
  nearkin export runs/photos --onnx                   writes runs/photos/model.onnx
  nearkin export runs/photos --onnx photos.onnx
  nearkin export runs/photos --page out/              then open out/index.html, also without nearkin
  nearkin export runs/photos --page out/ --compare runs/before"""
EMBED = """Embeddings, ids, labels and sources of any data: one .npz file, or a folder of Parquet shards with a manifest (pip install
'nearkin[table]'), which may be larger than memory. Damaged files are named, counted and left out of shards. Shards are made by
this process or by the actors of a Ray cluster (pip install 'nearkin[ray]'), with the same content; the same command goes on with
the shards that are missing."""
EMBED_EXAMPLES = """examples:
  nearkin embed runs/photos photos/ --out photos.npz
  nearkin embed runs/photos photos/ --out shards/
  nearkin embed runs/photos photos/ --out shards/ --engine ray                            all cores of this machine
  nearkin embed runs/photos photos/ --out shards/ --engine ray --address 10.0.0.1:6379    a cluster that shares its folders"""
SHARD = """Write vectors, or images decoded and brought to one size, with their labels as a folder of Parquet shards (pip install
'nearkin[table]'). Under torchrun each rank then reads only its own shards, and a training resumes with any number of ranks."""
SHARD_EXAMPLES = """examples:
  nearkin shard photos/ --size 64 --out shards/ --shard-rows 5000
  torchrun --nproc-per-node 8 -m nearkin train shards/ --out runs/photos"""
INDEX = """Index a data set in a model folder, or change the index that is there. Every change is durable when the verb returns;
one that was interrupted goes on with --add. A point that is there already, by its source, is passed over."""
INDEX_EXAMPLES = """examples:
  nearkin index runs/photos photos/                 make an index
  nearkin index runs/photos --add more/             add to it
  nearkin index runs/photos --delete 3,17,100-199   remove points by their ids
  nearkin index runs/photos --backend hnsw          approximate search for large sets (pip install 'nearkin[search]')
  nearkin index runs/photos photos/ --replace       make it anew; the old one serves until the new one is whole
  nearkin index runs/photos photos/ --backend milvus --uri photos.db            in Milvus (pip install 'nearkin[milvus]')
  nearkin index runs/photos shards/ --backend milvus --uri http://host:19530    from shards of `nearkin embed`; goes on where it stopped"""
SEARCH = """The neighbors of images or vectors, of indexed points or of embeddings, with affinity, label, path and a verdict: same kind?"""
SEARCH_EXAMPLES = """examples:
  nearkin search runs/photos query.jpg
  nearkin search runs/photos queries/ -k 5 --json     every image of a folder
  nearkin search runs/photos --id 17 --label cat      the cats nearest to point 17
  nearkin search runs/vectors new.npz                 vectors such as the model was trained on: its x, or a .npy file
  nearkin search runs/photos --vector 0.1,-2,0.5      an embedding; or a file, also of `nearkin embed`: --vector queries.npz"""
SERVE = """Serve the index of a model folder over HTTP, with a page to ask with a picture, and the explorer, which shows
which neighbors are wrong. On this machine only, unless --host says otherwise; then a token is required.
An index that is changed meanwhile is taken over without a pause."""
SERVE_EXAMPLES = """examples:
  nearkin serve runs/photos
  nearkin serve runs/photos --compare runs/before     the explorer with both models side by side
  NEARKIN_TOKEN=... nearkin serve runs/photos --host 0.0.0.0 --port 80 --no-browser
  curl -F image=@query.jpg 'http://127.0.0.1:8000/search?k=5'"""
EVALUATE = """Are a model's neighbors right? Queries are the part of the data that the run held out for testing, or DATA; the training part
answers them. Prints a table and writes, into the model folder unless --out names another:
  report.html            figures with definitions, intervals, chance and counts, pictures, and what may be wrong with the data
  evaluation.json        the same figures for machines
  suspected_labels.csv   points whose neighbors contradict their label
The model folder itself keeps those of the run's own test part: with DATA, --part or --weights they are written into a folder in it
that is called after them, such as DIR/evaluation-new or DIR/evaluation-validation.
With --shards a folder of `nearkin embed` answers instead, and evaluation.json is written alone: predictions of k nearest neighbors,
retrieval, errors of numbers, overlap of sets, all as in memory. Left to memory are sums over all references or pairs, and pictures."""
EVALUATE_EXAMPLES = """examples:
  nearkin evaluate runs/photos                  on the run's own test part
  nearkin evaluate runs/photos --compare        beside raw pixels, PCA, PPCA, LDA, linear NCA and LMNN
  nearkin evaluate runs/photos new/             writes into runs/photos/evaluation-new, or where --out says
  nearkin evaluate runs/photos --part validation
  nearkin evaluate runs/photos --shards shards/ --engine ray    answered by what `nearkin embed` wrote"""
_RAW = argparse.RawDescriptionHelpFormatter


def main(argv: Sequence[str] | None = None) -> int:
    """Run one verb; the exit status. Errors in what was asked are told in one line, Ctrl-C in one word, a reader who has left in none."""
    try:
        status = _ran(argv)
    except SystemExit as end:  # argparse's after help or a mistake, and rich's when nobody reads
        if nobody_reads(end):
            return UNREAD
        raise
    return UNREAD if nobody_reads() else status


def _ran(argv: Sequence[str] | None) -> int:
    parser = _parser()
    arguments = parser.parse_args(argv)
    if arguments.verb is None:
        parser.print_help()
        return 0
    try:
        check(arguments)
        if getattr(arguments, "device", None):
            _check_device(arguments.device)
        status: int = arguments.run(arguments)
        return status
    except KeyboardInterrupt:
        print("\nstopped", file=sys.stderr)
        return 130
    except (ValueError, OSError, ImportError) as error:
        if nobody_reads(error):
            return UNREAD
        print(f"nearkin {arguments.verb}: {error}", file=sys.stderr)
        return 1


def _check_device(name: str) -> None:
    """Whether anything can be computed there; torch raises errors of several kinds."""
    import torch

    try:
        torch.zeros(1, device=name)
    except (RuntimeError, AssertionError, NotImplementedError) as error:
        why = str(error).partition("\n")[0]
        raise ValueError(f"--device {name!r} cannot be used here ({why}); take cpu, or leave it out") from error


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="nearkin", description=ABOUT, epilog=FIRST, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--version", action="version", version=f"nearkin {__version__}")
    verbs = parser.add_subparsers(dest="verb", metavar="VERB", title="verbs")
    _add_demo(verbs)
    _add_train(verbs)
    _add_evaluate(verbs)
    _add_embed(verbs)
    _add_shard(verbs)
    _add_export(verbs)
    _add_index(verbs)
    _add_search(verbs)
    _add_serve(verbs)
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


def _add_train(verbs: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    parser = verbs.add_parser(
        "train", help="from images or vectors to a model folder", description=TRAIN, epilog=TRAIN_EXAMPLES, formatter_class=_RAW
    )
    parser.add_argument(
        "data", nargs="?", metavar="DATA", help="a folder, a table (.csv, .parquet), an .npz file, or a known set such as digits or mnist"
    )
    parser.add_argument("--out", default="runs/model", metavar="FOLDER", help="the model folder to write (default: %(default)s)")
    parser.add_argument("--resume", metavar="FOLDER", help="go on with the training in this folder")
    parser.add_argument("--labels", metavar="FILE.csv", help="corrected labels, such as the explorer leaves: columns path and label")
    parser.add_argument(
        "--objective", metavar="NAME", help="nca, nca_regression, precision_at_k, ... (default: chosen by what the data know)"
    )
    parser.add_argument("--for", dest="purpose", metavar="PURPOSE", help="settings for a purpose: retrieval, discovery")
    parser.add_argument("--network", metavar="NAME", help="convnet, mlp, resnet18, ren2014-mnist, timm:NAME, ... (default: convnet or mlp)")
    parser.add_argument("--dimension", type=_at_least_one, metavar="D", help="size of the embedding (default: 64)")
    parser.add_argument("--codes", action="store_true", help="learn a binary code of D bits, searched by Hamming distance")
    parser.add_argument("--epochs", type=_at_least_one, metavar="N", help="passes over the training part (default: 20, more of few points)")
    parser.add_argument("--seed", type=int, metavar="N", help="of weights, order and draws (default: 0)")
    parser.add_argument(
        "--find-rate",
        action="store_true",
        help="first sweep the learning rate over a hundred steps, save the curve, and train with the largest steady one",
    )
    parser.add_argument(
        "--set", action="append", default=[], metavar="LEAF=VALUE", help="any other setting; a wrong one names the right ones"
    )
    _add_places(parser)
    parser.set_defaults(run=_lazily("nearkin.cli.train", "run_train"))


def _add_evaluate(verbs: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    parser = verbs.add_parser(
        "evaluate",
        help="are the neighbors right? a table, JSON and a report with pictures",
        description=EVALUATE,
        epilog=EVALUATE_EXAMPLES,
        formatter_class=_RAW,
    )
    parser.add_argument("folder", metavar="DIR", help="a model folder")
    parser.add_argument("data", nargs="?", metavar="DATA", help="other queries, as for train (default: the part that the run held out)")
    parser.add_argument("--part", choices=("test", "validation"), default="test", help="which part asks (default: %(default)s)")
    parser.add_argument("--weights", choices=("best", "last"), default="best", help="which weights (default: best, chosen on validation)")
    parser.add_argument("--compare", action="store_true", help="fit the classical methods on the same data and put them beside the model")
    parser.add_argument("--probes", action="store_true", help="fit softmax regression on every layer: where do the classes become known?")
    pictures = parser.add_mutually_exclusive_group()
    pictures.add_argument("--figures", action="store_true", help="write every picture as .png and .svg, too")
    pictures.add_argument("--no-pictures", action="store_true", help="draw none: quicker, and matplotlib is not needed")
    parser.add_argument("--out", metavar="FOLDER", help="where to write (default: DIR, or with other queries a folder in it)")
    parser.add_argument("--shards", metavar="SHARDS", help="let these shards answer, which may be larger than memory: what ranks decide")
    parser.add_argument("--engine", choices=("local", "ray"), default="local", help="who searches the shards (default: this process)")
    parser.add_argument("--address", metavar="HOST:PORT", help="of a Ray cluster, or auto (default: Ray on this machine alone)")
    _add_places(parser)
    parser.set_defaults(run=_lazily("nearkin.cli.evaluate"))


def _add_embed(verbs: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    parser = verbs.add_parser(
        "embed", help="embeddings of any data by a model folder", description=EMBED, epilog=EMBED_EXAMPLES, formatter_class=_RAW
    )
    parser.add_argument("folder", metavar="FOLDER", help="a model folder")
    parser.add_argument("data", metavar="DATA", help="as for train")
    parser.add_argument("--out", required=True, metavar="FILE.npz|SHARDS", help="where to write: one file, or a folder of shards")
    parser.add_argument("--engine", choices=("local", "ray"), help="who makes the shards: this process, or Ray (default: local)")
    parser.add_argument("--address", metavar="HOST:PORT", help="of a Ray cluster, or auto (default: Ray on this machine alone)")
    parser.add_argument("--shard-rows", type=_at_least_one, metavar="N", help="points of a shard (default: 20,000)")
    _add_places(parser)
    parser.set_defaults(run=_lazily("nearkin.cli.embed"))


def _add_shard(verbs: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    parser = verbs.add_parser(
        "shard", help="data as shards, for training on several machines", description=SHARD, epilog=SHARD_EXAMPLES, formatter_class=_RAW
    )
    parser.add_argument("data", metavar="DATA", help="as for train")
    parser.add_argument("--out", required=True, metavar="SHARDS", help="the folder to write")
    parser.add_argument("--size", type=_at_least_one, metavar="PIXELS", help="resize the short side and cut out the center")
    parser.add_argument("--engine", choices=("local", "ray"), help="who makes the shards: this process, or Ray (default: local)")
    parser.add_argument("--address", metavar="HOST:PORT", help="of a Ray cluster, or auto (default: Ray on this machine alone)")
    parser.add_argument("--shard-rows", type=_at_least_one, metavar="N", help="points of a shard (default: 20,000)")
    _add_places(parser)
    parser.set_defaults(run=_lazily("nearkin.cli.embed", "run_shard"))


def _add_export(verbs: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    parser = verbs.add_parser(
        "export",
        help="a model for other runtimes, or its explorer as a folder",
        description=EXPORT,
        epilog=EXPORT_EXAMPLES,
        formatter_class=_RAW,
    )
    parser.add_argument("folder", metavar="FOLDER", help="a model folder")
    parser.add_argument(
        "--onnx",
        nargs="?",
        const="",
        metavar="FILE.onnx",
        help="the network, preparation included, as ONNX, compared with itself (default: model.onnx in FOLDER)",
    )
    parser.add_argument("--page", metavar="OUT", help="the explorer of the folder's index as a folder that opens from disk")
    _add_exploring(parser)
    parser.add_argument("--device", metavar="NAME", help="cpu, cuda, cuda:1 (default: cuda if there is one)")
    parser.set_defaults(run=_lazily("nearkin.cli.export"))


def _add_index(verbs: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    parser = verbs.add_parser(
        "index", help="make or change the index of a model folder", description=INDEX, epilog=INDEX_EXAMPLES, formatter_class=_RAW
    )
    parser.add_argument("folder", metavar="FOLDER", help="a model folder")
    parser.add_argument("data", nargs="?", metavar="DATA", help="as for train")
    parser.add_argument("--add", metavar="DATA", help="add these data")
    parser.add_argument("--delete", metavar="IDS", help="remove points: 3,17,100-199")
    parser.add_argument("--replace", action="store_true", help="make the index anew although there is one")
    parser.add_argument("--backend", choices=("exact", "hnsw", "ivf_pq", "milvus"), help="how to search (default: exact, or as it is)")
    parser.add_argument("--uri", metavar="URI", help="where Milvus is: a path that ends in .db (milvus-lite), or http://host:port")
    parser.add_argument("--name", default="nearkin", metavar="NAME", help="of the collection in Milvus (default: %(default)s)")
    parser.add_argument(
        "--milvus-index", choices=("FLAT", "HNSW", "IVF_FLAT"), default="FLAT", help="Milvus's structure (default: FLAT, which is exact)"
    )
    parser.add_argument("--compact", action="store_true", help="free the room of removed points")
    parser.add_argument("--check", action="store_true", help="compare every file with its checksum")
    _add_places(parser)
    parser.set_defaults(run=_lazily("nearkin.cli.index"))


def _add_search(verbs: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    parser = verbs.add_parser(
        "search", help="which of my images are like this one?", description=SEARCH, epilog=SEARCH_EXAMPLES, formatter_class=_RAW
    )
    parser.add_argument("folder", metavar="FOLDER", help="a model folder with an index")
    parser.add_argument("queries", nargs="*", metavar="QUERY", help="image files, folders of them, or arrays (.npy, .npz) as in training")
    parser.add_argument("--id", type=int, action="append", default=[], metavar="ID", help="a point of the index")
    parser.add_argument("--vector", metavar="NUMBERS", help="an embedding as 1,2,3, or a file of several: .npy, or .npz of `nearkin embed`")
    parser.add_argument("-k", type=_at_least_one, default=10, metavar="K", help="how many neighbors (default: %(default)s)")
    parser.add_argument("--label", action="append", default=[], metavar="NAME", help="only neighbors of this class (may be given again)")
    parser.add_argument(
        "--where", action="append", default=[], metavar="KEY=VALUE", help="only neighbors with this metadata, such as split=test"
    )
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("--device", metavar="NAME", help="cpu, cuda, cuda:1 (default: cuda if there is one)")
    parser.set_defaults(run=_lazily("nearkin.cli.search"))


def _add_serve(verbs: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    parser = verbs.add_parser(
        "serve", help="search over HTTP, and a page to look at", description=SERVE, epilog=SERVE_EXAMPLES, formatter_class=_RAW
    )
    parser.add_argument("folder", metavar="FOLDER", help="a model folder with an index")
    parser.add_argument("--host", default="127.0.0.1", metavar="ADDRESS", help="where to listen (default: %(default)s)")
    parser.add_argument("--port", type=int, default=8000, metavar="N", help="0 takes any free one (default: %(default)s)")
    parser.add_argument("--token", metavar="SECRET", help="what clients must send (default: the environment's NEARKIN_TOKEN)")
    parser.add_argument("--no-browser", action="store_true", help="do not open the page")
    _add_exploring(parser)
    parser.add_argument("--device", metavar="NAME", help="cpu, cuda, cuda:1 (default: cuda if there is one)")
    parser.set_defaults(run=_lazily("nearkin.cli.serve"))


def _add_exploring(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--compare", metavar="OTHER", help="explore beside another model folder that indexed the same points")
    parser.add_argument(
        "--map", choices=("tsne", "pca"), default="tsne", help="how the explorer's map is drawn (default: %(default)s, where openTSNE is)"
    )


def _add_places(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--data-root", metavar="FOLDER", help="where known sets are looked for (default: where the run found its set, or the folder data)"
    )
    parser.add_argument("--device", metavar="NAME", help="cpu, cuda, cuda:1 (default: cuda if there is one)")


def _lazily(module: str, function: str = "run") -> Callable[[argparse.Namespace], int]:
    """A function of the module, imported when called."""

    def run(arguments: argparse.Namespace) -> int:
        status: int = getattr(import_module(module), function)(arguments)
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
