"""Embeddings that no label has touched, for judging labels and for choosing what to label: an encoder's features, or plain inputs."""

import hashlib
from argparse import Namespace
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

from nearkin import data as sources
from nearkin.cli.evaluation_data import whole_data
from nearkin.cli.given import made_already
from nearkin.cli.progress import TrainingView
from nearkin.compose.affinity import Affinity, cosine
from nearkin.data.corrections import corrected, labels_and_corrections
from nearkin.data.dataset import Dataset
from nearkin.data.images import Files, image_files
from nearkin.data.loader import Loader
from nearkin.data.opener import DATA_ROOT
from nearkin.data.pixels import Framing
from nearkin.data.preprocess import describe
from nearkin.data.sources.vector_tables import VectorColumns, holds_vector_array, holds_vectors
from nearkin.data.sources.vectors import open_vectors
from nearkin.data.texts import Texts
from nearkin.models import build
from nearkin.models.encoders import Encoder, find_encoder, installed_encoder, weights_digest
from nearkin.models.feature_cache import feature_key, has_contents
from nearkin.models.folder import load
from nearkin.models.text_encoders import HOW_TO_GET_ONE, find_text_encoder, fit_words, installed_text_encoder
from nearkin.train.encoder import are_photographs
from nearkin.train.features import Featured, facts_of, featured
from nearkin.train.inputs import Prepare

READ = ("vector_column", "id_column", "text_column", "split_column")  # options for a file of vectors
OF_TEXTS = ("hf", "sentence-transformers")  # libraries whose encoders read texts
SIDE = 32  # pixels of images whose own pixels are compared
COMPONENTS = 100  # principal components of pixels
FITTED_ON = 10_000  # images from which the components are computed


class Unlearned(NamedTuple):
    """Data, an embedding of every point, the affinity to compare them by, and what they are, in words."""

    data: Dataset
    embeddings: Tensor  # (n, d)
    affinity: Affinity | None
    words: str


def unlearned(arguments: Namespace, out: Path, view: TrainingView, check: Callable[[Dataset], None] | None = None) -> Unlearned:
    """The data that the arguments name, or those of a model folder with their parts; features are kept in `out`.

    `check` looks at the data before anything is computed.
    """
    folder = folder_of(arguments)
    if folder is None:
        data = _opened(arguments, view)
        if check is not None:
            check(data)
        return _embedded(data, arguments, out, view)
    data = whole_data(Namespace(**vars(arguments), folder=str(folder)), folder, view.message)
    data = _corrected(data, arguments.labels or (), view)
    if check is not None:
        check(data)
    model = load(folder, device=arguments.device, verify=not arguments.no_verify)
    if arguments.encoder is None and model.has_features and "features" in model.about and has_contents(data):
        prepare = Prepare(model.prepare, data.kind)
        found = featured(model.network.body, prepare, data, folder, model.about["features"], model.device, view)  # type: ignore[arg-type]
        return _of_features(found, model.about["network"]["name"])
    return _embedded(data, arguments, out, view)


def folder_of(arguments: Namespace) -> Path | None:
    """The model folder that is named, or the one of a file of vectors that explore has made, if no option says how else to read it."""
    path = Path(arguments.data)
    if (path / "model.json").exists():
        return path
    named = any(getattr(arguments, name) is not None for name in ("text", "label", *READ))
    if named or not is_vectors(arguments.data) or labels_and_corrections(arguments.labels or ())[0]:
        return None
    return made_already(path)


def is_vectors(source: str) -> bool:
    """Whether this is a table with a column of vectors, or an array of them, whatever else it holds."""
    path = Path(source)
    return path.is_file() and (holds_vectors(path, "") or holds_vector_array(path))


def _opened(arguments: Namespace, view: TrainingView) -> Dataset:
    """The data that are named; the vectors of a table that has any, although it names images, too."""
    options: dict[str, Any] = {"on_error": "skip", "report": view.message}
    if arguments.text is None and is_vectors(arguments.data):
        labels, corrections = labels_and_corrections(arguments.labels or ())
        data = open_vectors(arguments.data, labels=labels, columns=columns_of(arguments), **options)
        return _corrected(data, corrections, view)
    columns = {"text_column": arguments.text, "label_column": arguments.label}
    columns |= {"ignore_columns": arguments.ignore, "keep_columns": arguments.keep, "category_columns": arguments.category}
    data = sources.open(arguments.data, data_root=arguments.data_root or DATA_ROOT, keep_unlabeled=True, **columns, **options)
    return _corrected(data, arguments.labels or (), view)


def columns_of(arguments: Namespace) -> VectorColumns:
    """The columns that options name, for vectors."""
    return VectorColumns(label=arguments.label, **{name.removesuffix("_column"): getattr(arguments, name) for name in READ})


def _corrected(data: Dataset, tables: Sequence[str], view: TrainingView) -> Dataset:
    for table in tables:
        data = corrected(data, table, view.message)
    return data


def _embedded(data: Dataset, arguments: Namespace, out: Path, view: TrainingView) -> Unlearned:
    if data.kind == "vectors":
        rows = data.read(data.ids)
        if data.table is None:
            return Unlearned(data, rows, None, "the vectors themselves")
        columns = torch.from_numpy(data.table.standardized(rows.numpy(), rows.numpy()))
        return Unlearned(data, columns, None, "the columns of the table, standardized")
    if isinstance(data.inputs, Texts):
        return _encoded_texts(data, data.inputs, arguments, out, view)
    if isinstance(data.inputs, Files):
        named = None if arguments.encoder is None else find_encoder(arguments.encoder, arguments.weights)
        encoder = named or (installed_encoder() if are_photographs(data) else None)
        if encoder is not None:
            return _encoded(data, encoder, arguments.device, out, view)
        framing = Framing(SIDE)
        data = replace(data, inputs=image_files(data.inputs.paths, framing, data.shape[0], data.inputs.on_error))
    return _by_pixels(data, view)


def _encoded(data: Dataset, encoder: Encoder, device: str | None, out: Path, view: TrainingView) -> Unlearned:
    """The features of a pretrained encoder, from the cache in `out` if they are there."""
    assert isinstance(data.inputs, Files)
    framing, steps = encoder.reading.framing, (encoder.reading.standardize,)
    images = replace(data, inputs=image_files(data.inputs.paths, framing, 3, data.inputs.on_error))
    about = {"network": {"name": encoder.network}, "shape": [3, framing.size, framing.size], "prepare": describe(steps)}
    key = feature_key(**facts_of(about, weights_digest(encoder.weights)))
    body = build(encoder.network, image_shape=(3, framing.size, framing.size), weights=encoder.weights, **encoder.options).body
    place = torch.device(device or ("cuda" if torch.cuda.is_available() else "cpu"))
    found = featured(body, Prepare(steps, "images"), images, out, key, place, view)  # type: ignore[arg-type]
    return _of_features(found, encoder.network)


def _encoded_texts(data: Dataset, texts: Texts, arguments: Namespace, out: Path, view: TrainingView) -> Unlearned:
    """The features of a text encoder: the one that is named, one that is on this machine, or word vectors of these texts."""
    if arguments.encoder is not None and arguments.encoder.partition(":")[0] not in OF_TEXTS:
        raise ValueError(
            f"encoder {arguments.encoder} reads images, and {data.name} holds texts; name hf:NAME or sentence-transformers:NAME"
        )
    found = installed_text_encoder() if arguments.encoder is None else find_text_encoder(arguments.encoder, arguments.weights)
    if found is None:
        view.message(f"no pretrained text encoder was found, so word vectors are fitted to the texts; for better ones, {HOW_TO_GET_ONE}")
        found = fit_words(texts.texts, out / "encoder")
    length = found.tokenizer.length
    content = hashlib.sha256(found.tokenizer.content().encode()).hexdigest()
    about = {"network": {"name": found.network}, "shape": [length], "prepare": [], "tokenizer": content}
    key = feature_key(**facts_of(about, weights_digest(found.weights)))
    network = build(found.network, dimension_in=length, weights=found.weights, **found.options)
    place = torch.device(arguments.device or ("cuda" if torch.cuda.is_available() else "cpu"))
    read = replace(data, inputs=replace(texts, tokenizer=found.tokenizer))
    return _of_features(featured(network.body, Prepare((), "texts"), read, out, key, place, view), found.network)  # type: ignore[arg-type]


def _of_features(found: Featured, name: str) -> Unlearned:
    assert isinstance(found.features.inputs, Tensor)
    return Unlearned(found.images, found.features.inputs, cosine(), f"the features of the frozen encoder {name}")


def _by_pixels(data: Dataset, view: TrainingView) -> Unlearned:
    """Principal components of small images."""
    loader = Loader(data, report=view.message)
    parts, kept = [], []
    for inputs, ids in loader(torch.split(data.ids, 512)):
        x = inputs.float() / 255
        parts.append(
            (functional.interpolate(x, (SIDE, SIDE), mode="bilinear", antialias=True) if max(x.shape[2:]) > SIDE else x).flatten(1)
        )
        kept.append(ids)
    rows = torch.cat(parts)
    some = rows[torch.randperm(len(rows), generator=torch.Generator().manual_seed(0))[:FITTED_ON]]
    _, vectors = torch.linalg.eigh((some - some.mean(0)).T @ (some - some.mean(0)))
    words = (
        f"{min(COMPONENTS, rows.shape[1])} principal components of the pixels; a pretrained encoder judges photographs better (--encoder)"
    )
    return Unlearned(data.subset(data.rows(torch.cat(kept))), (rows - some.mean(0)) @ vectors[:, -COMPONENTS:], None, words)


def texts_of(data: Dataset) -> Sequence[str | None] | None:
    """The text of every point for a person to read, None if the data have none."""
    return data.inputs.texts if isinstance(data.inputs, Texts) else data.columns.get("text")


def place_names(data: Dataset) -> list[str]:
    """How a table names every point, so that `--labels` finds it again: the path of its file, or its source."""
    if not isinstance(data.inputs, Files):
        return list(data.sources)
    paths = [str(Path(path).absolute()) for path in data.inputs.paths]
    return paths if len(set(paths)) == len(paths) else list(data.sources)
