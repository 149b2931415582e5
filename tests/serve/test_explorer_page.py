"""The explorer in a real browser: load, hover, click, slider, filter, lasso, upload, lists, compare, from disk; no console errors."""

import csv
import io
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from nearkin import cli
from nearkin import data as sources
from nearkin.data.corrections import corrected
from nearkin.index.collection import build_index
from nearkin.index.given import index_vectors
from tests.serve.browsing import served, until
from tests.serve.small_atlas import EACH, TESTED, Folders, make_folders
from tests.serve.small_model import COLORS, SIDE, encoded, make_model, picture
from tests.serve.small_model import opened as pictures_in

COUNT = len(COLORS) * (EACH + TESTED) + 3
READY = "document.documentElement.dataset.drawn && document.getElementById('cover').hidden"


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> Folders:
    return make_folders(tmp_path_factory.mktemp("explorer"))


@pytest.fixture(scope="module")
def address(folders: Folders) -> str:
    return served(folders.one, method="pca")


@pytest.fixture(scope="module")
def exported(folders: Folders, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("export") / "out"
    assert cli.main(["export", str(folders.one.folder), "--page", str(out), "--map", "pca", "--device", "cpu"]) == 0
    return out / "index.html"


class Opened:
    """A page, and its console messages and foreign requests, of which there should be none."""

    def __init__(self, browser: Any, address: str, scheme: str = "light") -> None:
        self.page = browser.new_page(viewport={"width": 1280, "height": 800}, color_scheme=scheme)
        self.problems: list[str] = []
        self.page.on("console", lambda one: self.problems.append(one.text) if "GL Driver Message" not in one.text else None)
        self.page.on("pageerror", lambda error: self.problems.append(str(error)))
        self.page.on(
            "request", lambda one: self.problems.append(one.url) if one.url.startswith("http") and not one.url.startswith(address) else None
        )
        self.page.goto(address if address.startswith("file:") else f"{address}/explore")


@pytest.fixture
def page(browser: Any, address: str) -> Iterator[Any]:
    opened = Opened(browser, address)
    until(opened.page, READY)
    yield opened.page
    opened.page.close()
    assert [line for line in opened.problems if "422" not in line] == []  # chromium itself notes refused requests


def on_screen(page: Any, row: int) -> tuple[float, float]:
    x, y = page.evaluate(f"explorer.screen({row})")
    return x, y


def alone(page: Any) -> int:
    """A row with no other near it on the screen."""
    places = page.evaluate(f"[...Array({COUNT}).keys()].map((row) => explorer.screen(row))")
    gaps = [min(math.dist(a, b) for j, b in enumerate(places) if i != j) for i, a in enumerate(places)]
    return max(range(COUNT), key=lambda row: gaps[row])


def tiles(page: Any, sign: str = "") -> int:
    return page.locator(f".visit .tile{sign}").count()


def test_it_loads_all_points_and_shows_what_to_do(page: Any) -> None:
    assert page.inner_text("#about") == f"one · {COUNT} points · 8 dimensions · map by PCA"
    assert page.evaluate("document.documentElement.dataset.drawn") == f"{COUNT} pca"
    assert page.inner_text(".welcome h2") == "Which neighbors are wrong?"
    assert page.locator("#by option").all_inner_texts() == ["Class", "Neighborhood purity", "Split"]


def test_no_page_may_compile_text(browser: Any, page: Any, exported: Path) -> None:
    """The draw calls are compiled by the nonce; eval is for nobody, and an exported page has its policy in itself."""
    tried = "void setTimeout(() => { try { window.tried = eval('1 + 1') } catch (error) { window.tried = error.name } })"
    inject = "one => { const script = document.createElement('script'); script.text = 'window.injected = 1'; document.head.append(script) }"
    opened = Opened(browser, exported.as_uri())
    until(opened.page, READY)
    for one in (page, opened.page):
        one.evaluate(tried)
        until(one, "window.tried !== undefined")
        assert one.evaluate("window.tried") == "EvalError"
    opened.page.evaluate(inject)
    assert opened.page.evaluate("window.injected") is None
    opened.page.close()
    assert all("Content Security Policy" in line for line in opened.problems)


def test_hovering_shows_the_picture_and_clicking_the_neighbors(page: Any) -> None:
    row = alone(page)
    x, y = on_screen(page, row)
    page.mouse.move(x + 40, y + 40)
    page.mouse.move(x, y)
    until(page, f"!document.getElementById('hover').hidden && document.getElementById('hover').dataset.row === '{row}'")
    until(page, "document.querySelector('#hover img').naturalWidth > 0")
    page.mouse.click(x, y)
    until(page, f"explorer.row() === {row} && document.querySelectorAll('.visit .tile').length === 10")
    until(page, "[...document.querySelectorAll('.visit .tile img')].every((one) => one.complete && one.naturalWidth > 0)")


def test_the_neighbors_are_those_of_the_index_and_the_slider_shows_more(page: Any, folders: Folders) -> None:
    page.fill("#id", "5")
    page.press("#id", "Enter")
    until(page, "explorer.row() === 5")
    page.evaluate("document.getElementById('k').value = 25; document.getElementById('k').dispatchEvent(new Event('input'))")
    until(page, "document.querySelectorAll('.visit .tile').length === 25")
    found = folders.one.search(5, 25)
    assert page.evaluate("[...document.querySelectorAll('.visit .tile')].map((one) => Number(one.dataset.row))") == [
        hit.id for hit in found.hits
    ]
    own = folders.one.index.entries([5])[0].label
    right = sum(hit.label == own for hit in found.hits)
    assert (tiles(page, ".right"), tiles(page, ".wrong")) == (right, 25 - right)
    assert f"{right} right, {25 - right} wrong" in page.inner_text(".tally")
    first = float(page.locator(".visit .affinity").first.inner_text().replace("\u2212", "-"))
    assert first == pytest.approx(found.hits[0].affinity, rel=0.01)
    page.fill("#id", "9999")
    page.press("#id", "Enter")
    until(page, "document.getElementById('toast').textContent.startsWith('No point has the id or the number 9999')")


def test_the_legend_filters_and_the_colors_change(page: Any) -> None:
    before = page.locator("#maps").screenshot()
    page.click("#legend button >> nth=1")
    assert page.get_attribute("#legend button >> nth=1", "aria-pressed") == "false"
    page.wait_for_timeout(300)
    assert page.locator("#maps").screenshot() != before
    page.click("#legend button.all")
    assert page.locator("#legend button[aria-pressed=false]").count() == 0
    page.dblclick("#legend button >> nth=1")
    until(page, "document.querySelectorAll('#legend button[aria-pressed=true]').length === 1")
    assert page.get_attribute("#legend button >> nth=1", "aria-pressed") == "true"
    page.select_option("#by", label="Split")
    assert page.locator("#legend .name").all_inner_texts() == ["train", "test"]
    assert page.locator("#legend .number").all_inner_texts() == [str(3 * EACH + 2), str(3 * TESTED + 1)]


def test_the_wheel_keys_and_the_neighbors_zoom(page: Any) -> None:
    places = page.evaluate(f"[...Array({COUNT}).keys()].map((row) => explorer.screen(row))")
    a, b = places.index(min(places)), places.index(max(places))
    apart = f"explorer.screen({b})[0] - explorer.screen({a})[0]"
    whole = page.evaluate(apart)
    page.keyboard.press("+")
    until(page, f"{apart} > {1.5 * whole}")
    page.keyboard.press("0")
    until(page, f"{apart} < {1.01 * whole}")
    box = page.locator("#maps").bounding_box()
    page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    page.mouse.wheel(0, -300)
    until(page, f"{apart} > {1.05 * whole}")
    page.keyboard.press("0")
    page.keyboard.press("n")
    until(page, "explorer.row() !== null")
    page.keyboard.press("z")
    until(page, f"{apart} > {1.1 * whole}")


def test_a_lasso_selects(page: Any) -> None:
    page.click("#lasso")
    box = page.locator("#maps").bounding_box()
    x, y, radius = box["x"] + box["width"] / 2, box["y"] + box["height"] / 2, box["width"] / 2 - 6
    page.mouse.move(x - radius, y)
    page.mouse.down()
    for step in range(1, 30):
        turn = math.pi + 2 * math.pi * step / 29
        page.mouse.move(x + radius * math.cos(turn), y + radius * math.sin(turn))
        page.wait_for_timeout(12)
    page.mouse.up()
    until(page, "explorer.selected().length > 3")
    assert "points" in page.inner_text(".selection .source") and page.locator(".selection .tile").count() > 3


def test_lists_select_points(page: Any) -> None:
    worst = page.locator("#list .entry").first
    row = worst.get_attribute("data-row")
    worst.click()
    until(page, f"explorer.row() === {row} && document.querySelectorAll('.visit .tile.wrong').length > 0")
    page.click("#tab-confused")
    page.click("#list .entry >> nth=0")
    until(page, "explorer.selected().length > 0 && explorer.row() === null")
    page.click("#tab-duplicates")
    assert page.inner_text("#list .entry b") == "test · train" and "identical" in page.inner_text("#list .entry small >> nth=0")
    page.click("#list .entry >> nth=0")
    until(page, "document.querySelector('.visit .facts')?.textContent.includes('test')")


def test_keys(page: Any) -> None:
    page.keyboard.press("n")
    until(page, "explorer.row() !== null")
    first = page.evaluate("explorer.row()")
    page.keyboard.press("n")
    until(page, f"explorer.row() !== null && explorer.row() !== {first}")
    page.keyboard.press("]")
    assert tiles(page) == 11
    page.keyboard.press("Backspace")
    until(page, f"explorer.row() === {first}")
    page.keyboard.press("0")
    page.wait_for_timeout(400)
    before = on_screen(page, 0)
    page.keyboard.press("ArrowRight")
    until(page, f"explorer.screen(0)[0] < {before[0] - 20}")
    page.keyboard.press("z")
    page.keyboard.press("Escape")
    until(page, "explorer.row() === null")
    dark = "rgb(21, 23, 27)"
    page.keyboard.press("t")
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == dark
    page.keyboard.press("?")
    assert page.locator("#keys").is_visible()


def test_on_a_phone_nothing_overlaps(page: Any) -> None:
    page.set_viewport_size({"width": 400, "height": 800})
    page.click("text=Show the worst point")
    until(page, "document.querySelectorAll('.tile').length > 0")
    boxes = {
        name: page.locator(name).bounding_box() for name in ("#bar", "#choose", "#theme", "#help", "#maps", "#right", "#left", "#tools")
    }
    inside = [
        boxes[name]["y"] >= 0 and boxes[name]["y"] + boxes[name]["height"] <= boxes["#bar"]["height"]
        for name in ("#choose", "#theme", "#help")
    ]
    assert all(inside) and boxes["#help"]["x"] + boxes["#help"]["width"] <= 400
    ends = [(boxes[name]["y"], boxes[name]["y"] + boxes[name]["height"]) for name in ("#bar", "#maps", "#right", "#left")]
    assert all(above[1] <= below[0] + 1 for above, below in zip(ends, ends[1:], strict=False)), "map, neighbors, lists, in this order"
    assert page.evaluate("document.documentElement.scrollWidth") == 400
    assert boxes["#tools"]["y"] + boxes["#tools"]["height"] == pytest.approx(800, abs=1), "the tools stay visible"
    assert page.get_by_role("button", name="Search with an image").inner_text() == "Search"


def test_an_uploaded_image_is_placed_near_its_class(page: Any) -> None:
    page.set_input_files("#file", {"name": "mine.png", "mimeType": "image/png", "buffer": encoded(picture("red", 77))})
    until(page, "document.querySelector('.visit h2')?.textContent === 'Your image'")
    assert page.inner_text(".visit .source") == "mine.png" and "red" in page.inner_text(".facts")
    assert tiles(page, ".unknown") == 10
    page.keyboard.press("Escape")
    page.evaluate(
        """(bytes) => {
          const carried = new DataTransfer();
          carried.items.add(new File([new Uint8Array(bytes)], "dropped.png", { type: "image/png" }));
          document.dispatchEvent(new DragEvent("drop", { dataTransfer: carried, bubbles: true, cancelable: true }));
        }""",
        list(encoded(picture("blue", 79))),
    )
    until(page, "document.querySelector('.visit .source')?.textContent === 'dropped.png'")
    assert "blue" in page.inner_text(".facts")
    page.set_input_files("#file", {"name": "bad.png", "mimeType": "image/png", "buffer": b"nothing like it"})
    until(page, "document.getElementById('toast').textContent.includes('cannot be decoded')")


def test_accepted_labels_are_downloaded_and_trained_with(page: Any, folders: Folders, tmp_path: Path) -> None:
    page.click("#tab-labels")
    correction = page.locator("#list .entry b").first.inner_text()
    page.locator(".accept").first.click()
    with page.expect_download() as coming:
        page.click("#csv")
    table = tmp_path / "suspected_labels.csv"
    coming.value.save_as(table)
    rows = list(csv.DictReader(io.StringIO(table.read_text())))
    was, now = rows[0]["was"], rows[0]["label"]
    assert correction == f"{was} → {now}?" and was != now and all(row["label"] == row["was"] for row in rows[1:])
    data = corrected(sources.open(folders.data, size=SIDE, channels=3), str(table))
    assert data.classes[int(data.labels[list(data.sources).index(rows[0]["path"])])] == now
    out = tmp_path / "again"
    settings = ("--set", f"data.size={SIDE}", "--set", "data.leaks=allow", "--epochs", "1", "--dimension", "4", "--device", "cpu")
    assert cli.main(["train", str(folders.data), "--labels", str(table), "--out", str(out), *settings]) == 0
    assert cli.main(["index", str(out), str(folders.data), "--device", "cpu"]) == 0
    from nearkin.index.collection import open_index

    index = open_index(out, device="cpu").index
    assert {entry.source: entry.label for entry in index.page(None, 0, 1000).entries}[rows[0]["path"]] == now


def test_accepted_labels_survive_a_reload_and_can_be_others(page: Any, tmp_path: Path) -> None:
    page.click("#tab-labels")
    suspects = page.locator(".accept").count()
    assert page.inner_text("#accepted") == "none accepted yet"
    page.click("#list .entry >> nth=0")
    until(page, "explorer.row() !== null")
    page.keyboard.press("a")
    assert page.inner_text("#accepted") == "1 accepted" and page.get_attribute(".accept >> nth=0", "aria-pressed") == "true"
    page.select_option(".other >> nth=0", index=1)
    chosen = page.inner_text("#list .entry b >> nth=0")
    assert not chosen.endswith("?")
    page.reload()
    until(page, READY)
    page.click("#tab-labels")
    assert page.inner_text("#accepted") == "1 accepted" and page.inner_text("#list .entry b >> nth=0") == chosen
    with page.expect_download() as coming:
        page.click("#csv")
    coming.value.save_as(tmp_path / "labels.csv")
    rows = list(csv.DictReader(io.StringIO((tmp_path / "labels.csv").read_text())))
    assert chosen.endswith(f"→ {rows[0]['label']}")
    page.click("#accept-all")
    assert page.inner_text("#accepted") == f"{suspects} accepted" and page.locator(".accept[aria-pressed=true]").count() == suspects
    assert page.inner_text("#list .entry b >> nth=0") == chosen, "a label that was chosen stays"
    page.click("#accept-all")
    assert page.inner_text("#accepted") == "none accepted yet"


def test_no_name_is_cut_off(page: Any) -> None:
    page.set_viewport_size({"width": 1400, "height": 800})
    page.click("#tab-labels")
    texts = "[...document.querySelectorAll('#list b, #list small, #legend .name')]"
    cut = f"{texts}.filter((one) => one.scrollWidth > one.clientWidth + 1).length"
    assert page.evaluate(cut) == 0
    page.evaluate("document.querySelector('#list b').textContent = 'pink-yellow dahlia of the garden → bishop of llandaff in autumn?'")
    assert page.evaluate(cut) == 0


def test_two_models_side_by_side(browser: Any, folders: Folders) -> None:
    opened = Opened(browser, served(folders.one, compare=folders.other, method="pca"), "dark")
    page = opened.page
    until(page, READY)
    assert page.locator("#maps figcaption").all_inner_texts() == ["one", "other"]
    assert page.locator("#by option").first.inner_text() == "What changed"
    names = page.locator("#tabs button").all_inner_texts()
    assert names[0].startswith("Better") and names[1].startswith("Worse")
    page.click("#tab-worse" if names[0].endswith("0") else "#tab-better")
    page.click("#list .entry >> nth=0")
    until(page, "document.querySelectorAll('.visit .tile').length === 20")
    assert page.locator(".visit h3").all_inner_texts() == ["one", "other"]
    signs = page.evaluate("[...document.querySelectorAll('.visit .grid')].map((one) => one.querySelectorAll('.tile.right').length)")
    assert signs[0] != signs[1]
    page.set_input_files("#file", {"name": "mine.png", "mimeType": "image/png", "buffer": encoded(picture("blue", 78))})
    until(page, "document.querySelector('.visit h2')?.textContent === 'Your image'")
    page.close()
    assert opened.problems == []


def test_a_folder_opens_from_disk(browser: Any, exported: Path, address: str) -> None:
    opened = Opened(browser, exported.as_uri())
    page = opened.page
    until(page, READY)
    assert page.evaluate("document.documentElement.dataset.drawn") == f"{COUNT} pca"
    page.click(".welcome .main")
    until(page, "document.querySelectorAll('.visit .tile').length === 10")
    row, own = (
        page.evaluate("explorer.row()"),
        page.evaluate("[...document.querySelectorAll('.visit .tile')].map((one) => Number(one.dataset.row))"),
    )
    live = page.request.get(
        f"{address}/atlas/near/{row}?k=10&version={page.request.get(f'{address}/atlas').json()['atlas']['version']}"
    ).json()
    assert own == live["models"][0]["rows"] and page.locator(".tile.wrong").count() > 0
    assert page.inner_text(".visit .source").endswith(live["source"].split("/")[-1])
    x, y = on_screen(page, row)
    page.mouse.move(x + 50, y + 50)
    page.mouse.move(x, y)
    until(page, "getComputedStyle(document.querySelector('#hover .picture') ?? document.body).backgroundImage.includes('pictures/0.png')")
    page.click("#choose")
    until(page, "document.getElementById('toast').textContent.includes('nearkin serve')")
    page.close()
    assert opened.problems == []
    with Image.open(exported.parent / "pictures/0.png") as sheet:
        assert sheet.size == (25 * 32, 40 * 32)


@pytest.mark.soak
def test_two_models_open_from_disk(browser: Any, folders: Folders, tmp_path: Path) -> None:
    one, other, out = str(folders.one.folder), str(folders.other.folder), tmp_path / "out"
    assert cli.main(["export", one, "--page", str(out), "--compare", other, "--map", "pca", "--device", "cpu"]) == 0
    opened = Opened(browser, (out / "index.html").as_uri())
    page = opened.page
    until(page, READY)
    assert page.locator("#maps figcaption").all_inner_texts() == ["one", "other"]
    page.fill("#id", "5")
    page.press("#id", "Enter")
    until(page, "document.querySelectorAll('.visit .tile').length === 20")
    shown = page.evaluate("[...document.querySelectorAll('.visit .tile')].map((one) => Number(one.dataset.row))")
    assert shown == [hit.id for model in (folders.one, folders.other) for hit in model.search(5, 10).hits]
    page.close()
    assert opened.problems == []


def test_without_labels_the_page_lists_duplicates(browser: Any, tmp_path: Path) -> None:
    (tmp_path / "photos").mkdir()
    for i in range(12):
        picture("green", i).save(tmp_path / "photos" / f"{i:02d}.png")
    (tmp_path / "photos" / "again.png").write_bytes((tmp_path / "photos" / "03.png").read_bytes())
    collection = build_index(make_model(tmp_path / "model"), pictures_in(tmp_path / "photos"), device="cpu")[0]
    opened = Opened(browser, served(collection, method="pca"))
    page = opened.page
    until(page, READY)
    assert page.inner_text(".welcome h2") == "What is near what?"
    assert "wrong" not in page.inner_text(".welcome") and "red" not in page.inner_text(".welcome p >> nth=0")
    assert page.locator("#by option").all_inner_texts() == ["Cluster", "Density", "Distance to the nearest"]
    assert page.get_attribute("#images", "aria-pressed") == "true"
    until(page, "explorer.pictures() > 0")
    page.keyboard.press("i")
    until(page, "explorer.pictures() === 0")
    assert page.locator("#tabs button").all_inner_texts() == ["Duplicates1"]
    assert page.inner_text("#list .entry b") == "#12 · #3" and page.inner_text("#list .entry small") == "identical"
    page.click("#list .entry >> nth=0")
    until(page, "document.querySelector('.visit .source')?.textContent.endsWith('/again.png')")
    page.close()
    assert opened.problems == []


def test_names_of_classes_do_not_overlap_and_ids_are_whole(browser: Any, tmp_path: Path) -> None:
    draw, names = np.random.default_rng(0), [f"the rather long name of class {number}" for number in range(12)]
    rows = np.concatenate([np.full(30 - number, number) for number in range(12)])  # around the same place, so that all names would be there
    vectors = draw.normal(size=(len(rows), 4)).astype(np.float32)
    ids = [f"shelf/{row % 4}/{'x' * 60 * (row == 1)}book-{row}" for row in range(len(rows))]
    table = {"embedding": vectors, "label": [names[row] for row in rows], "id": ids}
    address = served(index_vectors(table, tmp_path / "v"), method="pca")
    opened = Opened(browser, address)
    page = opened.page
    until(page, READY)
    until(page, "explorer.names().length > 1")
    shown = page.evaluate("explorer.names()")
    assert any(one["text"].endswith("of class 0") for one in shown) and len(shown) < 12  # the largest class first; some must go
    for at, a in enumerate(shown):
        for b in shown[:at]:
            assert a["left"] >= b["right"] or b["left"] >= a["right"] or a["top"] >= b["bottom"] or b["top"] >= a["bottom"]
    for row, text in ((7, ids[7]), (1, f"{ids[1][:19]}…{ids[1][-40:]}")):
        page.fill("#id", str(row))
        page.press("#id", "Enter")
        until(page, f"explorer.row() === {row}")
        assert page.inner_text(".visit .source") == text and page.get_attribute(".visit .source", "title") == ids[row]
    page.fill("#id", ids[9])
    page.press("#id", "Enter")
    until(page, "explorer.row() === 9")
    page.goto(f"{address}/")  # the search page asks for no image
    until(page, "document.querySelectorAll('.card').length === 10")
    assert page.locator("#with-point").is_visible() and not page.locator("#choose").is_visible()
    assert not page.locator("#with-image").is_visible()
    page.close()
    assert opened.problems == []


def test_names_of_classes_at_the_edge_of_the_map_are_not_cut_off(browser: Any, tmp_path: Path) -> None:
    names = [f"the really very long and never ending name of class {number}" for number in range(5)]
    rows = np.repeat(np.arange(5), 20)
    vectors = (100.0 * np.array([[1, 0], [-1, 0], [0, 1], [0, -1], [0, 0]])[rows] + np.random.default_rng(0).normal(size=(100, 2))).astype(
        np.float32
    )
    opened = Opened(
        browser, served(index_vectors({"embedding": vectors, "label": [names[row] for row in rows]}, tmp_path / "v"), method="pca")
    )
    until(opened.page, READY)
    until(opened.page, "explorer.names().length === 5")
    width = opened.page.evaluate("document.querySelector('#maps .map').clientWidth")
    for one in opened.page.evaluate("explorer.names()"):
        assert one["left"] >= 0 and one["right"] <= width, one
    opened.page.close()


def test_an_empty_index_and_a_stopped_service_are_reported(browser: Any, tmp_path: Path) -> None:
    from nearkin.index.collection import Collection
    from nearkin.index.local import LocalIndex
    from nearkin.models.folder import load
    from tests.serve.small_model import D, make_model

    folder = make_model(tmp_path / "model")
    index = LocalIndex.create(folder / "index", model="m", metric="squared_euclidean", dimension=D)
    opened = Opened(browser, served(Collection(folder, load(folder, device="cpu"), index)))
    page = opened.page
    until(page, "!document.getElementById('again').hidden")
    assert "the index is empty" in page.inner_text("#detail") and "nearkin index" in page.inner_text("#detail")
    page.route("**/atlas", lambda route: route.abort())
    page.click("#again")
    until(page, "document.getElementById('detail').textContent.includes('Is `nearkin serve` still running?')")
    page.close()


def test_the_page_shows_the_progress(browser: Any, address: str) -> None:
    page = browser.new_page()
    building = ['{"state":"building","message":"placing 60 points by t-SNE"}']
    page.route(
        "**/atlas", lambda route: route.fulfill(body=building[0], content_type="application/json") if building else route.continue_()
    )
    page.goto(f"{address}/explore")
    until(page, "document.getElementById('detail').textContent.startsWith('placing 60 points by t-SNE')")
    assert page.inner_text("#state") == "Building the map" and page.locator(".spinner").is_visible()
    building.clear()  # unroute would lose a pending request
    until(page, READY)
    page.close()


def test_numbers_are_colored_by_target_and_residual(browser: Any, tmp_path: Path) -> None:
    from nearkin.serve.atlas.export import write_page
    from nearkin.serve.atlas.model_maps import Indexed, build_maps
    from tests.serve.small_index import index_in

    index = index_in(tmp_path / "model/index", numbers=True)
    (maps,) = build_maps([Indexed(tmp_path / "model", index)], "pca")
    opened = Opened(browser, write_page(maps, tmp_path / "out").as_uri())
    page = opened.page
    until(page, READY)
    assert page.locator("#by option").all_inner_texts() == ["Target: angle", "Residual", "Neighborhood purity", "Split"]
    assert "off by" in page.inner_text("#list .entry small >> nth=0") and "farthest from the mean" in page.inner_text("#list .caption")
    page.select_option("#by", label="Residual")
    assert page.locator("#legend .swatch").count() == 5
    page.click("#list .entry >> nth=0")
    until(page, "document.querySelector('.facts')?.textContent.includes('residual')")
    page.close()
    assert opened.problems == []
