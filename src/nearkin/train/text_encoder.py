"""Texts for training: the encoder that reads them, with its tokenizer."""

from collections.abc import Collection
from dataclasses import replace
from pathlib import Path

from nearkin.data.checksums import write_recorded
from nearkin.data.dataset import Dataset
from nearkin.data.texts import LENGTH, Texts, Tokenizer, tokenizer_from
from nearkin.models.text_encoders import HOW_TO_GET_ONE, TOKENIZER, find_text_encoder, fit_words, installed_text_encoder
from nearkin.train import ranks
from nearkin.train.assemble import cut
from nearkin.train.config import Part, Run
from nearkin.train.encoder import reads_texts, with_text_encoder
from nearkin.train.reporter import Reporter

FITTED = "encoder"  # folder, in the model folder, of word vectors that were fitted


def with_tokenizer(run: Run, data: Dataset, folder: Path, given: Collection[str] | None, log: Reporter) -> tuple[Run, Dataset]:
    """The run with a text encoder, and the texts with its tokenizer, which is written into the model folder.

    Without an encoder on this machine, or from scratch, word vectors are fitted to the training part.
    """
    if run.network.pretrained and not reads_texts(run):
        raise ValueError(
            f"encoder {run.network.name} reads images, and {data.name} holds texts; name hf:NAME or sentence-transformers:NAME"
        )
    if not run.network.pretrained and run.network.name != "auto":
        raise ValueError(
            f"network {run.network.name} reads no texts, which {data.name} holds; leave it out, or pass --encoder hf:NAME or --from-scratch"
        )
    if run.network.pretrained:
        tokenizer = find_text_encoder(run.network.name, run.network.weights, length=run.data.size).tokenizer
    else:
        run, tokenizer = _chosen(run, data, folder, given or (), log)
    log.message(f"the first {tokenizer.length:,} tokens of a text are read, as {run.network.name} does; --size changes that")
    if ranks.is_first():
        write_recorded(folder / TOKENIZER, tokenizer.content(), folder)
    assert isinstance(data.inputs, Texts)
    return _for_pairs(run, len(data), given or ()), replace(data, inputs=replace(data.inputs, tokenizer=tokenizer))


def _chosen(run: Run, data: Dataset, folder: Path, given: Collection[str], log: Reporter) -> tuple[Run, Tokenizer]:
    """An encoder that is on this machine, or word vectors of these texts."""
    found = None if run.network.scratch else installed_text_encoder(run.data.size)
    if found is not None:
        log.message(
            f"starting from the pretrained encoder {found.network} ({found.weights.parent}); --from-scratch fits word vectors instead"
        )
        return with_text_encoder(run, found, given), found.tokenizer
    if not run.network.scratch:
        log.message(
            f"no pretrained text encoder was found, so word vectors are fitted to the training texts; for better ones, {HOW_TO_GET_ONE}"
        )
    train = cut(run, data).train
    assert isinstance(train.inputs, Texts)
    place = folder / FITTED
    if ranks.is_first():
        fit_words(train.inputs.texts, place, run.data.size or LENGTH)
    ranks.wait_for_all()
    made = find_text_encoder("words", place / "model.safetensors", length=run.data.size)
    return with_text_encoder(run, made, given), tokenizer_from(place / TOKENIZER, made.tokenizer.length)


def _for_pairs(run: Run, points: int, given: Collection[str]) -> Run:
    """Texts that belong together are drawn together, since a random batch would rarely hold both."""
    if "," not in run.data.text_column or "sampler.name" in given or run.sampler.name != "shuffled":
        return run
    count = len(run.data.text_column.split(","))
    batch = max(min(run.batch_size, points // 2 // count * count), 2 * count)  # the training part may be little more than half
    return replace(run, sampler=Part("per_class", {"per_class": count}), batch_size=batch)
