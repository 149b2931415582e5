"""Evaluation over shards says what evaluation in memory says, of everything that ranks decide."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.datasets import load_digits

from nearkin import cli
from nearkin.cluster import evaluate as evaluating
from nearkin.cluster import ranking
from nearkin.cluster.evaluate import Queries, judge, without
from nearkin.compose.affinity import Affinity, Hamming, SquaredEuclidean, cosine
from nearkin.compose.points import Points
from nearkin.data.shards import About, Shard, Shards, files, open_shards, write_manifest, write_shard
from nearkin.evaluate import classification, retrieval
from nearkin.search import Neighbors, nearest
from nearkin.train.config import Run, override
from nearkin.train.training import train
from tests.search.test_exact_shards import sharded, tied

pytest.importorskip("pyarrow")

DIGITS = load_digits()


def trained(folder: Path, name: str, **arrays: Any) -> tuple[Path, Path]:
    """(model folder, its data): two epochs on a few digits, whose test part is given."""
    source = folder / f"{name}.npz"
    split = np.array(["train"] * 300 + ["test"] * 60)
    np.savez(source, x=(DIGITS.images[:360] * 15).astype(np.uint8), split=split, **arrays)
    settings = {"network.dimension": "6", "epochs": "1", "batch_size": "64", "checkpoint_seconds": "9999", "data.validation": "0"}
    train(override(Run(), {**settings, "data.source": str(source)}), folder / name, device="cpu")
    return folder / name, source


def page_of(model: Path, *options: str) -> dict[str, Any]:
    assert cli.main(["evaluate", str(model), "--device", "cpu", "--no-pictures", *options]) == 0
    page: dict[str, Any] = json.loads((model / "evaluation.json").read_text())
    return page


@pytest.fixture(scope="module")
def classes(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path, Path]:
    """(model, data, shards of all data)."""
    folder = tmp_path_factory.mktemp("classes")
    model, source = trained(folder, "digits", labels=DIGITS.target[:360])
    assert cli.main(["embed", str(model), str(source), "--out", str(folder / "shards"), "--shard-rows", "100", "--device", "cpu"]) == 0
    return model, source, folder / "shards"


@pytest.mark.soak
def test_shards_of_the_training_part_say_what_the_training_part_says(classes: tuple[Path, Path, Path], tmp_path: Path) -> None:
    model, source, _ = classes
    with np.load(source) as held:
        np.savez(tmp_path / "digits.npz", x=held["x"][:300], labels=held["labels"][:300])
    assert cli.main(["embed", str(model), str(tmp_path / "digits.npz"), "--out", str(tmp_path / "s"), "--shard-rows", "70"]) == 0
    # The test part's rows have numbers from 300, so nobody here is their own neighbor.
    in_memory, over = page_of(model), page_of(model, "--shards", str(tmp_path / "s"))
    assert len(over["by_k"]) == 8
    for name in ("by_k", "per_class", "confusion", "classes", "supervision", "metric"):
        assert over[name] == in_memory[name], name
    assert set(over["scores"]["prediction from neighbors"]) == {"1-nn", "10-nn", "weighted 200-nn"}
    assert set(over["scores"]["retrieval"]) == set(in_memory["scores"]["retrieval"]) and len(over["scores"]) == 2
    for family, scores in over["scores"].items():
        for name, score in scores.items():
            _same(score, in_memory["scores"][family][name])


def _same(ours: dict[str, Any], theirs: dict[str, Any]) -> None:
    for name, value in theirs.items():
        assert ours[name] == (pytest.approx(value, abs=1e-12) if isinstance(value, float) else value), name


def test_a_query_that_is_in_the_shards_is_not_its_own_neighbor(
    classes: tuple[Path, Path, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    model, _, shards = classes
    page = page_of(model, "--shards", str(shards))
    assert page["references"]["points"] == 360 and page["queries"]["points"] == 60
    assert page["scores"]["prediction from neighbors"]["1-nn"]["value"] < 1  # each would be right by itself
    assert "60 queries (test) compared with 360 points" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("name", "known", "family"),
    [
        ("targets", DIGITS.target[:360].astype(np.float32), "regression from the 10 nearest"),
        ("sets", np.stack([DIGITS.target[:360] % 2, DIGITS.target[:360] > 4, DIGITS.target[:360] == 3], 1).astype(bool), "label sets"),
    ],
)
def test_numbers_and_sets_say_what_they_say_in_memory(name: str, known: np.ndarray, family: str, tmp_path: Path) -> None:
    model, source = trained(tmp_path, "model", **{name: known})
    with np.load(source) as held:
        np.savez(tmp_path / "train.npz", x=held["x"][:300], **{name: known[:300]})
    command = ["embed", str(model), str(tmp_path / "train.npz"), "--out", str(tmp_path / "s"), "--shard-rows", "90", "--device", "cpu"]
    assert cli.main(command) == 0
    in_memory, over = page_of(model), page_of(model, "--shards", str(tmp_path / "s"))
    assert set(over["scores"]) == {family} and over["by_k"] == in_memory["by_k"]
    for figure, score in in_memory["scores"][family].items():
        _same(over["scores"][family][figure], score)


def test_vectors_of_another_model_are_refused(classes: tuple[Path, Path, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    _, source, shards = classes
    other, _ = trained(tmp_path, "other", labels=DIGITS.target[:360] % 2)
    assert cli.main(["evaluate", str(other), str(source), "--shards", str(shards), "--device", "cpu"]) == 1
    assert "holds vectors of other weights" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("options", "match"),
    [
        (["--compare"], "--compare needs the references in memory"),
        (["--address", "h:1"], "--address names a Ray cluster; add --engine ray"),
    ],
)
def test_options_that_do_not_go_together(
    classes: tuple[Path, Path, Path], options: list[str], match: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["evaluate", str(classes[0]), "--shards", str(classes[2]), *options]) == 1
    assert match in capsys.readouterr().err


def labeled(folder: Path, vectors: np.ndarray, classes: np.ndarray, sizes: list[int]) -> Shards:
    """Shards of points of the classes a, b, c, ...; -1 is none. Their sources are p0, p1, ..."""
    names, start, records = [chr(97 + code) for code in range(int(classes.max()) + 1)], 0, []
    folder.mkdir()
    for number, size in enumerate(sizes):
        at = np.arange(start, start + size)
        labels = np.array([None if classes[i] < 0 else names[classes[i]] for i in at], dtype=object)
        records.append(write_shard(folder, number, Shard(at, vectors[at], labels, np.array([f"p{i}" for i in at], dtype=object))))
        start += size
    write_manifest(folder, About("m", vectors.shape[1], "squared_euclidean", "classes", tuple(names)), records)
    return open_shards(folder)


@pytest.mark.parametrize("affinity", [SquaredEuclidean(), cosine(), Hamming()], ids=lambda one: type(one).__name__)
@pytest.mark.parametrize("held", [1 << 22, 2000])
def test_rankings_of_tied_points_are_those_of_memory(
    affinity: Affinity, held: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whole numbers and copies, which tie within shards and across them; unknown classes, and queries that are points themselves."""
    monkeypatch.setattr(ranking, "HELD", held)  # 2000: few queries and few points at a time
    monkeypatch.setattr(files, "GROUP", 5 * 37)
    x, draw = tied(300) + np.float32(0.5), np.random.default_rng(1)
    classes = draw.integers(-1, 4, 300)
    shards = labeled(tmp_path / "s", x, classes, [120, 0, 30, 150])
    ids = torch.cat([torch.arange(0, 300, 7), torch.arange(1000, 1020)])  # some are points of the shards, some are new
    embeddings = torch.cat([torch.from_numpy(x[::7]), torch.from_numpy(tied(20, seed=3)) + 0.5])
    labels = torch.from_numpy(np.concatenate([classes[::7], draw.integers(0, 4, 20)])).clamp_min(0)
    asked = Queries(Points(embeddings, labels), [f"p{i}" for i in ids.tolist()], "classes", ("a", "b", "c", "d"))
    known = torch.from_numpy(classes >= 0)
    gallery = Points(torch.from_numpy(x)[known], torch.from_numpy(classes)[known], torch.arange(300)[known])
    queries = Points(embeddings, labels, ids)
    over, whole = judge(asked, shards, affinity), retrieval(queries, gallery, affinity)
    assert len(over.scores["retrieval"]) == 16
    for name, score in over.scores["retrieval"].items():
        _same(score.as_dict(), whole[name].as_dict())
        assert torch.allclose(score.per_query, whole[name].per_query, atol=1e-12, equal_nan=True)  # type: ignore[arg-type]
    found = nearest(queries, gallery, 10, affinity, exclude_same_id=True)
    assert over.found is not None and torch.equal(over.found.positions, torch.arange(300)[known][found.positions])
    assert torch.equal(over.found.affinity, found.affinity)
    expected = classification(queries, gallery, affinity, (1, 10))
    for name, score in over.scores["prediction from neighbors"].items():
        _same(score.as_dict(), expected[name].as_dict())
    assert over.notes == [f"{int((classes < 0).sum())} points of the shards have no known class and were skipped."]


def test_of_too_many_pairs_some_queries_are_ranked_or_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    x, classes = tied(200), np.arange(200) % 3
    shards = labeled(tmp_path / "s", x, classes, [200])
    asked = Queries(Points(torch.from_numpy(x), torch.from_numpy(classes)), [f"p{i}" for i in range(200)], "classes", ("a", "b", "c"))
    monkeypatch.setattr(evaluating, "MOST_RANKED", 200 * 150)
    found = judge(asked, shards, SquaredEuclidean())
    assert found.scores["retrieval"]["map"].counted == 150 and found.scores["prediction from neighbors"]["1-nn"].counted == 200
    assert found.notes == ["Metrics that rank every point (precision@k to mrr) are of 150 of 200 queries, sampled at random."]
    monkeypatch.setattr(evaluating, "MOST_RANKED", 200 * 99)
    found = judge(asked, shards, SquaredEuclidean())
    assert set(found.scores) == {"prediction from neighbors"} and "more than 19,800 pairs" in found.notes[0]


@pytest.mark.parametrize(
    ("labels", "kind", "match"),
    [
        (None, "ids", "the queries have no labels, and .* has classes; pass DATA with labels"),
        (torch.ones(4, 1), "numbers", "the queries have numbers for labels, and .* has classes; embed data of the same kind"),
    ],
)
def test_queries_that_cannot_be_judged(labels: torch.Tensor | None, kind: str, match: str, tmp_path: Path) -> None:
    shards = labeled(tmp_path / "s", tied(20), np.arange(20) % 2, [20])
    with pytest.raises(ValueError, match=match):
        judge(Queries(Points(torch.zeros(4, 5), labels), ["?"] * 4, kind), shards, SquaredEuclidean())


def test_shards_without_labels_cannot_judge(tmp_path: Path) -> None:
    found = sharded(tmp_path / "s", np.eye(4, dtype=np.float32), [4])
    with pytest.raises(ValueError, match="has no labels to evaluate neighbors with; embed data with labels"):
        judge(Queries(Points(torch.eye(4), torch.arange(4)), ["?"] * 4, "classes"), found, SquaredEuclidean())


def test_labels_of_some_points_in_any_shape(tmp_path: Path) -> None:
    shards = labeled(tmp_path / "s", tied(9), np.array([0, 1, 2, -1, 0, 1, 2, 0, 1]), [4, 0, 5])
    assert shards.labels_at(np.array([[8, 3], [0, 4]])).tolist() == [["b", None], ["a", "a"]]  # type: ignore[union-attr]


def test_ones_own_position_is_left_out_and_the_rest_keeps_its_order() -> None:
    found = Neighbors(torch.tensor([[4, 7, 1], [2, 0, 9]]), -torch.arange(6.0).reshape(2, 3))
    left = without(found, torch.tensor([7, -1]), 2)
    assert left.positions.tolist() == [[4, 1], [2, 0]] and left.affinity.tolist() == [[0, -2], [-3, -4]]
