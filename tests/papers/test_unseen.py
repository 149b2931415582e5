"""Unseen classes: no class stands on both sides, every row of the table trains, and ensembles take what tuning liked best."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import save_file

from nearkin.data import Dataset
from nearkin.models.mobilenet import MobileNetV2
from nearkin.train.assemble import assemble
from papers import lu2019, lu2019_trials, unseen
from papers.cell import Trial
from papers.ledger import Job, Ledger
from papers.lu2019_pictures import NO_GALLERY, draw, picture_lines
from papers.tables import TABLES
from papers.trial_run import Place, perform
from papers.unseen import Where, best_two, parts_of
from tests.recording import Recordable

SMALL = {"network.options.widths": "[8, 8]", "network.options.hidden": "16", "network.dimension": "8"}
TRIALS = {trial.name: trial for trial in lu2019_trials.TRIALS}
OMNIGLOT = [trial for trial in lu2019_trials.TRIALS if trial.data == "omniglot" and trial.tune]


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Omniglot's and CUB's layouts in small: 8 and 3 alphabets of 8 characters, 4 birds, and weights of a MobileNet."""
    folder = tmp_path_factory.mktemp("data")
    generator = np.random.default_rng(0)
    names = [f"alphabet{a:02d}/character{c}" for a in range(11) for c in range(8)]
    shapes = generator.random((len(names), 28, 28)) > 0.6
    y = np.repeat(np.arange(len(names)), 12)
    x = np.where(generator.random((len(y), 28, 28)) > 0.1, shapes[y], ~shapes[y]).astype(np.uint8) * 255
    (folder / "omniglot").mkdir()
    np.savez(folder / "omniglot" / "omniglot28.npz", x=x, y=y, classes=np.array(names), is_eval=np.arange(len(names)) >= 64)
    for part, count in (("train", 3), ("test", 2)):
        for bird in ("001.A", "002.B", "101.C", "102.D"):
            place = folder / "cub200" / part / bird
            place.mkdir(parents=True)
            for i in range(count):
                Image.fromarray(generator.integers(0, 256, (128, 128, 3), dtype=np.uint8)).save(place / f"{i}.png")
    body = MobileNetV2().state_dict()
    save_file({**body, "classifier.1.weight": torch.zeros(5, 1280)}, folder / "mobilenet_v2-b0353104.safetensors")
    return folder


def shortened(trial: Trial, **more: str) -> Trial:
    return replace(trial, settings={**trial.settings, **SMALL, "iterations": "3", **more})


def test_no_class_stands_on_both_sides(root: Path) -> None:
    train, queries = parts_of("omniglot", str(root), False)
    assert len(train.classes) == 64 and len(queries.classes) == 24 and not set(train.classes) & set(queries.classes)
    kept, held = parts_of("omniglot", str(root), True)
    alphabets = [{name.split("/")[0] for name in part.classes} for part in (kept, held, queries)]
    assert not alphabets[0] & alphabets[1] and not alphabets[1] & alphabets[2] and len(alphabets[1]) >= 1
    assert len(kept) + len(held) == len(train) and torch.equal(kept.labels.unique(), torch.arange(len(kept.classes)))


def test_birds_of_the_first_half_train_and_those_of_the_second_are_asked(root: Path) -> None:
    train, queries = parts_of("cub", str(root), False)
    assert train.classes == ("001.A", "002.B") and queries.classes == ("101.C", "102.D")
    assert len(train) == len(queries) == 10 and train.shape == (3, 128, 128)  # the official parts of each class together


def test_training_images_of_some_classes_and_test_images_of_the_others() -> None:
    data = type("Data", (), {"labels": torch.tensor([0, 0, 1, 1]), "classes": ("a", "b"), "split": np.array(["train", "test"] * 2)})
    train, queries = unseen._cut(unseen.TASKS["cifar"], data)  # type: ignore[arg-type]
    assert train.tolist() == [True, False, False, False] and queries.tolist() == [False, False, False, True]


@pytest.mark.parametrize("trial", OMNIGLOT, ids=lambda trial: trial.name.removeprefix("lu2019-omniglot-"))
def test_every_row_trains(trial: Trial, root: Path) -> None:
    more = {"objective.options.memory": "500"} if "memory" in trial.name else {}
    short = shortened(trial, watch="0", tuning_iterations="6", **more)  # on CUDA the fourth step is recorded and the others replay it
    found = perform(Job(short, trial.candidates()[-1], None), Place(str(root), "cuda" if torch.cuda.is_available() else "cpu"))
    assert 0 < found["figures"]["precision@1"] <= 1 and "intervals" not in found
    assert len(trial.candidates()) == 4, "every loss has the same number of tuning runs"


def without_network(trial: Trial) -> Trial:
    """The same trial with a linear map for a network, and crops of 6 pixels."""
    kept = {leaf: value for leaf, value in trial.settings.items() if not leaf.startswith("network.")}
    small = {leaf: "6" for leaf in ("preprocess.options.crop", "augment.options.size") if leaf in kept}
    linear = {"network.name": "linear", "network.dimension": "40", "network.normalize": trial.settings["network.normalize"]}
    return replace(trial, settings={**kept, **small, **linear, "tuning_iterations": "2"})


@pytest.mark.filterwarnings("ignore:mkldnn_matmul failed")  # on a CPU without bfloat16
@pytest.mark.parametrize("name", lu2019_trials.SETS)
def test_every_trial_of_every_set_trains(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Forty classes of 12 tiny images stand for each set: samplers, anchors, memories and settings are the trials' own."""
    channels, labels = 1 if name == "omniglot" else 3, torch.arange(40).repeat_interleave(12)
    images = torch.randint(0, 256, (480, channels, 8, 8), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    data = Dataset(name, images, labels, tuple(f"class {number}" for number in range(40)))
    monkeypatch.setattr(unseen, "parts_of", lambda *_: (data, data))
    monkeypatch.setattr(unseen, "_measured", lambda _, embeddings, **__: {"figures": {"length": float(embeddings.norm())}})
    trials = [trial for trial in lu2019_trials.TRIALS if trial.data == name and trial.tune]
    assert len(trials) == (16 if name in lu2019_trials.NOT_RUN else 36)
    for trial in trials:
        found = perform(Job(without_network(trial), trial.candidates()[-1], None), Place("", "cpu"))
        assert found["figures"]["length"] > 0, trial.name


def recorded(settings: dict[str, str], data: Dataset, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Do a step as a CUDA graph records it: without reading values on the host, and without the optimizer, which differs."""
    run, _ = unseen._run(settings, 0, Where(str(root), "cpu"))
    parts = assemble(run, data, torch.device("cpu"))
    parts.network.train()
    ids = next(iter(parts.sampler))
    parts.step(ids)  # the first steps are ordinary ones
    monkeypatch.setattr("nearkin.compose.value_checks.READ_FROM", ())  # as on CUDA
    monkeypatch.setattr(parts.step, "move", lambda: None)
    with Recordable():
        parts.step(ids)


@pytest.mark.parametrize("trial", OMNIGLOT, ids=lambda trial: trial.name.removeprefix("lu2019-omniglot-"))
def test_every_row_can_be_recorded_as_a_graph(trial: Trial, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = {**shortened(trial).settings, **trial.candidates()[0]}
    recorded(settings, parts_of("omniglot", str(root), False)[0], root, monkeypatch)


@pytest.mark.soak
def test_birds_can_be_recorded_as_a_graph(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    trial = TRIALS["lu2019-cub-11-prec5-released"]
    few = {"batch_size": "4", "sampler.options.per_class": "2"}
    recorded({**trial.settings, **trial.candidates()[0], **few}, parts_of("cub", str(root), False)[0], root, monkeypatch)


def test_tuning_may_be_shorter_than_training(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    trial = shortened(TRIALS["lu2019-omniglot-11-prec5-printed"], iterations="12", tuning_iterations="4", watch="0")
    monkeypatch.setattr(unseen, "_one_model", lambda _, settings, *__, **___: {"iterations": settings["iterations"]})
    where = Where(str(root), "cpu")
    assert [unseen.perform(trial, 0, {}, where, validation=tuning)["iterations"] for tuning in (True, False)] == ["4", "12"]


def test_a_followed_trial_has_a_curve_intervals_and_keeps_its_embeddings(root: Path, tmp_path: Path) -> None:
    trial = shortened(TRIALS["lu2019-omniglot-11-prec5-printed"], iterations="12", watch="3")
    found = perform(Job(trial, trial.candidates()[0], 0), Place(str(root), "cpu", str(tmp_path)))
    assert [point["iteration"] for point in found["curve"]] == [4, 8, 12]
    assert found["curve"][0]["active"] < found["curve"][-1]["active"] <= 12 * 64 * 5
    assert found["figures"]["precision@1"] == found["curve"][-1]["precision@1"]
    low, high = found["intervals"]["precision@1"]
    assert low <= found["figures"]["precision@1"] <= high and set(lu2019.COLUMNS.values()) <= set(found["figures"])
    kept = np.load(tmp_path / "embeddings" / "lu2019-omniglot-11-prec5-printed.npz")
    assert kept["embeddings"].shape == (24 * 12, 8) and kept["labels"].max() == 23
    later = perform(Job(trial, trial.candidates()[0], 1), Place(str(root), "cpu", str(tmp_path)))
    assert "curve" not in later  # one seed is enough for a picture


def test_the_same_seed_gives_the_same_figures(root: Path) -> None:
    trial = shortened(TRIALS["lu2019-omniglot-11-triplet-semi"], watch="0")
    runs = [perform(Job(trial, trial.candidates()[0], 5), Place(str(root), "cpu"))["figures"] for _ in range(2)]
    assert runs[0]["map"] == runs[1]["map"]


@pytest.mark.parametrize("kind", ["pixels", "untrained", "pretrained", "projected"])
def test_floors(kind: str, root: Path) -> None:
    trial = TRIALS[f"lu2019-cub-floor-{kind}"]
    found = perform(Job(trial, {}, 0), Place(str(root), "cpu"))
    assert 0 <= found["figures"]["precision@1"] <= 1 and "seconds per 1,000" not in found["figures"]


def test_the_best_two_by_tuning_make_the_ensemble(root: Path, tmp_path: Path) -> None:
    for name, figure in (("triplet-semi", 0.3), ("prec5-printed", 0.5), ("angular", 0.4), ("prec5-margin0.2", 0.6)):  # a sweep is no loss
        trial = shortened(TRIALS[f"lu2019-omniglot-11-{name}"])
        settings = {"settings": dict(trial.settings), "tune": dict(trial.tune)}
        ledger = {"trial": trial.name, "settings": settings, "chosen": trial.candidates()[0], "runs": []}
        (tmp_path / f"{trial.name}.json").write_text(json.dumps({**ledger, "tuning": [{"figure": figure}, {"figure": None}]}))
    assert [name[19:] for name, _ in best_two(tmp_path, "lu2019-omniglot-11-")] == ["prec5-printed", "angular"]
    found = perform(Job(TRIALS["lu2019-omniglot-ensemble"], {}, 0), Place(str(root), "cpu", str(tmp_path)))
    assert found["members"] == ["lu2019-omniglot-11-prec5-printed", "lu2019-omniglot-11-angular"] and found["figures"]["map@r"] > 0
    with pytest.raises(ValueError, match="an ensemble needs two tuned trials lu2019-cub"):
        unseen.perform(TRIALS["lu2019-cub-ensemble"], 0, {}, Where(str(root), "cpu", str(tmp_path)), validation=False)


def test_a_longer_training_takes_what_the_short_one_chose(root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    longer = TRIALS["lu2019-cub-longer-2-proxy"]
    assert longer.follows and int(longer.settings["iterations"]) == lu2019_trials.TIMES * int(
        TRIALS["lu2019-cub-2-proxy"].settings["iterations"]
    )
    monkeypatch.setattr(unseen, "_one_model", lambda _, settings, *__, **___: settings)
    where = Where(str(root), "cpu", str(tmp_path))
    with pytest.raises(ValueError, match="uses the settings chosen by lu2019-cub-2-proxy, which is not tuned in .*; run that trial first"):
        unseen.perform(longer, 0, {}, where, validation=False)
    chosen = {"optimizer.learning_rate": "0.002", "objective.options.temperature": "0.333"}
    (tmp_path / "lu2019-cub-2-proxy.json").write_text(json.dumps({"chosen": chosen}))
    found = unseen.perform(longer, 0, {}, where, validation=False)
    assert chosen.items() <= found.items() and found["sampler.options.per_class"] == "2"
    unseen._run(found, 0, where)  # the rest are leaves of a run


@pytest.mark.parametrize("data", lu2019_trials.LONGER)
def test_the_longer_trainings_are_of_the_best_on_held_out_classes(data: str) -> None:
    """As their table says; without the runs there is nothing to compare."""
    results = Path(__file__).resolve().parents[2] / "docs/results"
    tuned = {name: Ledger.read(results, trial).tuning for name, trial in TRIALS.items() if trial.data == data and trial.tune}
    best = {name.removeprefix(f"lu2019-{data}-"): max(one["figure"] for one in some) for name, some in tuned.items() if some}
    for batches, losses in (("11", lu2019_trials.TABLE_1), ("2", lu2019_trials.TABLE_1), ("any", lu2019_trials.WITH_VECTORS)):
        assert max((f"{batches}-{name}" for name in losses), key=lambda name: best.get(name, 0.0)) in lu2019_trials.LONGER[data]


def test_a_training_that_diverges_has_no_figures(root: Path) -> None:
    trial = shortened(TRIALS["lu2019-omniglot-11-npair"], iterations="12")
    found = perform(Job(trial, {"optimizer.learning_rate": "1e30"}, 0), Place(str(root), "cpu"))
    assert found["figures"] == {}


def test_names_are_distinct_beginnings_and_every_row_is_there() -> None:
    names = [trial.name for trial in lu2019_trials.TRIALS]
    assert not [(a, b) for a in names for b in names if a != b and b.startswith(a)]
    cells = TABLES["lu2019"][1]
    assert {cell.trial for cell in cells} == set(names)
    printed = {(cell.row, cell.column): cell.printed for cell in cells if "CUB" in cell.table and cell.printed is not None}
    assert printed["Prec@5 as released", "P@1"] == 61.07 and printed["Distance-weighted triplets", "mAP"] == 31.35 and len(printed) == 100


def test_pictures_are_drawn_from_what_followed_runs_left(root: Path, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="holds no followed run of lu2019-omniglot-11"):
        next(draw("omniglot", tmp_path, tmp_path, root))
    for name in ("prec5-printed", "triplet-semi"):
        trial = shortened(TRIALS[f"lu2019-omniglot-11-{name}"], iterations="12", watch="3")
        ledger = Ledger.read(tmp_path, trial)
        job = Job(trial, trial.candidates()[0], 0)
        ledger.add(job, perform(job, Place(str(root), "cpu", str(tmp_path))))
        ledger.save(tmp_path)
    assert picture_lines(tmp_path) == {}
    drawn = list(draw("omniglot", tmp_path, tmp_path, root, "pca"))
    assert [path.name.removeprefix("lu2019-omniglot-") for path in drawn] == [
        "iterations.png",
        "active.png",
        "pairs.png",
        "gallery.png",
        "map.png",
    ]
    assert all(path.stat().st_size > 5000 for path in drawn)
    [lines] = picture_lines(tmp_path).values()  # below the table of the first protocol
    assert f"![Figure 6: t-SNE of the first twenty test classes.](../{tmp_path.name}/lu2019-omniglot-map.png)" in lines
    assert NO_GALLERY not in lines
    (tmp_path / "lu2019-cub-map.png").write_bytes(b"")  # photographs of others: no gallery, and the page says so
    assert [NO_GALLERY in some for some in picture_lines(tmp_path).values()].count(True) == 1
