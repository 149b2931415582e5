"""Classes of an index are added, renamed, joined and removed without training, and queries of no known class are rejected."""

import json

import numpy as np
import pytest
import torch

import nearkin
from nearkin.cli import main
from nearkin.index import Entries, LocalIndex
from nearkin.search import nearest, rescaled

KINDS = ("ant", "bee", "cat")


def clusters(n=120, seed=0):
    rng = np.random.default_rng(seed)
    labels = np.arange(n) % 3
    return (6 * np.eye(3, 4)[labels] + rng.normal(size=(n, 4))).astype(np.float32), [KINDS[number] for number in labels]


@pytest.fixture
def collection(tmp_path):
    vectors, labels = clusters()
    return nearkin.index_vectors(vectors, tmp_path / "v", labels=labels)


def labels_of(index):
    return [entry.label for entry in index.read_all().entries]


def test_a_class_is_renamed_and_joined_with_another(collection):
    before = labels_of(collection.index)
    collection.index.rename_class("cat", "lynx")
    assert collection.index.labels == ("ant", "bee", "lynx") and collection.index.calibration is not None
    collection.index.rename_class("lynx", "bee")
    now = LocalIndex.open(collection.folder / "index")
    assert now.labels == ("ant", "bee") and labels_of(now) == [{"cat": "bee"}.get(label, label) for label in before]
    assert now.page(nearkin.Where(labels="bee")).total == 80 and len(set(now.snapshot.codes.tolist())) == 2
    with pytest.raises(KeyError, match="no class is named 'cat'; the classes are ant, bee"):
        now.rename_class("cat", "x")


def test_a_class_is_removed_with_or_without_its_points(collection):
    assert collection.index.remove_class("ant") == 40
    assert collection.index.count == 80 and collection.index.labels == ("bee", "cat") and "ant" not in labels_of(collection.index)
    assert collection.index.remove_class("bee", keep_points=True) == 40
    assert collection.index.count == 80 and labels_of(collection.index).count(None) == 40
    collection.index.add(Entries(clusters(3)[0], labels=["ant", "dog", "bee"]))
    collection.index.compact()
    assert labels_of(collection.index)[-3:] == ["ant", "dog", "bee"] and sorted(collection.index.labels) == ["ant", "bee", "cat", "dog"]


def test_points_get_another_class_or_none(collection):
    collection.index.relabel([0, 3], "new")
    collection.index.relabel([1], None)
    assert labels_of(collection.index)[:4] == ["new", None, "cat", "new"] and "new" in collection.index.labels
    with pytest.raises(KeyError, match="no point has the id 999"):
        collection.index.relabel([0, 999], "x")
    assert labels_of(collection.index)[0] == "new"


def test_predict_votes_and_rejects(collection):
    vectors, labels = clusters(30, seed=1)
    assert collection.predict(vectors) == labels
    far = np.full((1, 4), 40, np.float32)
    assert collection.predict(far) != [None] and collection.predict(far, reject=0.05) == [None]
    assert sum(one is None for one in collection.predict(clusters(600, seed=2)[0], reject=0.1)) == pytest.approx(60, abs=30)
    answer = collection.search(far[0], reject=0.05)
    assert answer.rejected is True and answer.p_value == pytest.approx(1 / 121)
    assert collection.search(3, reject=0.05).rejected is False and collection.search(3).rejected is None


def test_the_command_line_changes_classes_and_rejects(collection, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(["index", "v", "--rename-class", "cat=lynx"]) == 0
    assert main(["index", "v", "--remove-class", "ant"]) == 0
    assert main(["index", "v", "--label", "wasp=1,4-7"]) == 1
    assert "no point has the id 6; the index holds 80 points; nothing was changed" in capsys.readouterr().err
    assert main(["index", "v", "--label", "wasp=1,4"]) == 0
    assert set(nearkin.open_index("v").index.labels) == {"bee", "lynx", "wasp"}
    assert main(["index", "v", "--rename-class", "ox=cow"]) == 1
    assert "no class is named 'ox'" in capsys.readouterr().err
    np.save("far.npy", np.full((1, 4), 40.0))
    assert main(["search", "v", "far.npy", "-k", "1", "--reject", "0.05", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)[0]["none_of_these"] is True
    assert main(["predict", "v", "far.npy", "--reject", "0.05", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)[0]["label"] == "none of these"


def test_held_out_points_of_the_index_say_what_is_familiar(tmp_path):
    vectors, labels = clusters(400)
    loose = vectors.copy()
    loose[200:] += np.random.default_rng(3).normal(size=(200, 4)) * 2  # as new points are, beside those that were trained on
    split = ["train"] * 200 + ["validation"] * 200
    collection = nearkin.index_vectors({"x": loose, "label": labels, "split": split}, tmp_path / "v")
    assert len(collection.rejection.known) == 200
    assert sorted(collection.rejection.known)[20] < -4


def test_a_search_is_corrected_for_hubs(collection, capsys, tmp_path, monkeypatch):
    query = clusters(1, seed=5)[0]
    stored = collection.index.read_all().vectors
    mine, theirs, affinity = rescaled(torch.from_numpy(query), torch.from_numpy(stored))
    expected = nearest(mine, theirs, 5, affinity).positions[0].tolist()
    hits = collection.index.search(query, 5, rescale="csls")[0].hits
    assert [hit.id for hit in hits] == expected
    assert hits[0].affinity == pytest.approx(-((query[0] - stored[expected[0]]) ** 2).sum(), rel=1e-5)
    assert 3 not in [hit.id for hit in collection.search(3, rescale="local_scaling").hits]
    monkeypatch.chdir(tmp_path)
    assert main(["search", "v", "--id", "3", "--rescale", "csls", "--json"]) == 0
    assert main(["evaluate", "v", "--no-pictures", "--rescale", "csls"]) == 0
    out = capsys.readouterr().out
    assert "with csls" in out and "ndcg@10" in out and "fnmr@0.01" in out and "silhouette" in out and "anti_hubs" in out
