"""A file of vectors becomes an ordinary folder, which every verb opens."""

import json
import re

import numpy as np
import pandas as pd
import pytest

import nearkin
from nearkin.cli import main
from nearkin.data.shards import is_sharded
from nearkin.index.given import given_points, is_given
from nearkin.models.folder import load
from nearkin.serve.atlas.model_maps import Indexed, build_maps
from nearkin.serve.atlas.page_data import header

N, D = 90, 6
EVIL = "</script><script>alert('x')</script><b>bold</b>"


def clusters(n=N, seed=0):
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, 3, n)
    return (4 * np.eye(3, D)[labels] + rng.normal(size=(n, D))).astype(np.float32), labels


@pytest.fixture
def table():
    vectors, labels = clusters()
    rng = np.random.default_rng(1)
    return pd.DataFrame(
        {
            "embedding": list(vectors),
            "label": [f"kind {number}" for number in labels],
            "id": [f"p{row}" for row in range(N)],
            "price": rng.random(N),
            "shop": rng.choice(["Berlin", EVIL], N),
            "text": [EVIL] * N,
        }
    )


@pytest.fixture
def file(table, tmp_path):
    table.to_parquet(tmp_path / "v.parquet")
    return tmp_path / "v.parquet"


def test_the_folder_is_an_ordinary_one(file, table, tmp_path):
    said = []
    collection = nearkin.index_vectors(file, tmp_path / "v", report=said.append)
    assert any(line.startswith("metric: squared_euclidean, since the lengths of the vectors differ, from") for line in said)
    vectors = np.stack(table["embedding"].to_list())
    assert np.array_equal(load(tmp_path / "v").encode(vectors), vectors)
    hit = nearkin.open_index(tmp_path / "v").search(vectors[7], k=1).hits[0]
    assert (hit.source, hit.label, hit.metadata["shop"]) == ("p7", table["label"][7], table["shop"][7]) and hit.affinity == 0
    where = nearkin.Where(metadata={"shop": "Berlin"})
    assert {one.metadata["shop"] for one in collection.search(3, k=5, where=where).hits} == {"Berlin"}


def test_arrays_frames_and_tensors_are_indexed_alike(table, tmp_path):
    vectors, labels = clusters()
    whole = nearkin.index_vectors(table, tmp_path / "frame")
    plain = nearkin.index_vectors(vectors, tmp_path / "array", labels=[f"kind {number}" for number in labels])
    assert [hit.id for hit in whole.search(vectors[0]).hits] == [hit.id for hit in plain.search(vectors[0]).hits]


@pytest.mark.parametrize(
    ("change", "metric"),
    [(lambda x: x / np.linalg.norm(x, axis=1, keepdims=True), "cosine"), (np.sign, "hamming"), (lambda x: x, "squared_euclidean")],
)
def test_the_metric_is_guessed_from_the_lengths(change, metric, tmp_path):
    said = []
    collection = nearkin.index_vectors(change(clusters()[0]), tmp_path / "v", report=said.append)
    assert collection.index.metric == metric and any(line.startswith(f"metric: {metric}, since") for line in said)
    other = nearkin.index_vectors(clusters()[0], tmp_path / "w", metric="inner_product")
    assert other.index.metric == "inner_product"
    with pytest.raises(ValueError, match="metric"):
        nearkin.index_vectors(clusters()[0], tmp_path / "u", metric="euclid")


def test_zero_vectors_are_counted_and_kept(tmp_path):
    vectors = clusters()[0]
    vectors[[4, 9]] = 0
    said = []
    collection = nearkin.index_vectors(vectors, tmp_path / "v", metric="cosine", report=said.append)
    assert collection.index.count == N
    assert any("2 of 90 vectors are zero, first the vectors row 4" in line and "--delete 4" in line for line in said)


def test_an_unchanged_file_is_not_read_again_and_a_changed_one_is_refused(file, table, tmp_path):
    out = tmp_path / "v"
    nearkin.index_vectors(file, out)
    nearkin.open_index(out).index.delete([0])
    assert nearkin.index_vectors(file, out).index.count == N - 1  # what was changed by hand is kept
    with pytest.raises(FileExistsError, match="was made with other options; `nearkin explore VECTORS --replace`"):
        nearkin.index_vectors(file, out, metric="cosine")
    table.iloc[:50].to_parquet(file)
    with pytest.raises(FileExistsError, match=r"was made before .*v\.parquet changed; .* --replace"):
        nearkin.index_vectors(file, out)
    assert nearkin.index_vectors(file, out, replace=True).index.count == 50


def test_an_unfinished_folder_is_built_again_and_other_folders_are_not_touched(file, tmp_path):
    out = tmp_path / "v"
    nearkin.index_vectors(file, out)
    (out / "given.json").unlink()
    assert nearkin.index_vectors(file, out).index.count == N
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "notes.txt").write_text("keep")
    with pytest.raises(FileExistsError, match="holds other files; name a new folder"):
        nearkin.index_vectors(file, tmp_path / "mine")
    assert (tmp_path / "mine" / "notes.txt").read_text() == "keep"


def test_files_of_one_name_have_folders_of_their_own(file, table, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    np.savez("v.npz", x=clusters(30)[0])
    find = ["-k", "1", "--json", "--id"]
    assert main(["search", "v.parquet", *find, "3"]) == 0
    capsys.readouterr()
    assert main(["search", "v.npz", *find, "3"]) == 0
    assert f"v.nearkin holds the vectors of {file}, so these vectors go to {tmp_path / 'v.npz.nearkin'}" in capsys.readouterr().err
    counts = {name: nearkin.open_index(name).index.count for name in ("v.nearkin", "v.npz.nearkin")}
    assert counts == {"v.nearkin": N, "v.npz.nearkin": 30}
    for name, count in (("v.npz", 30), ("v.parquet", N)):  # each finds its own again
        assert main(["index", name]) == 0
        said = capsys.readouterr()
        assert f"{count} points of 6 dimensions" in said.out and "go to" not in said.err
    with pytest.raises(FileExistsError, match=r"holds the vectors of .*v\.parquet; .* --replace.* --out FOLDER"):
        nearkin.index_vectors("v.npz", "v.nearkin")
    (tmp_path / "w.nearkin").mkdir()
    (tmp_path / "w.nearkin" / "notes.txt").write_text("keep")
    np.save("w.npy", clusters(30)[0])
    assert main(["index", "w.npy"]) == 0 and (tmp_path / "w.npy.nearkin" / "model.json").exists()
    assert "w.nearkin holds something else" in capsys.readouterr().err


def test_points_are_found_by_the_ids_of_the_data(table, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)

    def found(file, name):
        status = main(["search", file, "--id", name, "-k", "1", "--json"])
        said = capsys.readouterr()
        return json.loads(said.out)[0]["neighbors"][0]["source"] if not status else said.err.strip().splitlines()[-1]

    right = found("plain.npy", "12") if np.save("plain.npy", clusters()[0]) is None else ""  # without ids, rows have numbers
    for name, ids in (("names", [f"docs/{row % 3}/p{row}" for row in range(N)]), ("numbers", [1000 + row for row in range(N)])):
        table.assign(id=ids).to_parquet(f"{name}.parquet")
        near = ids.index(int(found(f"{name}.parquet", str(ids[12]))) if name == "numbers" else found(f"{name}.parquet", str(ids[12])))
        assert right.endswith(f"row {near}")
    assert found("names.parquet", "12") == found("names.parquet", "docs/0/p12")  # the number in the table that search prints
    assert "--id: no point has the id '12'; the 90 ids are such as '1000', '1001', '1002'" in found("numbers.parquet", "12")
    assert "--id: no point has the id 'p12'; the 90 ids are such as 'docs/0/p0'" in found("names.parquet", "p12")
    assert main(["search", "names.parquet", "--id", "docs/0/p12", "-k", "1"]) == 0
    head = capsys.readouterr().out.splitlines()[2].replace("┃", " ").split()
    assert head[-2:] == ["number", "id"]


def test_search_says_what_a_vector_must_be_and_how_answers_are_ranked(file, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    np.save("short.npy", np.zeros((4, 3)))
    np.save("cube.npy", np.zeros((2, 2, 6)))
    for vector, said in (
        ("short.npy", "--vector short.npy has shape (4, 3); this index holds embeddings of 6 numbers: pass (6,) or (n, 6)"),
        ("cube.npy", "--vector cube.npy holds float64 (2, 2, 6); this index holds embeddings of 6 numbers: pass numbers (n, 6)"),
        ("1,2", "--vector has 2 numbers; this index holds embeddings of 6 numbers: pass as many, or a file (n, 6)"),
    ):
        assert main(["search", "v.parquet", "--vector", vector]) == 1
        assert said in capsys.readouterr().err
    assert main(["search", "v.parquet", "--id", "p3", "--rescale", "csls"]) == 0
    assert "ranked by rescaled affinities (CSLS" in capsys.readouterr().out
    assert main(["search", "v.parquet", "--id", "p3", "--rescale", "csls", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)[0]["ranked_by"] == "affinities rescaled by csls"
    assert main(["search", "v.parquet", "--id", "p3"]) == 0
    assert "rescaled" not in capsys.readouterr().out


def test_predictions_have_the_columns_of_other_data(file, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    vectors, labels = clusters()
    np.save("q.npy", vectors[:4])
    assert main(["predict", "v.parquet", "q.npy", "-k", "5", "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    hits = nearkin.open_index("v.nearkin").search(vectors[0], k=5).hits
    assert [list(row) for row in rows] == [["query", "label", "agreement"]] * 4
    assert rows[0]["agreement"] == sum(hit.label == rows[0]["label"] for hit in hits) / 5
    assert main(["predict", "v.parquet", "q.npy", "--reject", "0.05"]) == 0
    assert "agreement" in capsys.readouterr().out
    np.savez("n.npz", x=vectors, target=labels.astype(np.float32))
    assert main(["predict", "n.npz", "q.npy", "-k", "1", "--json"]) == 0
    assert [row["target"] for row in json.loads(capsys.readouterr().out)] == labels[:4].tolist()


def test_numbers_and_sets_come_back_from_the_index(tmp_path):
    vectors = clusters()[0]
    table = {"x": vectors, "target": np.arange(N, dtype=np.float32), "price": np.ones(N) * 0.5}
    nearkin.index_vectors(table, tmp_path / "numbers")
    data = given_points(tmp_path / "numbers")
    assert is_given(tmp_path / "numbers") and data.supervision == "numbers" and data.target_names == ("target",)
    nearkin.index_vectors({"x": vectors, "label": ["a|b", "b", "c"] * 30}, tmp_path / "sets")
    data = given_points(tmp_path / "sets")
    assert data.supervision == "sets" and data.sets[0].tolist() == [True, True, False]


def test_every_verb_takes_the_file(file, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(["explore", "v.parquet", "--no-serve"]) == 0
    said = capsys.readouterr()
    assert "1-nn" in said.out and "metric: squared_euclidean" in said.err and (tmp_path / "v.nearkin" / "report.html").exists()
    assert main(["search", "v.parquet", "--id", "3", "-k", "2", "--json"]) == 0
    assert len(json.loads(capsys.readouterr().out)[0]["neighbors"]) == 2
    np.save("q.npy", clusters()[0][:2])
    assert main(["search", "v.nearkin", "q.npy", "-k", "1", "--json"]) == 0
    assert [one["neighbors"][0]["source"] for one in json.loads(capsys.readouterr().out)] == ["p0", "p1"]
    assert main(["evaluate", "v.parquet", "--no-pictures"]) == 0
    assert main(["index", "v.parquet"]) == 0
    assert "90 points of 6 dimensions" in capsys.readouterr().out
    np.save("narrow.npy", np.eye(3))
    assert main(["index", "v.nearkin", "--add", "narrow.npy"]) == 1
    assert "has points of shape (3,), and this model reads (6,)" in capsys.readouterr().err
    assert main(["search", "runs", "--metric", "cosine"]) == 1
    assert "--metric is for a file of vectors" in capsys.readouterr().err


def test_explore_says_what_it_did_and_where_the_page_is(file, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    bare = ["explore", "v.parquet", "--no-serve", "--no-evaluation"]
    assert main(bare) == 0
    capsys.readouterr()
    assert main(bare) == 0
    said = capsys.readouterr()
    assert "v.nearkin was made from these vectors already, and is used as it is" in said.err
    place = tmp_path / "v.nearkin"
    assert said.out == (
        f"{place} is ready: `nearkin explore {place}` opens its page, and `nearkin export {place} --page OUT` writes the page as files.\n"
    )
    (place / "report.html").write_text("")
    assert main(bare) == 0
    assert f"its report is {place / 'report.html'}" in capsys.readouterr().out


def test_many_vectors_without_splits_hold_out_some_at_random(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    vectors, labels = clusters(300)
    np.savez("v.npz", x=vectors, y=labels)
    assert main(["evaluate", "v.npz", "--no-pictures", "--queries", "100"]) == 0
    out = " ".join(capsys.readouterr().out.split())
    assert "100 queries (test) compared with 200 references" in out and "100 of them, drawn at random" in out


@pytest.mark.parametrize(("every", "level"), [(2, "look"), (30, "fine")])
def test_many_points_without_a_class_are_warned_of(every, level, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    vectors, labels = clusters()
    np.savez("v.npz", x=vectors, y=np.where(np.arange(N) % every, labels.astype(str), ""))
    assert main(["evaluate", "v.npz", "--no-pictures"]) == 0
    findings = json.loads((tmp_path / "v.nearkin" / "evaluation.json").read_text())["sanity"]
    [found] = [one for one in findings if one["check"].startswith("Points left out")]
    assert found["level"] == level and f"{N // every} (class not known) of {N} points." in found["found"]
    assert ("nearkin pick" in found["fix"]) == (level == "look")


def test_shards_are_vectors_too(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    vectors, labels = clusters()
    np.savez("v.npz", x=vectors, y=labels)
    assert main(["shard", "v.npz", "--out", "shards"]) == 0
    assert is_sharded("shards")
    assert main(["index", "shards"]) == 0
    assert "90 points of 6 dimensions" in capsys.readouterr().out
    assert nearkin.open_index("shards.nearkin").search(vectors[5], k=1).hits[0].affinity == 0


def test_the_map_colors_by_columns_and_judges_by_labels_only(table, tmp_path):
    collection = nearkin.index_vectors(table.drop(columns="label"), tmp_path / "v")
    [maps] = build_maps([Indexed(collection.folder, collection.index)], "pca")
    page = header(maps)
    assert page["kind"] == "nothing" and page["targets"] == []
    assert [(one["name"], one["names"]) for one in page["columns"]] == [("price", None), ("shop", sorted(["Berlin", EVIL]))]


def test_text_with_html_never_becomes_part_of_a_page(file, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(["explore", "v.parquet", "--no-serve", "--label-column", "shop"]) == 0
    report = (tmp_path / "v.nearkin" / "report.html").read_text()
    assert "alert" in report and EVIL not in report and "<b>bold" not in report
    assert main(["export", "v.nearkin", "--page", "out", "--map", "pca"]) == 0
    for path in (tmp_path / "out").rglob("*.js"):
        text = path.read_text()
        assert path.name == "explorer.js" or not re.search("</script", text)


def test_explore_stores_vectors_smaller_and_the_report_is_shown(tmp_path, table, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    table.to_parquet("v.parquet")
    assert main(["explore", "v.parquet", "--no-serve", "--store", "int8"]) == 0
    assert "vectors stored as int8" in capsys.readouterr().out
    collection = nearkin.open_index("v.nearkin")
    assert collection.index.store == "int8" and collection.index.vector_bytes < N * D * 2
    report = collection.model.report()
    assert repr(report) == "<SavedReport v.nearkin/report.html>" and report.figures["supervision"] == "classes"
    shown = report._repr_html_()
    assert shown.startswith("<iframe") and "&lt;html" in shown and EVIL not in shown and "</script" not in shown
    (tmp_path / "v.nearkin" / "report.html").unlink()
    with pytest.raises(FileNotFoundError, match="v.nearkin has no report yet; `nearkin evaluate v.nearkin` writes it"):
        load("v.nearkin").report()
    model = load("v.nearkin")
    model.folder = None
    with pytest.raises(FileNotFoundError, match="was not loaded from a folder"):
        model.report()


def test_cleaned_labels_come_back_into_the_folder(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    vectors, labels = clusters(120)
    said = [f"kind {number}" for number in labels]
    said[7] = f"kind {(labels[7] + 1) % 3}"
    paths = [f"pictures/{row}.png" for row in range(120)]  # which are not there: the vectors are judged, not the images
    pd.DataFrame({"embedding": list(vectors), "label": said, "id": paths}).to_parquet("v.parquet")
    assert main(["clean", "v.parquet", "--out", "found"]) == 0
    assert "nearkin explore v.parquet --labels found/problems.csv --replace" in capsys.readouterr().out
    table = tmp_path / "found" / "problems.csv"
    table.write_text(table.read_text().replace(",,label,", ",x,label,"))
    assert json.loads((tmp_path / "found" / "problems.json").read_text())["judged by"] == "the vectors themselves"
    assert main(["explore", "v.parquet", "--labels", str(table), "--no-serve", "--no-evaluation"]) == 0
    assert "1 of 120 labels corrected" in capsys.readouterr().err
    index = nearkin.open_index("v.nearkin").index
    assert {entry.source: entry.label for entry in index.page(None, 0, 200).entries}["pictures/7.png"] == f"kind {labels[7]}"
