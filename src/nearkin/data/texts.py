"""Texts, read as rows of token numbers by the tokenizer of the encoder that is to read them.

A tokenizer is to texts what a decoder is to image files: from what is stored to what a network reads. One file,
tokenizer.json, restores it.
"""

import hashlib
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from importlib import import_module
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

NOTHING = -1  # after the last token of a text
LENGTH = 512  # tokens at most that are read of a text, unless the encoder reads fewer
CHARACTERS = (
    32  # a token at most, on average: what lies beyond is cut before it is tokenized, so that a text of a million words costs nothing
)
WORD = re.compile(r"\w+")
HASHED = 1024  # numbers of a text as hashed word counts


class Tokenizer(Protocol):
    """From texts to rows of token numbers."""

    @property
    def length(self) -> int:
        """Tokens of one text."""

    def __call__(self, texts: Sequence[str]) -> Tensor:
        """(n, length) int32; -1 after the last token."""

    def content(self) -> str:
        """The content of tokenizer.json."""


@dataclass(frozen=True, eq=False)
class Texts:
    """n texts that a tokenizer reads.

    Parameters
    ----------
    texts : sequence of str
        The texts; none may be empty.
    tokenizer : Tokenizer, optional
        What reads them; training sets that of its encoder.

    Examples
    --------
    >>> from nearkin.data import Texts
    >>> from nearkin.data.texts import WordTokenizer
    >>> texts = Texts(["a red car", "a blue car"], WordTokenizer(("red", "car", "red car"), length=4))
    >>> texts.read([0, 1])
    tensor([[ 0,  2,  1, -1],
            [ 1, -1, -1, -1]], dtype=torch.int32)
    """

    texts: Sequence[str] = field(repr=False)
    tokenizer: Tokenizer | None = field(default=None, repr=False)

    def __len__(self) -> int:
        return len(self.texts)

    @property
    def shape(self) -> tuple[int, ...]:
        """(tokens of one text,)."""
        return (LENGTH if self.tokenizer is None else self.tokenizer.length,)

    def read(self, rows: Tensor | Sequence[int]) -> Tensor:
        """Read texts.

        Parameters
        ----------
        rows : Tensor or sequence of int
            (b,) rows.

        Returns
        -------
        Tensor
            (b, length) int32 token numbers; -1 after the last token.

        Raises
        ------
        ValueError
            If there is no tokenizer.
        """
        if self.tokenizer is None:
            raise ValueError("these texts have no tokenizer; train a model on them, or pass them to a model as they are (a list of texts)")
        return self.tokenizer([self.texts[int(row)] for row in rows])

    def take(self, rows: Sequence[int]) -> "Texts":
        """Return some of the texts.

        Parameters
        ----------
        rows : sequence of int
            Rows in any order.

        Returns
        -------
        Texts
        """
        return replace(self, texts=[self.texts[row] for row in rows])

    def digests(self) -> list[bytes]:
        """Return a hash of every text.

        Returns
        -------
        list of bytes
        """
        return [hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).digest() for text in self.texts]


def words_of(text: str) -> list[str]:
    """The words of a text in lower case, each followed by the pair that it forms with the next one."""
    words = WORD.findall(text.lower())
    return [part for at, word in enumerate(words) for part in (word, *([f"{word} {words[at + 1]}"] if at + 1 < len(words) else []))]


@dataclass(frozen=True)
class WordTokenizer:
    """Words, and pairs of words, of a fixed vocabulary; others are left out."""

    words: tuple[str, ...]
    length: int = LENGTH
    number: dict[str, int] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "number", {word: at for at, word in enumerate(self.words)})

    def __call__(self, texts: Sequence[str]) -> Tensor:
        known = [[self.number[part] for part in words_of(shortened(text, self.length)) if part in self.number] for text in texts]
        return _rows(known, self.length)

    def content(self) -> str:
        """The content of tokenizer.json."""
        return json.dumps({"words": self.words})


class SubwordTokenizer:
    """A tokenizer of the library `tokenizers`."""

    def __init__(self, content: str, length: int) -> None:
        self.length, self._content = length, content
        self._tokenizer: Any = _library().Tokenizer.from_str(content)
        self._tokenizer.no_padding()
        self._tokenizer.enable_truncation(length)

    def __call__(self, texts: Sequence[str]) -> Tensor:
        found = self._tokenizer.encode_batch([shortened(text, self.length) for text in texts])
        return _rows([one.ids for one in found], self.length)

    def content(self) -> str:
        """The content of tokenizer.json."""
        return self._content

    def __reduce__(self) -> Any:
        return type(self), (self._content, self.length)


def tokenizer_from(path: Path, length: int) -> Tokenizer:
    """The tokenizer of a tokenizer.json; an error says what is wrong with the file."""
    if not path.is_file():
        raise FileNotFoundError(f"the tokenizer is missing: {path} is not a file; put the tokenizer.json of the encoder there")
    content = path.read_text(encoding="utf-8", errors="replace")
    try:
        held = json.loads(content)
        if isinstance(held, dict) and "words" in held:
            return WordTokenizer(tuple(held["words"]), length)
        return SubwordTokenizer(content, length)
    except ImportError:
        raise
    except Exception as error:  # the library raises plain Exceptions
        raise ValueError(f"{path} is not a complete tokenizer.json ({str(error)[:200]}); restore it, or fetch it again") from error


def shortened(text: str, tokens: int) -> str:
    """The beginning of a text, more than enough for this many tokens."""
    return text[: CHARACTERS * tokens]


def hashed_words(texts: Sequence[str]) -> Tensor:
    """(n, 1024) float32 of length 1: counts of words by their hashes, which need no training and no encoder."""
    from sklearn.feature_extraction.text import HashingVectorizer

    made = HashingVectorizer(n_features=HASHED, analyzer=words_of, alternate_sign=False).transform(
        [shortened(text, LENGTH) for text in texts]
    )
    return torch.from_numpy(made.toarray().astype(np.float32))


def _rows(tokens: Sequence[Sequence[int]], length: int) -> Tensor:
    rows = np.full((len(tokens), length), NOTHING, dtype=np.int32)
    for row, found in zip(rows, tokens, strict=True):
        row[: min(len(found), length)] = found[:length]
    return torch.from_numpy(rows)


def _library() -> Any:
    try:
        return import_module("tokenizers")
    except ImportError as error:
        raise ImportError("this text encoder needs the libraries transformers and tokenizers; pip install 'nearkin[text]'") from error
