"""`nearkin evaluate`: on what a training left behind, with classes, numbers, sets and nothing at all."""

import contextlib
import csv
import io
import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from sklearn.datasets import load_digits

from nearkin import cli, load
from nearkin.cli import _parser
from nearkin.cli.evaluate import UNLABELED_TRAINING_PART
from nearkin.cli.evaluation_data import NOTHING_HELD_OUT
from nearkin.cli.evaluation_output import output_folder
from nearkin.data import Dataset
from nearkin.data import open as open_data
from nearkin.data.checksums import write_json
from nearkin.report.descriptions import definition
from nearkin.train.assemble import cut
from nearkin.train.config import Run, override
from nearkin.train.training import train

SETTINGS = {"network.dimension": "8", "epochs": "2", "batch_size": "64", "checkpoint_seconds": "9999"}
DIGITS = load_digits()
PIXELS = (DIGITS.images[:400] * 15).astype(np.uint8)
ZERO = 20  # the row of a zero that is called a four
CHROMIUM = Path("/usr/bin/chromium")


def trained(folder: Path, name: str, settings: dict[str, str] | None = None, **arrays: Any) -> Path:
    """A model folder, trained for two epochs on arrays in a file next to it."""
    source = folder / f"{name}.npz"
    np.savez(source, **arrays)
    run = override(Run(), {**SETTINGS, "data.source": str(source), **(settings or {})})
    train(run, folder / name, device="cpu")
    return folder / name


def evaluated(*arguments: str) -> tuple[str, str]:
    with (
        contextlib.redirect_stdout(io.StringIO()) as out,
        contextlib.redirect_stderr(io.StringIO()) as err,
        pytest.MonkeyPatch.context() as patch,
    ):
        patch.setenv("COLUMNS", "200")
        assert cli.main(["evaluate", *arguments, "--device", "cpu"]) == 0, err.getvalue()
    return out.getvalue(), err.getvalue()


def scores(page: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """All of them by name; each must be defined in words."""
    assert all(definition(name) for family in page["scores"].values() for name in family)
    return {name: score for family in page["scores"].values() for name, score in family.items()}


@pytest.fixture(scope="module")
def classes(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """Digits with one wrong label, evaluated with the classical methods; the folder and the output."""
    names = np.array([f"digit {label}" for label in DIGITS.target[:400]])
    names[ZERO] = "digit 4"
    folder = trained(tmp_path_factory.mktemp("runs"), "digits", x=PIXELS, y=names)
    return folder, evaluated(str(folder), "--compare", "--probes", "--figures")[0]


def test_the_folder_gets_its_report(classes: tuple[Path, str]) -> None:
    folder, _ = classes
    assert {"report.html", "evaluation.json", "suspected_labels.csv", "figures"} <= {path.name for path in folder.iterdir()}
    drawn = {path.name for path in (folder / "figures").iterdir()}
    names = {"gallery", "worst", "flow", "map", "by_k", "pairs", "filters", "grad_cam", "grad_cam_by_stage", "probes", "training"}
    assert {f"{name}{suffix}" for name in names for suffix in (".png", ".svg")} <= drawn


def test_every_score_comes_with_chance_interval_and_counts(classes: tuple[Path, str]) -> None:
    page = json.loads((classes[0] / "evaluation.json").read_text())
    found = scores(page)
    assert {"1-nn", "10-nn", "precision@5", "recall@5", "map@r", "r_precision", "mrr", "nmi", "ami", "ari", "effective_rank"} <= set(found)
    for name in ("1-nn", "10-nn", "precision@5", "map@r"):
        assert found[name]["low"] <= found[name]["value"] <= found[name]["high"] and 0 < found[name]["chance"] < 0.5
        assert (
            found[name]["split"] == "test" and found[name]["counted"] + sum(found[name]["left_out"].values()) == page["queries"]["points"]
        )
    assert page["queries"] == {"part": "test", "data": "digits", "points": 80, "left_out": {}} and page["references"]["points"] == 280
    right = sum(page["confusion"][i][i] for i in range(10))
    assert sum(map(sum, page["confusion"])) == 80 and right / 80 == found["1-nn"]["value"]
    assert [row["name"] for row in page["per_class"]] == [f"digit {i}" for i in range(10)]
    assert page["command"].endswith("--compare --probes") and page["weights"] == "best on the validation part"
    assert list(page["by_k"])[:4] == ["1", "2", "5", "10"] and page["by_k"]["1"]["value"] == found["1-nn"]["value"]


def test_the_figures_are_those_of_the_model_on_the_test_part(classes: tuple[Path, str]) -> None:
    from nearkin.compose.points import Points
    from nearkin.evaluate import knn_accuracy
    from nearkin.models.folder import load

    folder, _ = classes
    model = load(folder, device="cpu")
    run = Run.from_json((folder / "run.json").read_text())
    parts = cut(run, open_data(run.data.source))
    assert parts.test is not None

    def points(data: Dataset) -> Points:
        return Points(model.encode(data.inputs), data.labels)  # type: ignore[arg-type]

    page = json.loads((folder / "evaluation.json").read_text())
    for k in (1, 10):
        assert scores(page)[f"{k}-nn"]["value"] == pytest.approx(knn_accuracy(points(parts.test), points(parts.train), k))


def test_classical_methods_are_listed_next_to_the_model(classes: tuple[Path, str]) -> None:
    page = json.loads((classes[0] / "evaluation.json").read_text())
    rows = {row["name"]: row for row in page["comparisons"]}
    assert list(rows) == ["raw pixels", "PCA", "PPCA", "LDA", "linear NCA", "LMNN"]
    assert rows["raw pixels"]["dimension"] == 64 and rows["PCA"]["dimension"] == 8 and rows["LDA"]["dimension"] == 8
    assert all(0.3 < row["scores"]["1-nn"]["value"] <= 1 and row["scores"]["1-nn"]["split"] == "test" for row in rows.values())
    for name in rows:
        assert name in classes[1]
    ahead = [k for k in ("1-nn", "10-nn") if rows["raw pixels"]["scores"][k]["value"] > scores(page)[k]["value"]]
    finding = next(one for one in page["sanity"] if one["check"] == "Compared with raw inputs")
    assert finding["level"] == ("look" if ahead else "fine") and all(f"{k} " in finding["found"] for k in ahead)
    assert "Compared with raw inputs: " in classes[1] and "Compared with raw inputs" in (classes[0] / "report.html").read_text()


def test_every_layer_with_weights_is_probed(classes: tuple[Path, str]) -> None:
    page = json.loads((classes[0] / "evaluation.json").read_text())
    found = page["scores"]["linear probes by layer"]
    assert list(found) == [f"probe {layer}" for layer in ("conv1", "conv2", "conv3", "fc", "head")]
    assert all(score["low"] <= score["value"] <= score["high"] and score["split"] == "test" for score in found.values())
    assert found["probe conv1"]["value"] > 0.7  # digits are nearly separable


def test_the_terminal_shows_what_the_json_holds(classes: tuple[Path, str]) -> None:
    page = json.loads((classes[0] / "evaluation.json").read_text())
    assert "80 queries (test) compared with 280 references (training part)." in classes[1]
    assert f"{100 * scores(page)['1-nn']['value']:.1f} %" in classes[1] and "Queries among the references" in classes[1]
    assert f"Open {classes[0] / 'report.html'} in a browser" in classes[1] and "\x1b" not in classes[1]


def test_the_page_is_complete_and_fetches_nothing(classes: tuple[Path, str]) -> None:
    text = (classes[0] / "report.html").read_text(encoding="utf-8")
    without_pictures = re.sub(r"data:image/png;base64,[A-Za-z0-9+/=]+", "", text)
    assert not re.search(r"https?://|<script|<link|@import|url\(", without_pictures)
    assert text.count("data:image/png;base64,") >= 9
    for heading in (
        "Figures",
        "Compared with classical methods",
        "Is anything wrong?",
        "Neighbors",
        "The embedding",
        "Classes",
        "Inside the network",
    ):
        assert f"<h2>{heading}</h2>" in text
    assert text.count("best of 10 restarts by inertia") == 1  # a note is shown once, with all its figures
    assert "Share of queries whose nearest reference has their class" in text and "chance" in text and "counted" in text


@pytest.mark.skipif(not CHROMIUM.exists(), reason="no browser here")
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_browser_shows_the_report_without_errors(classes: tuple[Path, str], scheme: Any) -> None:
    driver = pytest.importorskip("playwright.sync_api")
    with driver.sync_playwright() as browsers:
        browser = browsers.chromium.launch(executable_path=str(CHROMIUM), args=["--no-sandbox"])
        tab = browser.new_page(viewport={"width": 420, "height": 800}, color_scheme=scheme)
        said: list[str] = []
        asked: list[str] = []
        tab.on("console", lambda message: said.append(message.text))
        tab.on("request", lambda request: asked.append(request.url))
        tab.goto((classes[0] / "report.html").as_uri())
        drawn = tab.evaluate("[...document.images].map(i => i.complete && i.naturalWidth > 300 && i.alt.length > 5)")
        narrow = tab.evaluate("document.documentElement.scrollWidth <= innerWidth")
        ink, paper = tab.evaluate("[getComputedStyle(document.body).color, getComputedStyle(document.body).backgroundColor]")
        browser.close()
    assert not said and len(drawn) >= 9 and all(drawn) and narrow
    assert [url for url in asked if not url.startswith("data:")] == [(classes[0] / "report.html").as_uri()]
    brightness = [sum(map(int, re.findall(r"\d+", color)[:3])) for color in (ink, paper)]
    assert (brightness[0] < brightness[1]) == (scheme == "light") and abs(brightness[0] - brightness[1]) > 500


def test_other_data_in_another_order_and_with_an_unknown_class(classes: tuple[Path, str], tmp_path: Path) -> None:
    folder, _ = classes
    labels = np.array([f"digit {label}" for label in DIGITS.target[1000:1060]], dtype="<U9")
    labels[:3] = "an alien"  # sorts before the digits, so all numbers move
    np.savez(tmp_path / "new.npz", x=(DIGITS.images[1000:1060] * 15).astype(np.uint8), y=labels)
    evaluated(str(folder), str(tmp_path / "new.npz"), "--out", str(tmp_path / "out"), "--no-pictures")
    page = json.loads((tmp_path / "out" / "evaluation.json").read_text())
    assert page["queries"]["points"] == 60 and page["queries"]["part"] == "all of new" and page["classes"][-1] == "an alien"
    assert scores(page)["map@r"]["counted"] == 57 and sum(scores(page)["map@r"]["left_out"].values()) == 3
    assert scores(page)["1-nn"]["value"] > 0.5


def test_training_points_among_other_queries_are_reported(classes: tuple[Path, str], tmp_path: Path) -> None:
    folder, _ = classes
    said, _ = evaluated(str(folder), str(folder.parent / "digits.npz"), "--out", str(tmp_path), "--no-pictures")
    page = json.loads((tmp_path / "evaluation.json").read_text())
    inside = next(one for one in page["sanity"] if one["check"] == "Queries among the references")
    assert inside["level"] == "wrong" and inside["found"].startswith("280 of 400 queries") and "✗ wrong" in said


def test_a_wrong_label_is_suspected_and_exported(classes: tuple[Path, str]) -> None:
    with (classes[0] / "suspected_labels.csv").open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert list(rows[0]) == ["path", "label", "neighbors_say", "confidence", "part"]
    assert any(row["path"].endswith(f"row {ZERO}") and (row["label"], row["neighbors_say"]) == ("digit 4", "digit 0") for row in rows)


def test_folders_of_pictures_with_damaged_files_and_names_that_look_like_html(tmp_path: Path) -> None:
    names = ["<b>zero</b> & co", "one", "two"]
    for row in np.flatnonzero(DIGITS.target[:150] < 3).tolist():
        place = tmp_path / "photos" / names[DIGITS.target[row]].replace("/", "|")
        place.mkdir(parents=True, exist_ok=True)
        Image.fromarray(PIXELS[row][1:]).save(place / f"{row}.png")
    (tmp_path / "photos" / "one" / "broken.png").write_bytes(b"no picture")
    settings = {**SETTINGS, "data.source": str(tmp_path / "photos"), "data.on_error": "skip", "network.name": "linear"}
    train(override(Run(), settings), tmp_path / "model", device="cpu")
    said, _ = evaluated(str(tmp_path / "model"), "--no-pictures")
    page = json.loads((tmp_path / "model" / "evaluation.json").read_text())
    count = len(np.flatnonzero(DIGITS.target[:150] < 3))
    assert page["notes"] == [f"1 of {count + 1} files of photos are damaged and were left out."] and page["notes"][0] in said
    text = (tmp_path / "model" / "report.html").read_text()
    assert "<b>zero" not in text and "&lt;b&gt;zero" in text
    new = tmp_path / "new"
    new.mkdir()
    (new / "broken.png").write_bytes(b"no picture")
    Image.fromarray(PIXELS[0][1:]).save(new / "fine.png")
    evaluated(str(tmp_path / "model"), str(new), "--out", str(tmp_path / "out"), "--no-pictures")
    page = json.loads((tmp_path / "out" / "evaluation.json").read_text())
    assert page["supervision"] == "ids" and page["queries"]["points"] == 1 and page["queries"]["left_out"] == {"damaged": 1}


def test_numbers_get_the_figures_of_numbers(tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    x = random.normal(size=(240, 5)).astype(np.float32)
    folder = trained(tmp_path, "numbers", x=x, targets=(2 * x[:, :1] + x[:, 1:2]).astype(np.float32))
    said, _ = evaluated(str(folder), "--compare")
    page = json.loads((folder / "evaluation.json").read_text())
    found = scores(page)
    assert {"mae", "rmse", "r2", "spearman"} <= set(found) and found["mae"]["low"] <= found["mae"]["value"] <= found["mae"]["high"]
    assert "mae" in said and not (folder / "suspected_labels.csv").exists()
    rows = {row["name"]: row for row in page["comparisons"]}
    assert list(rows) == ["raw inputs", "PCA", "PPCA", "linear NCA regression", "MLKR"]
    assert rows["MLKR"]["scores"]["mae"]["value"] < rows["PCA"]["scores"]["mae"]["value"]  # two of five columns matter
    assert "Choices and thresholds" in (folder / "report.html").read_text()


def test_methods_that_few_references_cannot_fit_are_left_out_of_the_table_with_a_note(tmp_path: Path, recwarn: Any) -> None:
    labels = np.array([0] * 5 + [1] * 5 + [2] + [0, 1] * 5)
    split = np.array(["train"] * 11 + ["test"] * 10)
    folder = trained(tmp_path, "few", {"data.validation": "0"}, x=PIXELS[:21], y=labels, split=split)
    said, _ = evaluated(str(folder), "--compare", "--no-pictures")
    rows = {row["name"]: row for row in json.loads((folder / "evaluation.json").read_text())["comparisons"]}
    assert rows["LMNN"]["scores"] == {} and "every class, but the smallest has 1" in rows["LMNN"]["note"] and rows["LDA"]["scores"]
    assert "LMNN: left out: 3 target neighbors need 4 references" in said and "│ LDA" in said and "│ LMNN" not in said
    assert "left out: 3 target neighbors" in (folder / "report.html").read_text()
    assert not [one for one in recwarn if "Only one sample" in str(one.message)]


def test_soft_neighbors_use_the_temperature_of_the_training(tmp_path: Path) -> None:
    folder = trained(tmp_path, "unlabeled", {"objective.name": "instance_discrimination", "epochs": "15"}, x=PIXELS[:150])
    np.savez(tmp_path / "labeled.npz", x=PIXELS[150:300], y=DIGITS.target[150:300])

    def soft() -> float | None:
        evaluated(str(folder), str(tmp_path / "labeled.npz"), "--out", str(tmp_path / "out"), "--no-pictures")
        found = scores(json.loads((tmp_path / "out" / "evaluation.json").read_text()))
        assert "1-nn" in found
        return found["soft neighbors"]["value"] if "soft neighbors" in found else None

    x = np.asarray(load(folder, device="cpu").encode(PIXELS[150:300, None])).astype(np.float64)
    x /= np.linalg.norm(x, axis=1, keepdims=True)
    labels, right = DIGITS.target[150:300], {}
    for temperature in (0.1, 1.0):
        weights = np.exp(x @ x.T / temperature)
        np.fill_diagonal(weights, 0)
        right[temperature] = float(((weights @ np.eye(10)[labels]).argmax(1) == labels).mean())
    assert soft() == pytest.approx(right[0.1]) and right[0.1] > right[1.0]
    page = json.loads((folder / "model.json").read_text())
    assert page.pop("temperature") == 0.1
    write_json(folder / "model.json", page)
    assert soft() is None  # older folders have no temperature


def test_without_labels_it_says_what_cannot_be_measured(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    twice = PIXELS[:150].copy()
    twice[77] = twice[5]
    folder = trained(tmp_path, "bare [red]", {"objective.name": "instance_discrimination"}, x=twice)  # no color, but a name
    assert "comparisons need data with classes or numbers" in refused(capsys, str(folder), "--compare")
    said, _ = evaluated(str(folder))
    page = json.loads((folder / "evaluation.json").read_text())
    assert "cannot be measured. To measure it, pass some labeled data" in said
    assert list(scores(page)) == ["hub_skewness", "hubs", "anti_hubs", "effective_rank"]
    assert "150 queries (train) compared with one another" in said
    assert "150 queries from the training part (nothing was held out)" in (folder / "report.html").read_text()
    assert page["queries"]["points"] == 150 and page["notes"][0] == NOTHING_HELD_OUT
    assert "<h2>Neighbors</h2>" in (folder / "report.html").read_text() and page["confusion"] is None
    assert f"the nearest first: {tmp_path}/bare [red].npz row 5 with " in " ".join(said.split())
    assert "bare [red].npz row 77" in next(one["found"] for one in page["sanity"] if one["check"] == "Near-duplicates")
    said, _ = evaluated(str(folder), str(tmp_path / "bare [red].npz"), "--out", str(tmp_path / "named"), "--no-pictures")
    assert "! look Queries among the references: 150 of 150 queries" in " ".join(said.split()) and "✗ wrong" not in said


def test_a_model_trained_without_labels_is_judged_by_labeled_data_among_themselves(tmp_path: Path) -> None:
    """Some of them may be training points, whose classes the model never saw."""
    folder = trained(tmp_path, "unlabeled", {"objective.name": "instance_discrimination"}, x=PIXELS[:150])
    np.savez(tmp_path / "labeled.npz", x=PIXELS[100:250], y=DIGITS.target[100:250])
    said, _ = evaluated(str(folder), str(tmp_path / "labeled.npz"), "--compare", "--no-pictures")
    page = json.loads((folder / "evaluation-labeled" / "evaluation.json").read_text())
    assert "compared with one another" in said and UNLABELED_TRAINING_PART in page["notes"]
    assert scores(page)["1-nn"]["value"] > 0.5 and page["queries"]["points"] == 150
    rows = {row["name"]: row for row in page["comparisons"]}
    assert list(rows) == ["raw pixels", "raw pixels, centered", "PCA", "PPCA"]  # the model's own metric is cosine
    pixels, labels = PIXELS[100:250].reshape(150, -1).astype(np.float64), DIGITS.target[100:250]
    centered = pixels - pixels.mean(0)
    lengths = np.linalg.norm(centered, axis=1)
    for name, affinity in (
        ("raw pixels", -((pixels[:, None] - pixels) ** 2).sum(2)),
        ("raw pixels, centered", centered @ centered.T / lengths[:, None] / lengths),
    ):
        np.fill_diagonal(affinity, -np.inf)
        assert rows[name]["scores"]["1-nn"]["value"] == pytest.approx((labels[affinity.argmax(1)] == labels).mean())
    assert rows["raw pixels"]["scores"]["1-nn"] != rows["raw pixels, centered"]["scores"]["1-nn"]


def test_sets_are_compared_by_their_overlap(tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    sets = random.random((200, 3)) < 0.5
    x = (sets @ random.normal(size=(3, 6)) + 0.1 * random.normal(size=(200, 6))).astype(np.float32)
    folder = trained(tmp_path, "sets", x=x, sets=sets, classes=np.array(["red", "round", "ripe"]))
    evaluated(str(folder))
    found = scores(json.loads((folder / "evaluation.json").read_text()))["overlap@1"]
    assert found["chance"] < 0.6 < found["value"] <= 1


def test_unseen_classes_answer_one_another(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = trained(tmp_path, "unseen", {"data.split": "classes"}, x=PIXELS, y=DIGITS.target[:400])
    assert "probes need queries of classes that the references have" in refused(capsys, str(folder), "--probes")
    said, _ = evaluated(str(folder), "--no-pictures")
    page = json.loads((folder / "evaluation.json").read_text())
    assert "compared with one another" in said and page["references"] is None
    assert scores(page)["recall@1"]["value"] > scores(page)["recall@1"]["chance"]


def test_without_matplotlib_there_is_a_report_without_pictures(
    classes: tuple[Path, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import sys

    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    said, _ = evaluated(str(classes[0]), "--out", str(tmp_path))
    assert "No pictures: figures need matplotlib" in said and "<h2>Figures</h2>" in (tmp_path / "report.html").read_text()


@pytest.mark.parametrize(
    ("split", "settings"),
    [
        (None, {}),
        (None, {"data.test": "0", "data.validation": "0"}),
        (["train", "train", "train", "test"], {}),
        (["train", "validation", "train", "test"], {}),
        (["train", "train", "train", "test"], {"data.split": "stratified"}),
    ],
)
def test_the_split_is_the_one_the_training_made(split: list[str] | None, settings: dict[str, str]) -> None:
    from nearkin.cli.evaluation_data import resplit

    data = open_data((PIXELS[:200], DIGITS.target[:200]))
    data = data if split is None else data.with_split(split * 50)
    made = cut(override(Run(), settings), data)
    again = resplit(data, json.loads(json.dumps(made.split)))
    for name, part in {"train": made.train, "validation": made.validation, "test": made.test}.items():
        assert (part is None) == (name not in again.parts)
        if part is not None:
            assert list(again.part(name).sources) == list(part.sources)


@pytest.mark.parametrize(
    ("words", "place"),
    [
        ([], "m"),
        (["--out", "o"], "o"),
        (["new.v2/", "--out", "o"], "o"),
        (["new.v2/"], "m/evaluation-new.v2"),
        (["table.csv", "--part", "validation"], "m/evaluation-table-validation"),
        (["--weights", "last"], "m/evaluation-last"),
        (["mnist"], "m/evaluation-mnist"),
    ],
)
def test_the_report_of_the_own_test_part_is_not_overwritten_by_others(words, place, tmp_path, monkeypatch) -> None:
    (tmp_path / "new.v2").mkdir()
    monkeypatch.chdir(tmp_path)
    assert output_folder(_parser().parse_args(["evaluate", "m", *words]), Path("m")) == Path(place)


def refused(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert cli.main(["evaluate", *arguments, "--device", "cpu"]) == 1
    return capsys.readouterr().err


def test_errors_of_the_verb(classes: tuple[Path, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder, _ = classes
    assert "is no model folder: it has no model.json" in refused(capsys, str(tmp_path))
    assert "is neither a file or folder nor a known data set" in refused(capsys, str(folder), "nowhere/at/all")
    np.savez(tmp_path / "small.npz", x=np.zeros((5, 3), dtype=np.float32))
    assert "holds points of shape (3,); this model reads (1, 8, 8)" in refused(capsys, str(folder), str(tmp_path / "small.npz"))
    copy = tmp_path / "copy"
    copy.mkdir()
    for name in ("model.json", "best.safetensors", "weights.safetensors", "split.json"):
        (copy / name).write_bytes((folder / name).read_bytes())
    assert "there is no training part to compare the queries with" in refused(capsys, str(copy), str(tmp_path / "small.npz"))
    run = json.loads((folder / "run.json").read_text())
    (copy / "run.json").write_text(json.dumps({**run, "data": {**run["data"], "source": str(tmp_path / "gone.npz")}}))
    assert "the queries are compared with the training data, which cannot be opened" in refused(capsys, str(copy))
    np.savez(tmp_path / "gone.npz", x=PIXELS[:390], y=DIGITS.target[:390])
    assert "has 390 points, but the training split 400: the data changed since" in refused(capsys, str(copy))


def test_a_part_that_was_not_held_out_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = trained(tmp_path, "whole", {"data.test": "0", "network.name": "linear", "epochs": "1"}, x=PIXELS[:100], y=DIGITS.target[:100])
    assert "the training held out no test part (it has train, validation); name other data" in refused(capsys, str(folder))
    evaluated(str(folder), "--part", "validation", "--no-pictures")
    page = json.loads((folder / "evaluation-validation" / "evaluation.json").read_text())
    assert scores(page)["1-nn"]["split"] == "validation" and page["command"].endswith("--part validation")
