"""The command line: `nearkin VERB ...`, one module for each verb.

This module only defines the arguments. A verb's own module, and torch with it, is imported when the verb runs, so that help,
mistyped options and missing folders are reported at once.
"""

import argparse
import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path

from nearkin import __version__
from nearkin.cli.early_checks import check_arguments, open_given
from nearkin.cli.pipes import CLOSED_PIPE, reader_left
from nearkin.cli.printed import visible
from nearkin.compose.validation import check_device

__all__ = ["main"]

ABOUT = "Learn embeddings whose nearest neighbors are right: from classes, numbers, label sets or no labels at all."
FIRST = """Start here (about a minute on a laptop, no download):
  nearkin demo

Then train on your own images, one folder for each class:
  nearkin train photos/

Help on a verb:
  nearkin train --help"""
DEMO = """Train a small network with NCA on shifted digits and compare its nearest neighbors with those of raw pixels, PCA, LDA,
linear NCA and the same network trained with softmax. Nothing is downloaded."""
DEMO_WRITES = """files written to --out:
  scatter.png           the test digits in 2 dimensions, four embeddings side by side
  metrics.json          all figures, with seeds, seconds, settings and versions
  weights.safetensors   the NCA network with 32 dimensions; model.json describes it, and
                        references.safetensors holds its embeddings of the training digits
  index                 all digits as this network embeds them; `nearkin serve` shows them

examples:
  nearkin demo                          three seeds
  nearkin demo --quick --out runs/try   one seed, few epochs"""
TRAIN = """Train an embedding and save it as a model folder.

If you don't pass --objective, nearkin picks one from your data and prints its choice: NCA for classes, NCA regression for
numbers, neighborhood discovery if there are no labels. Part of labeled data is held out: a validation part to choose the
best weights, and a test part that is evaluated once, at the end. An interrupted training resumes exactly with --resume."""
TRAIN_EXAMPLES = """examples:
  nearkin train photos/                               one folder for each class; writes runs/model
  nearkin train photos/ --out runs/photos
  nearkin train photos/ --encoder mobilenet-v2 --weights mobilenet_v2.pth    start from a pretrained encoder
  nearkin train people.csv --label income             a table of numbers, categories and dates
  nearkin train table.csv --set data.target_columns=x,y
  nearkin train mnist --data-root data --network ren2014-mnist --epochs 20 --set augment.name=shift
  nearkin train vectors.npz --objective precision_at_k --set sampler.name=per_class
  nearkin train unlabeled/ --size 64                  images without labels in one folder, resized to 64 x 64
  nearkin train unlabeled/ --for discovery            the same with a larger network: color images, needs a GPU
  nearkin train birds/ --for retrieval                settings for finding classes that training did not see
  nearkin train photos/ --find-rate                   measure a good learning rate first
  nearkin train --resume runs/photos                  continue an interrupted training"""
EXPORT = """Write the network with its preprocessing as ONNX and check that both give the same embeddings,
or write the explorer of the index as a folder that opens without a server."""
EXPORT_EXAMPLES = """examples:
  nearkin export runs/photos --onnx                   writes runs/photos/model.onnx
  nearkin export runs/photos --onnx photos.onnx
  nearkin export runs/photos --page out/              then open out/index.html in a browser; nearkin is not needed there
  nearkin export runs/photos --page out/ --compare runs/before"""
EMBED = """Compute the embeddings of any data and write them with ids, labels and paths: as one .npz file, or as a folder of
Parquet shards with a manifest, which may be larger than memory (pip install 'nearkin[table]').

For shards, damaged files are listed and left out. Run the same command again to continue an interrupted one. With --engine ray
a Ray cluster does the work (pip install 'nearkin[ray]'); the shards are the same."""
EMBED_EXAMPLES = """examples:
  nearkin embed runs/photos photos/ --out photos.npz
  nearkin embed runs/photos photos/ --out shards/
  nearkin embed runs/photos photos/ --out shards/ --engine ray                            all cores of this machine
  nearkin embed runs/photos photos/ --out shards/ --engine ray --address 10.0.0.1:6379    a cluster that shares its folders"""
SHARD = """Write vectors, or decoded and resized images, with their labels as a folder of Parquet shards
(pip install 'nearkin[table]'). Under torchrun each rank then reads only its own shards, and you can resume a training with a
different number of ranks."""
SHARD_EXAMPLES = """examples:
  nearkin shard photos/ --size 64 --out shards/ --shard-rows 5000
  torchrun --nproc-per-node 8 -m nearkin train shards/ --out runs/photos"""
INDEX = """Build the search index of a model folder, or change it. Every change is on disk when the command returns. Points that
are already in the index, by their path, are skipped, so you can run an interrupted --add again."""
INDEX_EXAMPLES = """examples:
  nearkin index runs/photos photos/                 build the index
  nearkin index runs/photos --add more/             add images
  nearkin index runs/photos --delete 3,17,100-199   remove points by id
  nearkin index runs/photos --rename-class cta=cat  rename a class; --remove-class and --label change classes, too
  nearkin index runs/photos --backend hnsw          approximate search for large collections (pip install 'nearkin[search]')
  nearkin index runs/photos --store int8            vectors in a quarter of the bytes
  nearkin index runs/photos photos/ --replace       rebuild it; the old index is used until the new one is complete
  nearkin index runs/photos photos/ --backend milvus --uri photos.db            in Milvus (pip install 'nearkin[milvus]')
  nearkin index runs/photos shards/ --backend milvus --uri http://host:19530    from shards of `nearkin embed`; can be continued"""
SEARCH = """Find the nearest neighbors of images, vectors, indexed points or embeddings. Each neighbor is listed with its affinity
(larger is nearer), label and path, and with a guess whether it is of the same class as the query."""
SEARCH_EXAMPLES = """examples:
  nearkin search runs/photos query.jpg
  nearkin search runs/photos queries/ -k 5 --json     every image of a folder
  nearkin search runs/photos --id 17 --label cat      the cats nearest to point 17
  nearkin search runs/photos query.jpg --reject 0.05  and whether it is of no known class; so are said to be 5 % of known images
  nearkin search runs/vectors new.npz                 vectors like the training data: the array x, or a .npy file
  nearkin search runs/photos --vector 0.1,-2,0.5      an embedding, or a file of them: --vector queries.npz"""
PREDICT = """Predict the class of images or vectors by the vote of their nearest training points, with the share of these that agree;
or their numbers, as the mean over the nearest."""
PREDICT_EXAMPLES = """examples:
  nearkin predict runs/photos new.jpg
  nearkin predict runs/photos new/ --json
  nearkin predict runs/photos new/ --reject 0.05      "none of these" for images of no known class; needs the index"""
EXPLAIN = """Show the training points that speak for a prediction, those with the largest share of the vote first. Of a table all rows vote,
the nearest the most; otherwise the K nearest, each the same."""
EXPLAIN_EXAMPLES = """examples:
  nearkin explain runs/people new.csv
  nearkin explain runs/people new.csv -k 3 --json"""
TUNE = """Try random settings of a table's training and keep those with the lowest loss on its validation part, then train with them. The
first trial has the defaults, and the test part is measured once, at the end. tune.json in the model folder lists all trials."""
TUNE_EXAMPLES = """examples:
  nearkin tune people.csv --label income --trials 50 --out runs/people"""
SERVE = """Serve the index of a model folder over HTTP, with a page for searching by image and the explorer, a map that shows which
neighbors are wrong. By default only this machine can connect; for other machines pass --host and a token. Changes to the index
are picked up without a restart."""
SERVE_EXAMPLES = """examples:
  nearkin serve runs/photos
  nearkin serve runs/photos --compare runs/before     the explorer with both models side by side
  NEARKIN_TOKEN=... nearkin serve runs/photos --host 0.0.0.0 --port 80 --no-browser
  curl -F image=@query.jpg 'http://127.0.0.1:8000/search?k=5'"""
EXPLORE = """Open vectors that any encoder has computed: evaluate them, index them, and show them as a map on a page.

VECTORS is a .parquet, .npz or .npy file, or a folder of shards of `nearkin embed`. A Parquet file has a column of lists of numbers, and
any of these beside it: label (classes, numbers, or sets such as a|b), id, text, path (of an image), split, group. All other columns are
kept: the page colors by them and `nearkin search --where` filters by them.

Nothing is trained. The result is an ordinary folder, which evaluate, index, search, serve and export take, too; and they take VECTORS in
its place. A model folder is opened as by `nearkin serve`."""
EXPLORE_EXAMPLES = """examples:
  nearkin explore vectors.parquet                          writes vectors.nearkin beside it and opens the page
  nearkin explore vectors.npy --labels labels.csv --images photos/ --metric cosine
  nearkin explore vectors.parquet --label-column genre --out runs/books
  nearkin evaluate vectors.parquet                         the figures only
  nearkin search vectors.parquet --id books/17 --where shop=Berlin
  nearkin export vectors.parquet --page out/               a page that opens without a server"""
CHECK = """Compare every file with its checksum: those of the model, its index, its checkpoints and its map, or the shards of a
folder. Prints a table and exits with 1 if a file is damaged. Files that are opened are compared anyway, with a faster checksum."""
CHECK_EXAMPLES = """examples:
  nearkin check runs/photos
  nearkin check shards/
  nearkin check runs/photos --accept    after you have edited model.json or run.json"""
CLEAN = """List what is probably wrong in data: labels that classifiers contradict which did not see them, exact and near copies, copies in
another split, and outliers. Points are compared by a pretrained encoder's features if there is one, otherwise by pixels, words or vectors:
never by a model that was trained on the labels in question. Writes problems.csv and problems.json."""
CLEAN_EXAMPLES = """examples:
  nearkin clean photos/
  nearkin clean runs/photos            the data of a model folder, over all of its parts
  nearkin clean vectors.npz            embeddings x and labels
  nearkin clean reviews.csv --text text --label stars
  nearkin train photos/ --labels runs/photos-clean/problems.csv    learn from the rows that you accepted"""
PICK = """Choose what to label next: typical points of groups that have no label yet, and, once there are labels, points whose class these
do not tell. Writes picks.csv, in which you fill in the labels."""
PICK_EXAMPLES = """examples:
  nearkin pick photos/ --budget 100
  nearkin pick photos/ --budget 100 --labels runs/photos-pick/picks.csv    the next ones, once these are labeled"""
EVALUATE = """Measure whether a model's nearest neighbors are right. The queries are the test part that the training held out, or DATA;
their neighbors are searched in the training part. Prints a table and writes to the model folder, or to --out:
  report.html            figures with definitions, intervals, chance and counts, pictures, and problems found in the data
  evaluation.json        the same figures for programs
  suspected_labels.csv   labels of all parts that classifiers contradict which did not see them

With DATA, --part or --weights the files go to a folder inside the model folder, such as DIR/evaluation-new or
DIR/evaluation-validation, so that the report of the test part is kept.

With --shards the neighbors are searched in a folder written by `nearkin embed`, which may be larger than memory. Then only
evaluation.json is written, with the figures that follow from ranks."""
EVALUATE_EXAMPLES = """examples:
  nearkin evaluate runs/photos                  the test part of the training
  nearkin evaluate runs/photos --compare        next to raw pixels, PCA, PPCA, LDA, linear NCA and LMNN
  nearkin evaluate runs/photos new/             other images; writes to runs/photos/evaluation-new
  nearkin evaluate runs/photos --part validation
  nearkin evaluate runs/photos --shards shards/ --engine ray    search the shards of `nearkin embed`"""
GIVEN_COLUMNS = {
    "vector": "column of the vectors (default: the one with lists of numbers)",
    "label": "column of the labels (default: label, labels, class or y)",
    "id": "column of the ids (default: id; '' for none)",
    "text": "column of the text to show (default: text)",
    "image": "column of the paths of images (default: path, image, file, ...)",
    "split": "column of train, validation and test (default: split)",
}
_RAW = argparse.RawDescriptionHelpFormatter


def main(argv: Sequence[str] | None = None) -> int:
    """Run one verb.

    Wrong input is reported in one line, Ctrl-C as "stopped", and a closed pipe (`| head`) silently.

    Parameters
    ----------
    argv : sequence of str, optional
        The arguments; those of the process by default.

    Returns
    -------
    int
        The exit status: 0, 1 for wrong input, 130 for Ctrl-C, 141 for a closed pipe.

    Examples
    --------
    >>> from nearkin.cli import main
    >>> main(["evaluate", "no-such-folder"])
    1
    """
    try:
        status = _run(argv)
    except SystemExit as end:  # argparse's after help or a mistake, and rich's when the reader of a pipe has left
        if reader_left(end):
            return CLOSED_PIPE
        raise
    return CLOSED_PIPE if reader_left() else status


@contextmanager
def _warnings_in_words() -> Iterator[None]:
    """Show warnings of nearkin as a line, without the place in its source that Python shows."""
    package, usual = str(Path(__file__).parents[1]), warnings.formatwarning

    def worded(message: Warning | str, category: type[Warning], filename: str, lineno: int, line: str | None = None) -> str:
        return f"warning: {message}\n" if filename.startswith(package) else usual(message, category, filename, lineno, line)

    warnings.formatwarning = worded
    try:
        yield
    finally:
        warnings.formatwarning = usual


def _run(argv: Sequence[str] | None) -> int:
    parser = _parser()
    arguments = parser.parse_args(argv)
    if arguments.verb is None:
        parser.print_help()
        return 0
    try:
        open_given(arguments)
        check_arguments(arguments)
        if getattr(arguments, "device", None):
            check_device("--device", arguments.device)
        with _warnings_in_words():
            status: int = arguments.run(arguments)
        return status
    except KeyboardInterrupt:
        print("\nstopped", file=sys.stderr)
        return 130
    except (ValueError, OSError, ImportError) as error:
        if reader_left(error):
            return CLOSED_PIPE
        print(f"nearkin {arguments.verb}: {visible(str(error))}", file=sys.stderr)
        return 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="nearkin", description=ABOUT, epilog=FIRST, formatter_class=_RAW)
    parser.add_argument("--version", action="version", version=f"nearkin {__version__}")
    verbs = parser.add_subparsers(dest="verb", metavar="VERB", title="verbs")
    _add_demo(verbs)
    _add_train(verbs)
    _add_tune(verbs)
    _add_evaluate(verbs)
    _add_clean(verbs)
    _add_pick(verbs)
    _add_embed(verbs)
    _add_shard(verbs)
    _add_export(verbs)
    _add_predict(verbs)
    _add_explain(verbs)
    _add_index(verbs)
    _add_search(verbs)
    _add_explore(verbs)
    _add_serve(verbs)
    _add_check(verbs)
    for verb in verbs.choices.values():
        verb.allow_abbrev = False  # `evaluate RUN --data new.csv` would be --data-root, and new.csv not read
    return parser


def _add_demo(verbs: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    parser = verbs.add_parser(
        "demo",
        help="train on scikit-learn's digits and compare embeddings (a minute, no download)",
        description=DEMO,
        epilog=DEMO_WRITES,
        formatter_class=_RAW,
    )
    parser.add_argument("--out", type=Path, default=Path("runs/demo"), metavar="FOLDER", help="folder to write (default: %(default)s)")
    parser.add_argument("--seeds", type=_at_least_one, metavar="N", help="networks trained for each row (default: 3, or 1 with --quick)")
    parser.add_argument("--quick", action="store_true", help="one seed and few epochs, to see that it runs (about 10 seconds)")
    parser.set_defaults(run=_lazily("nearkin.cli.demo"))


def _add_train(verbs: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    parser = verbs.add_parser(
        "train", help="train an embedding on your data", description=TRAIN, epilog=TRAIN_EXAMPLES, formatter_class=_RAW
    )
    parser.add_argument(
        "data",
        nargs="?",
        metavar="DATA",
        help="a folder of images, a table (.csv, .parquet), an .npz file, or a known data set such as digits or mnist",
    )
    parser.add_argument("--out", default="runs/model", metavar="FOLDER", help="the model folder to write (default: %(default)s)")
    parser.add_argument("--resume", metavar="FOLDER", help="continue the training in this folder")
    parser.add_argument(
        "--text", metavar="COLUMN", help="learn from the texts in this column of a table; of two, as a,b, rows are positive pairs"
    )
    parser.add_argument("--label", metavar="COLUMN", help="the column of a table with the classes (default: label)")
    parser.add_argument("--ignore", metavar="COLUMNS", help="columns of a table that are not read, as notes,comment")
    parser.add_argument("--keep", metavar="COLUMNS", help="columns of a table that are used although they look like an id")
    parser.add_argument("--category", metavar="COLUMNS", help="columns of a table whose numbers are names, as zip,store")
    parser.add_argument("--labels", metavar="FILE.csv", help="corrected labels, such as the explorer saves: columns path and label")
    parser.add_argument(
        "--objective", metavar="NAME", help="nca, nca_regression, precision_at_k, ... (default: chosen from the kind of labels)"
    )
    parser.add_argument("--for", dest="purpose", metavar="PURPOSE", help="use the settings for a purpose: retrieval or discovery")
    parser.add_argument("--network", metavar="NAME", help="convnet, mlp, resnet18, ren2014-mnist, timm:NAME, ... (default: convnet or mlp)")
    parser.add_argument(
        "--encoder",
        metavar="NAME",
        help="start from a pretrained encoder: mobilenet-v2, timm:NAME, torchvision:NAME, hf:NAME or a file of weights; for texts "
        "hf:NAME or sentence-transformers:NAME, or a folder instead of NAME (default for photographs and texts: one on this machine)",
    )
    parser.add_argument("--weights", metavar="FILE", help="the weights of --encoder (default: looked for on this machine)")
    parser.add_argument("--download", action="store_true", help="fetch the weights of --encoder if they are not on this machine")
    parser.add_argument("--from-scratch", action="store_true", help="do not start from a pretrained encoder")
    parser.add_argument(
        "--tune", metavar="WHAT", help="what to train of an encoder: none, head, lora, lora=RANK, last-blocks=N or all (default: head)"
    )
    parser.add_argument("--dimension", type=_at_least_one, metavar="D", help="dimensions of the embedding (default: 64)")
    parser.add_argument(
        "--size",
        type=_at_least_one,
        metavar="PIXELS",
        help="resize images and cut out the center (default: the encoder's size, or by the images)",
    )
    parser.add_argument("--skip-damaged", action="store_true", help="leave out image files that cannot be read; they are named and counted")
    parser.add_argument("--codes", action="store_true", help="learn a binary code of D bits, searched by Hamming distance")
    parser.add_argument(
        "--epochs", type=_at_least_one, metavar="N", help="passes over the training part (default: 20, more for few points)"
    )
    parser.add_argument("--seed", type=int, metavar="N", help="seed of weights, order and random draws (default: 0)")
    parser.add_argument(
        "--track", choices=("tensorboard", "wandb", "mlflow"), help="also write the curves for this tracker, into the model folder"
    )
    parser.add_argument(
        "--find-rate",
        action="store_true",
        help="first raise the learning rate over a hundred steps, save the curve, and train with the largest rate at which the loss falls",
    )
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="SETTING=VALUE",
        help="any other setting; a mistyped name is answered with the right ones",
    )
    _add_places(parser)
    parser.set_defaults(run=_lazily("nearkin.cli.train", "run_train"))


def _add_evaluate(verbs: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    parser = verbs.add_parser(
        "evaluate",
        help="measure whether the neighbors are right: a table, JSON and an HTML report",
        description=EVALUATE,
        epilog=EVALUATE_EXAMPLES,
        formatter_class=_RAW,
    )
    parser.add_argument("folder", metavar="DIR", help="a model folder, or a file of vectors")
    parser.add_argument("data", nargs="?", metavar="DATA", help="other queries, as for train (default: the part that was held out)")
    parser.add_argument("--part", choices=("test", "validation"), default="test", help="the part of the queries (default: %(default)s)")
    parser.add_argument(
        "--weights", choices=("best", "last"), default="best", help="which weights (default: best, chosen on the validation part)"
    )
    parser.add_argument(
        "--compare", action="store_true", help="also fit classical methods on the same data and show them next to the model"
    )
    parser.add_argument(
        "--queries", type=_at_least_one, default=5000, metavar="N", help="queries drawn from given vectors without splits (default: 5,000)"
    )
    parser.add_argument(
        "--references", type=_at_least_one, metavar="N", help="references drawn from given vectors without splits (default: all others)"
    )
    parser.add_argument(
        "--pairs", type=_at_least_one, default=1 << 26, metavar="N", help="pairs that the curves count at most (default: 67 million)"
    )
    parser.add_argument(
        "--no-label-check", action="store_true", help="do not look for wrong labels, which takes long for many points; `nearkin clean` does"
    )
    parser.add_argument("--probes", action="store_true", help="also fit softmax regression on the output of every layer")
    _add_rescale(parser, "also rank with affinities that are corrected for hubs, references that are near to everything")
    pictures = parser.add_mutually_exclusive_group()
    pictures.add_argument("--figures", action="store_true", help="also write every picture as .png and .svg")
    pictures.add_argument("--no-pictures", action="store_true", help="draw no pictures: faster, and matplotlib is not needed")
    parser.add_argument("--out", metavar="FOLDER", help="folder to write (default: DIR, or a folder in it for other queries)")
    parser.add_argument("--shards", metavar="SHARDS", help="search this folder of `nearkin embed`, which may be larger than memory")
    parser.add_argument("--engine", choices=("local", "ray"), default="local", help="what searches the shards (default: this process)")
    parser.add_argument("--address", metavar="HOST:PORT", help="address of a Ray cluster, or auto (default: Ray on this machine)")
    _add_places(parser)
    _add_verify(parser)
    _add_given(parser)
    parser.set_defaults(run=_lazily("nearkin.cli.evaluate"))


def _add_clean(verbs: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    parser = verbs.add_parser(
        "clean",
        help="list probable label errors, copies, leaks and outliers",
        description=CLEAN,
        epilog=CLEAN_EXAMPLES,
        formatter_class=_RAW,
    )
    _add_unlearned(parser)
    parser.set_defaults(run=_lazily("nearkin.cli.clean"))


def _add_pick(verbs: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    parser = verbs.add_parser("pick", help="choose what to label next", description=PICK, epilog=PICK_EXAMPLES, formatter_class=_RAW)
    _add_unlearned(parser)
    parser.add_argument("--budget", type=_at_least_one, default=100, metavar="N", help="how many points to choose (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="seed of the grouping (default: %(default)s)")
    parser.set_defaults(run=_lazily("nearkin.cli.pick"))


def _add_unlearned(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("data", metavar="DATA", help="data as for train, or a model folder")
    parser.add_argument(
        "--labels",
        action="append",
        metavar="FILE.csv",
        help="labels that replace those of the data: columns path and label; of vectors also those of explore (can be repeated)",
    )
    parser.add_argument("--text", metavar="COLUMN", help="compare the texts in this column of a table")
    parser.add_argument("--label", metavar="COLUMN", help="the column of a table with the classes (default: label)")
    parser.add_argument("--ignore", metavar="COLUMNS", help="columns of a table that are not read, as notes,comment")
    parser.add_argument("--keep", metavar="COLUMNS", help="columns of a table that are used although they look like an id")
    parser.add_argument("--category", metavar="COLUMNS", help="columns of a table whose numbers are names, as zip,store")
    parser.add_argument(
        "--encoder", metavar="NAME", help="the encoder of images or texts, as for train (default: one that is on this machine)"
    )
    parser.add_argument("--weights", metavar="FILE", help="the weights of --encoder (default: looked for on this machine)")
    parser.add_argument("--out", metavar="FOLDER", help="folder to write (default: in the model folder, or in runs/)")
    _add_places(parser)
    _add_verify(parser)
    group = parser.add_argument_group("for a file of vectors (default: as `nearkin explore` has read it, or the usual names)")
    for role in ("vector", "id", "text", "split"):
        group.add_argument(f"--{role}-column", metavar="NAME", help=GIVEN_COLUMNS[role])


def _add_embed(verbs: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    parser = verbs.add_parser(
        "embed", help="compute the embeddings of any data", description=EMBED, epilog=EMBED_EXAMPLES, formatter_class=_RAW
    )
    parser.add_argument("folder", metavar="FOLDER", help="a model folder")
    parser.add_argument("data", metavar="DATA", help="as for train")
    parser.add_argument("--out", required=True, metavar="FILE.npz|SHARDS", help="one file to write, or a folder of shards")
    _add_sharding(parser)
    _add_places(parser)
    _add_verify(parser)
    parser.set_defaults(run=_lazily("nearkin.cli.embed"))


def _add_shard(verbs: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    parser = verbs.add_parser(
        "shard",
        help="write data as shards, for training on several machines",
        description=SHARD,
        epilog=SHARD_EXAMPLES,
        formatter_class=_RAW,
    )
    parser.add_argument("data", metavar="DATA", help="as for train")
    parser.add_argument("--out", required=True, metavar="SHARDS", help="the folder to write")
    parser.add_argument("--size", type=_at_least_one, metavar="PIXELS", help="resize the short side of images and crop the center")
    _add_sharding(parser)
    _add_places(parser)
    _add_verify(parser)
    parser.set_defaults(run=_lazily("nearkin.cli.embed", "run_shard"))


def _add_export(verbs: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    parser = verbs.add_parser(
        "export",
        help="write the model as ONNX, or its explorer as a folder",
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
        help="write the network with its preprocessing as ONNX and compare both (default: model.onnx in FOLDER)",
    )
    parser.add_argument("--page", metavar="OUT", help="write the explorer of the index as a folder that opens without a server")
    _add_exploring(parser)
    _add_device(parser)
    _add_verify(parser)
    _add_uri(parser)
    _add_given(parser)
    parser.set_defaults(run=_lazily("nearkin.cli.export"))


def _add_tune(verbs: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    parser = verbs.add_parser(
        "tune",
        help="search for settings of a table, then train with the best",
        description=TUNE,
        epilog=TUNE_EXAMPLES,
        formatter_class=_RAW,
    )
    parser.add_argument("data", metavar="TABLE", help="a table (.csv, .tsv, .parquet) whose rows are the points")
    parser.add_argument("--label", metavar="COLUMN", help="the column with the classes or numbers (default: label)")
    parser.add_argument("--ignore", metavar="COLUMNS", help="columns of a table that are not read, as notes,comment")
    parser.add_argument("--keep", metavar="COLUMNS", help="columns of a table that are used although they look like an id")
    parser.add_argument("--category", metavar="COLUMNS", help="columns of a table whose numbers are names, as zip,store")
    parser.add_argument("--trials", type=_at_least_one, default=50, metavar="N", help="settings to try (default: %(default)s)")
    parser.add_argument("--out", default="runs/model", metavar="FOLDER", help="the model folder to write (default: %(default)s)")
    parser.add_argument("--seed", type=int, metavar="N", help="seed of the split, the settings and the training (default: 0)")
    parser.add_argument("--set", action="append", default=[], metavar="NAME=VALUE", help="any setting of `nearkin train`; repeatable")
    _add_device(parser)
    parser.set_defaults(run=_lazily("nearkin.cli.tune"))


def _add_predict(verbs: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    parser = verbs.add_parser(
        "predict",
        help="predict the label of images, rows, texts or vectors",
        description=PREDICT,
        epilog=PREDICT_EXAMPLES,
        formatter_class=_RAW,
    )
    parser.add_argument("folder", metavar="FOLDER", help="a model folder; it needs no index")
    _add_queries(parser, k=10, means="number of neighbors that vote")
    _add_reject(parser)
    parser.add_argument("--out", metavar="FILE", help="write all predictions to this .csv file, and print the first ones")
    _add_device(parser)
    _add_verify(parser)
    _add_given(parser)
    parser.set_defaults(run=_lazily("nearkin.cli.predict"))


def _add_explain(verbs: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    parser = verbs.add_parser(
        "explain",
        help="show the training points that speak for a prediction",
        description=EXPLAIN,
        epilog=EXPLAIN_EXAMPLES,
        formatter_class=_RAW,
    )
    parser.add_argument("folder", metavar="FOLDER", help="a model folder; its training data must be where they were")
    _add_queries(parser, k=5, means="points for each query")
    _add_places(parser)
    _add_verify(parser)
    parser.set_defaults(run=_lazily("nearkin.cli.explain"))


def _add_queries(parser: argparse.ArgumentParser, k: int, means: str) -> None:
    parser.add_argument(
        "queries", nargs="+", metavar="QUERY", help="image files, folders of images, sentences, or data like those of the training"
    )
    parser.add_argument("-k", type=_at_least_one, default=k, metavar="K", help=f"{means} (default: %(default)s)")
    parser.add_argument("--json", action="store_true", help="print JSON")


def _add_index(verbs: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    parser = verbs.add_parser(
        "index", help="build or change the search index of a model folder", description=INDEX, epilog=INDEX_EXAMPLES, formatter_class=_RAW
    )
    parser.add_argument("folder", metavar="FOLDER", help="a model folder")
    parser.add_argument("data", nargs="?", metavar="DATA", help="build the index from these data, as for train")
    parser.add_argument("--add", metavar="DATA", help="add these data to the index")
    parser.add_argument("--delete", metavar="IDS", help="remove points by id, such as 3,17,100-199")
    parser.add_argument("--replace", action="store_true", help="rebuild the index if there is one already")
    parser.add_argument(
        "--backend", choices=("exact", "hnsw", "ivf_pq", "milvus"), help="how to search (default: exact, or what the index has)"
    )
    parser.add_argument("--uri", metavar="URI", help="where Milvus is: a path that ends in .db (milvus-lite), or http://host:port")
    parser.add_argument("--name", default="nearkin", metavar="NAME", help="name of the collection in Milvus (default: %(default)s)")
    parser.add_argument(
        "--milvus-index", choices=("FLAT", "HNSW", "IVF_FLAT"), default="FLAT", help="index type in Milvus (default: FLAT, which is exact)"
    )
    _add_store(parser)
    parser.add_argument("--rename-class", metavar="OLD=NEW", help="rename a class, or join it with another one")
    parser.add_argument("--remove-class", metavar="NAME", help="remove a class and its points")
    parser.add_argument("--label", metavar="NAME=IDS", help="give points a class, which may be new, such as cat=3,17,100-199")
    parser.add_argument("--compact", action="store_true", help="free the disk space of removed points")
    parser.add_argument("--check", action="store_true", help="compare every file with its checksum")
    _add_places(parser)
    _add_verify(parser)
    _add_given(parser)
    parser.set_defaults(run=_lazily("nearkin.cli.index"))


def _add_search(verbs: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    parser = verbs.add_parser(
        "search", help="find the nearest neighbors of an image or vector", description=SEARCH, epilog=SEARCH_EXAMPLES, formatter_class=_RAW
    )
    parser.add_argument("folder", metavar="FOLDER", help="a model folder with an index, or a file of vectors")
    parser.add_argument(
        "queries",
        nargs="*",
        metavar="QUERY",
        help="image files, folders of images, sentences, or arrays (.npy, .npz) like the training data",
    )
    parser.add_argument(
        "--id", action="append", default=[], metavar="ID", help="a point of the index, by the id of its table, its path or its number"
    )
    parser.add_argument(
        "--vector", metavar="NUMBERS", help="an embedding such as 1,2,3, or a file of embeddings: .npy, or .npz of `nearkin embed`"
    )
    parser.add_argument("-k", type=_at_least_one, default=10, metavar="K", help="number of neighbors (default: %(default)s)")
    parser.add_argument("--label", action="append", default=[], metavar="NAME", help="only neighbors of this class (can be repeated)")
    parser.add_argument(
        "--where", action="append", default=[], metavar="KEY=VALUE", help="only neighbors with this metadata, such as split=test"
    )
    _add_reject(parser)
    _add_rescale(parser, "rank by affinities that are corrected for hubs, references that are near to everything")
    parser.add_argument("--json", action="store_true", help="print JSON")
    _add_device(parser)
    _add_verify(parser)
    _add_uri(parser)
    _add_given(parser)
    parser.set_defaults(run=_lazily("nearkin.cli.search"))


def _add_serve(verbs: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    parser = verbs.add_parser(
        "serve", help="search over HTTP, with an explorer page", description=SERVE, epilog=SERVE_EXAMPLES, formatter_class=_RAW
    )
    parser.add_argument("folder", metavar="FOLDER", help="a model folder with an index, or a file of vectors")
    _add_listening(parser)
    _add_given(parser)
    parser.set_defaults(run=_lazily("nearkin.cli.serve"))


def _add_store(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--store", choices=("float32", "int8", "binary"), help="how vectors are stored: int8 needs a quarter of the bytes, binary a 32nd"
    )


def _add_explore(verbs: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    parser = verbs.add_parser(
        "explore",
        help="evaluate, index and show vectors that you already have",
        description=EXPLORE,
        epilog=EXPLORE_EXAMPLES,
        formatter_class=_RAW,
    )
    parser.add_argument("folder", metavar="VECTORS", help="a file of vectors, a folder of shards, or a model folder with an index")
    parser.add_argument("--out", metavar="FOLDER", help="the folder to write (default: beside the file, with the ending .nearkin)")
    parser.add_argument("--replace", action="store_true", help="build the folder again; changes of its index are lost")
    _add_store(parser)
    parser.add_argument("--no-evaluation", action="store_true", help="do not evaluate")
    parser.add_argument("--no-serve", action="store_true", help="write the folder and its evaluation, and end")
    _add_listening(parser)
    _add_given(parser)
    parser.set_defaults(run=_lazily("nearkin.cli.explore"))


def _add_listening(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--host", default="127.0.0.1", metavar="ADDRESS", help="address to listen on (default: %(default)s)")
    parser.add_argument("--port", type=int, default=8000, metavar="N", help="port; 0 picks a free one (default: %(default)s)")
    parser.add_argument("--token", metavar="SECRET", help="token that clients must send (default: $NEARKIN_TOKEN)")
    parser.add_argument("--no-browser", action="store_true", help="do not open the explorer in a browser")
    _add_exploring(parser)
    _add_device(parser)
    _add_verify(parser)
    _add_uri(parser)


def _add_given(parser: argparse.ArgumentParser) -> None:
    """The options of all verbs that take vectors in place of a model folder."""
    group = parser.add_argument_group("for a file of vectors")
    group.add_argument(
        "--labels",
        action="append",
        metavar="FILE",
        help="labels of the vectors: a table with a row for each, or a column id; or corrections: columns path and label (can be repeated)",
    )
    group.add_argument(
        "--images", metavar="FOLDER", help="images to show: named in the table, or one for each vector in the order of names"
    )
    group.add_argument(
        "--metric",
        choices=("cosine", "squared_euclidean", "inner_product", "hamming"),
        help="how vectors are compared (default: by their lengths)",
    )
    for role, what in GIVEN_COLUMNS.items():
        group.add_argument(f"--{role}-column", metavar="NAME", help=what)
    group.add_argument("--target-columns", metavar="A,B", help="columns of numbers that neighbors are judged by (default: target)")
    group.add_argument("--columns", metavar="A,B", help="columns to keep as metadata (default: all, at most 100)")


def _add_check(verbs: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    parser = verbs.add_parser(
        "check",
        help="compare every file of a model, an index or shards with its checksum",
        description=CHECK,
        epilog=CHECK_EXAMPLES,
        formatter_class=_RAW,
    )
    parser.add_argument("folder", metavar="FOLDER", help="a model folder, the folder of an index, or a folder of shards")
    parser.add_argument(
        "--accept", action="store_true", help="record the files of the model folder as they are now, after you have edited them on purpose"
    )
    parser.set_defaults(run=_lazily("nearkin.cli.check"))


def _add_rescale(parser: argparse.ArgumentParser, what: str) -> None:
    parser.add_argument("--rescale", choices=("csls", "local_scaling"), help=what)


def _add_reject(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--reject", type=float, metavar="SHARE", help="say which queries are of no known class, such that this share of known ones is, too"
    )


def _add_exploring(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--compare", metavar="OTHER", help="also show another model folder that indexed the same points")
    parser.add_argument(
        "--map",
        choices=("tsne", "pca"),
        default="tsne",
        help="how the explorer's map is computed (default: %(default)s; pca if openTSNE is not installed)",
    )


def _add_sharding(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--engine", choices=("local", "ray"), help="what writes the shards: this process, or Ray (default: local)")
    parser.add_argument("--address", metavar="HOST:PORT", help="address of a Ray cluster, or auto (default: Ray on this machine)")
    parser.add_argument("--shard-rows", type=_at_least_one, metavar="N", help="points in a shard (default: 20,000)")


def _add_places(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--data-root", metavar="FOLDER", help="folder of the known data sets (default: the one used for training, or data)")
    _add_device(parser)


def _add_verify(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--no-verify", action="store_true", help="do not compare the files with their checksums; opens what is damaged")


def _add_uri(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--uri", metavar="URI", help="confirm the address of Milvus that the folder names; needed once for folders of others"
    )


def _add_device(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--device", metavar="NAME", help="cpu, cuda, cuda:1 (default: cuda if available)")


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
