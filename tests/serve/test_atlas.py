"""The atlas against literal loops: neighbors, purity, residual, lists; storing, comparing two models, and writing the page."""

import base64
import io
import json
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from nearkin.evaluate import label_errors
from nearkin.index.contract import Entries
from nearkin.index.local import LocalIndex
from nearkin.serve.atlas import lists, page_data, store
from nearkin.serve.atlas import table as tables
from nearkin.serve.atlas.atlas import build_atlas, judged, neighbors_of, possible_method, restored, to_canvas
from nearkin.serve.atlas.export import asset, check_free, write_page
from nearkin.serve.atlas.model_maps import Indexed, ModelMap, build_maps
from nearkin.serve.atlas.table import PointTable, read_table
from tests.serve.small_index import index_in


@pytest.fixture
def table(tmp_path: Path) -> PointTable:
    return read_table(index_in(tmp_path / "index"))


def gaps(vectors: np.ndarray) -> np.ndarray:
    return np.array([[sum((float(a) - float(b)) ** 2 for a, b in zip(x, y, strict=True)) for y in vectors] for x in vectors])


def test_neighbors_purity_and_lists_equal_literal_loops(table: PointTable) -> None:
    atlas = build_atlas(table, "pca")
    apart, n = gaps(table.vectors), len(table)
    for row in range(n):
        order = sorted((other for other in range(n) if other != row), key=lambda other: apart[row, other])
        assert atlas.positions[row].tolist() == order[:30]
        assert atlas.affinity[row, 0] == pytest.approx(-apart[row, order[0]], rel=1e-4)
        same = [table.labels[other] == table.labels[row] for other in order[:30]]
        assert atlas.right[row].tolist() == [int(one) for one in same]
        assert atlas.purity[row] == pytest.approx(sum(same[:10]) / 10)
    nearest = atlas.positions[:, 0]
    pairs: dict[tuple[int, int], list[int]] = {}
    for row in range(n):
        a, b = sorted((int(table.labels[row]), int(table.labels[nearest[row]])))
        if a != b:
            pairs.setdefault((a, b), []).append(row)
    assert {(a, b): rows.tolist() for a, b, rows in atlas.lists.confused} == pairs
    assert [len(rows) for _, _, rows in atlas.lists.confused] == sorted(map(len, pairs.values()), reverse=True)
    worst = atlas.purity[atlas.lists.worst]
    assert (np.diff(worst) >= 0).all() and set(atlas.lists.worst.tolist()) == set(np.flatnonzero(atlas.purity < 1).tolist())
    assert atlas.lists.suspects is None, "labels are judged in a step of its own"
    assert [pair[:2] for pair in atlas.lists.duplicates if pair[2] == 0] == [(4, 3)]
    assert atlas.lists.compared == atlas.lists.later == 10


def test_labels_are_judged_as_clean_judges_them(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    labels = np.arange(90) % 3
    vectors = (rng.normal(size=(90, 6)) + 6 * np.eye(6)[labels]).astype(np.float32)
    said = labels.copy()
    said[[4, 50]] = (said[[4, 50]] + 1) % 3
    names = [None if row == 7 else "abc"[label] for row, label in enumerate(said)]
    index = LocalIndex.create(tmp_path / "index", model="m", metric="squared_euclidean", dimension=6)
    index.add(Entries(vectors, labels=names))
    table = read_table(index)
    listed = [(one.row, one.label, one.neighbors_say) for one in judged(build_atlas(table, "pca"), table).lists.suspects or ()]
    numbers = torch.from_numpy(table.labels.astype(np.int64))
    found = label_errors(torch.from_numpy(vectors), numbers)
    assert listed == [(row, int(numbers[row]), int(found.suggested[row])) for row in found.suspects.tolist()]
    assert {row for row, _, _ in listed} == {4, 50} and all(table.classes[new] == "abc"[labels[row]] for row, _, new in listed)
    few = replace(table, labels=np.where(np.arange(90) < 2, [0, 1] * 45, -1))
    assert lists.suspects(few) == [], "too few labels to judge any"


def test_a_trained_model_shows_what_evaluate_found_without_it(table: PointTable, tmp_path: Path) -> None:
    wrong, page = int(np.flatnonzero(table.labels >= 0)[2]), tmp_path / "suspected_labels.csv"
    label, other = table.classes[table.labels[wrong]], table.classes[(table.labels[wrong] + 1) % len(table.classes)]
    source = table.sources[wrong]
    page.write_text(
        f"path,label,neighbors_say,confidence,part\r\n{source},{label},{other},0.93,train\r\n{source},{other},{label},0.9,train\r\n"
    )
    found = judged(build_atlas(table, "pca"), table, page).lists.suspects or ()
    assert [(one.row, table.classes[one.neighbors_say], one.confidence) for one in found] == [(wrong, other, 0.93)]


def test_live_neighbors_are_those_of_the_atlas(table: PointTable) -> None:
    atlas = build_atlas(table, "pca")
    positions, affinity, right = neighbors_of(table, np.array([7, 2]), 5)
    assert np.array_equal(positions, atlas.positions[[7, 2], :5]) and np.array_equal(right, atlas.right[[7, 2], :5])
    assert np.allclose(affinity, atlas.affinity[[7, 2], :5])


def test_numbers_have_residuals_and_near_ones_are_right(tmp_path: Path) -> None:
    table = read_table(index_in(tmp_path / "index", numbers=True))
    assert table.kind == "numbers" and table.target_names == ("angle",)  # groups are no numbers
    atlas = build_atlas(table, "pca")
    assert atlas.residual is not None and table.targets is not None
    for row in range(len(table)):
        mean = sum(float(table.targets[other, 0]) for other in atlas.positions[row, :10]) / 10
        assert atlas.residual[row] == pytest.approx(abs(mean - float(table.targets[row, 0])), rel=1e-4, abs=1e-5)
    every = [abs(float(a) - float(b)) for a in table.targets[:, 0] for b in table.targets[:, 0] if a != b]
    bound = float(np.quantile(every, 0.1))
    gap = np.abs(table.targets[atlas.positions, 0] - table.targets[:, :1])
    assert (atlas.right[gap < 0.8 * bound] == 1).all() and (atlas.right[gap > 1.2 * bound] == 0).all()
    assert atlas.lists.confused == [] and atlas.lists.suspects == ()


def test_label_sets_are_right_when_half_is_common(tmp_path: Path) -> None:
    table = read_table(index_in(tmp_path / "index", sets=True))
    assert table.kind == "sets"
    assert table.right(np.array([0, 1]), np.array([[3, 1], [2, -1]])).tolist() == [[1, 1], [1, -1]]  # {b} and {a, b}: one of two


def test_without_labels_no_neighbor_is_right_or_wrong(tmp_path: Path) -> None:
    index = LocalIndex.create(tmp_path / "index", model="m", metric="cosine", dimension=2)
    vectors = np.random.default_rng(0).normal(size=(7, 2)).astype(np.float32)
    vectors[5] = vectors[1]
    index.add(Entries(vectors))
    table = read_table(index)
    atlas = build_atlas(table, "pca")
    assert table.kind == "nothing" and np.isnan(atlas.purity).all() and (atlas.right == -1).all()
    assert atlas.positions.shape == (7, 6) and len(atlas.lists.worst) == 0
    assert atlas.lists.duplicates == [(5, 1, 0.0)] and atlas.lists.compared == atlas.lists.later == 7


def test_a_single_point_and_equal_points_have_a_map(tmp_path: Path) -> None:
    for n in (1, 4):
        index = LocalIndex.create(tmp_path / str(n), model="m", metric="squared_euclidean", dimension=2)
        index.add(Entries(np.ones((n, 2), np.float32), labels=["a"] * n))
        table = read_table(index)
        atlas = build_atlas(table, possible_method(table, "tsne"))
        assert atlas.method == "pca" and np.isfinite(atlas.on_canvas).all()


def test_a_stored_atlas_is_reused_for_the_same_index_only(tmp_path: Path) -> None:
    index, said = index_in(tmp_path / "model/index"), list[str]()
    place = Indexed(tmp_path / "model", index)
    quick, first = build_maps([place], "pca", said.append)
    assert quick[0].atlas.lists.suspects is None and first[0].atlas.lists.suspects is not None, "labels are judged second"
    assert [page_data.header(maps)["models"][0]["lists"]["judged"] for maps in (quick, first)] == [False, True]
    (again,) = build_maps([place], "pca", lambda _: pytest.fail("it was built a second time"))
    one, other = first[0].atlas, again[0].atlas
    for name in ("points", "positions", "affinity", "right", "purity"):
        assert np.array_equal(getattr(one, name), getattr(other, name))
    assert page_data.header(first) == page_data.header(again)
    index.delete([5])
    list(build_maps([Indexed(tmp_path / "model", index)], "pca", said.append))
    assert sum("searching" in line for line in said) == 2
    (tmp_path / "model/atlas/single.safetensors").write_bytes(b"damaged")
    assert store.load(tmp_path / "model/atlas/single.safetensors", {}) is None


def test_tsne_comes_last_and_places_new_points(tmp_path: Path) -> None:
    pytest.importorskip("openTSNE")
    index = index_in(tmp_path / "model/index")
    *first, last = build_maps([Indexed(tmp_path / "model", index)], "tsne")
    assert ([maps[0].atlas.method for maps in first], last[0].atlas.method) == (["pca", "pca"], "tsne")
    table, atlas = last[0].table, last[0].atlas
    spot = to_canvas(restored(atlas, table).place(table.vectors[:1]), atlas.points)
    near = np.linalg.norm(atlas.on_canvas - spot, axis=1).argmin()
    assert near in (0, *atlas.positions[0, :5].tolist())


def test_two_models_are_compared_on_the_points_they_share(tmp_path: Path) -> None:
    one, other = index_in(tmp_path / "a/index"), index_in(tmp_path / "b/index", first=10, model="other")
    places = [Indexed(tmp_path / "a", one), Indexed(tmp_path / "b", other)]
    _, pair = build_maps(places, "pca")
    assert [one.name for one in pair] == ["a", "b"]
    assert list(pair[0].table.sources) == list(pair[1].table.sources) == [f"point {row}" for row in range(10, 40)]
    assert np.array_equal(pair[0].table.labels, pair[1].table.labels)  # the labels of the first
    with pytest.raises(ValueError, match="the two indexes share no point"):
        list(build_maps([places[0], Indexed(tmp_path / "c", index_in(tmp_path / "c/index", first=100))], "pca"))


def test_empty_indexes_are_refused_and_of_large_ones_a_part_is_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    empty = LocalIndex.create(tmp_path / "index", model="m", metric="cosine", dimension=2)
    with pytest.raises(ValueError, match="the index is empty.*nearkin index DIR --add DATA"):
        read_table(empty)
    monkeypatch.setattr(tables, "MOST", 10)
    index = index_in(tmp_path / "more")
    some, every = read_table(index), index.read_all()
    rows = [every.ids.tolist().index(number) for number in some.ids.tolist()]
    assert (
        len(rows) == 10
        and np.array_equal(some.vectors, every.vectors[rows])
        and some.sources == [every.entries[row].source for row in rows]
    )


@pytest.mark.parametrize("metric", ["squared_euclidean", "cosine", "inner_product"])
def test_duplicates_are_of_embeddings_where_there_are_no_pictures(tmp_path: Path, metric: str) -> None:
    vectors = np.random.default_rng(0).normal(size=(90, 3)).astype(np.float32)
    vectors[70:] = vectors[1]
    vectors[60] = 2 * vectors[5]  # the same direction is no copy
    for splits, copied in ((["train"] * 50 + ["test"] * 40, (1, 70)), (["train"] * 90, (1, 70))):
        index = LocalIndex.create(tmp_path / f"{len(set(splits))}", model="m", metric=metric, dimension=3)
        index.add(Entries(vectors, metadata=[{"split": split} for split in splits]))
        atlas = build_atlas(read_table(index), "pca")
        found = {pair[:2] for pair in atlas.lists.duplicates}
        assert {later for later, _ in found} == set(range(70, 90)) and copied[::-1] in found and 60 not in {a for a, _ in found}
        if len(set(splits)) == 2 and metric != "inner_product":
            assert {earlier for _, earlier in found} == {1}


def test_more_copies_than_neighbors_are_still_found(tmp_path: Path) -> None:
    vectors = np.repeat(np.eye(3, dtype=np.float32)[:1], 50, 0)
    index = LocalIndex.create(tmp_path / "index", model="m", metric="squared_euclidean", dimension=3)
    index.add(Entries(vectors, metadata=[{"split": "train" if row == 0 else "test"} for row in range(50)]))
    assert {pair[:2] for pair in build_atlas(read_table(index), "pca").lists.duplicates} == {(row, 0) for row in range(1, 50)}


def page_value(path: Path) -> dict:
    text = path.read_text(encoding="utf-8")
    return json.loads(text[text.index("]=") + 2 : text.rindex(";")])


def test_the_folder_holds_all_neighbors_and_other_folders_are_refused(table: PointTable, tmp_path: Path) -> None:
    one = ModelMap("</script> & co", table, build_atlas(table, "pca"))
    page = write_page([one], tmp_path / "out")
    assert '<script src="atlas.js"></script>' in page.read_text() and "</script>" not in (page.parent / "atlas.js").read_text()
    header, chunk = page_value(page.parent / "atlas.js"), page_value(page.parent / "near/0.js")
    assert header["count"] == 40 and header["models"][0]["name"] == "</script> & co" and header["live"] is False
    rows = np.frombuffer(base64.b64decode(chunk["models"][0]["rows"]), "<i4").reshape(40, -1)
    assert np.array_equal(rows, one.atlas.positions) and chunk["sources"] == list(table.sources)
    points = np.frombuffer(base64.b64decode(header["models"][0]["points"]), "<u2").reshape(-1, 2) / 65535 * 2 - 1
    assert np.allclose(points, one.atlas.on_canvas, atol=1e-4)
    with Image.open(page.parent / "pictures/0.png") as sheet:
        tile = sheet.crop((3 * 32, 0, 4 * 32, 32))
    with Image.open(io.BytesIO(table.thumbnail(3))) as own:
        assert np.abs(np.asarray(tile.resize((1, 1), Image.Resampling.BOX), float) - np.asarray(own).mean((0, 1))).max() < 30
    write_page([one], tmp_path / "out")  # an explorer may be written again
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine/letter.txt").write_text("dear")
    with pytest.raises(ValueError, match="mine holds other files"):
        check_free(tmp_path / "mine")


def test_the_page_is_small() -> None:
    assert sum(len(asset(name)) for name in ("index.html", "explorer.js", "explorer.css")) < 1_000_000


def test_a_rebuilt_index_gets_a_new_map(tmp_path: Path) -> None:
    """With as many points, the same file names and the same generation, but other labels."""

    def indexed(by: int) -> Indexed:
        index = LocalIndex.create(tmp_path / "index", model="m", metric="squared_euclidean", dimension=2)
        vectors = np.random.default_rng(0).normal(size=(30, 2)) + 20 * (np.arange(30) % 2)[:, None]
        index.add(Entries(vectors, labels=[str(row // by % 2) for row in range(30)]))
        return Indexed(tmp_path, index)

    def purity(one: Indexed) -> float:
        return float(np.nanmean(list(build_maps([one], "pca"))[-1][0].atlas.purity))

    assert purity(indexed(1)) == 1
    shutil.rmtree(tmp_path / "index")
    again = indexed(7)
    assert (tmp_path / "atlas/single.safetensors").exists() and purity(again) < 0.8 and purity(again) == purity(again)
