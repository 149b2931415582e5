"""Every write call of index, checkpoint, model folder, shards, reports, map and export fails once: as SQLite's tests do.

A scenario is one operation on a folder. Its write calls are counted; then it is done again with a full disk, an I/O error, a failed sync, a
short write or a kill at each of them, and with a power cut after each. The folder must then hold the state before or the state after,
and the same operation, repeated, must succeed. CI visits a sample of the calls, `make soak` all of them.
"""

import contextlib
import io
import json
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import nearkin
from nearkin import cli
from nearkin import data as sources
from nearkin.cluster.embedding import embed
from nearkin.data.checksums import check_all
from nearkin.data.disk import FileDamagedError
from nearkin.data.shards import ShardDamagedError, is_sharded, open_shards
from nearkin.index.contract import Entries
from nearkin.index.local import LocalIndex
from nearkin.serve.atlas.model_maps import Indexed, build_maps
from nearkin.serve.atlas.store import is_whole
from nearkin.train import checkpoint
from nearkin.train.config import Run, override
from nearkin.train.saved_run import read_run
from nearkin.train.training import train
from tests.cli.test_damaged_folders import two_writers
from tests.faults import FAULTS, Fault, after_power_cut, calls, faults, in_a_process
from tests.soak_results import counted

SETTINGS = {"network.name": "mlp", "network.dimension": "3", "network.options.hidden": "[4]", "epochs": "2", "batch_size": "20"}
SAMPLED = 2  # calls of each scenario and fault that CI visits


@dataclass(frozen=True)
class Scenario:
    """How to prepare a folder, the operation, and the state that is compared; it raises if something is broken."""

    prepare: Callable[[Path], object]
    work: Callable[[Path], object]
    state: Callable[[Path], object]
    steps: bool = False  # whether it has states of its own between the two, each of them whole


def points(n: int, seed: int = 0) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    y = np.arange(n) % 3
    return {"x": (rng.normal(size=(n, 5)) + 3 * y[:, None]).astype(np.float32), "y": np.array(["a", "b", "c"])[y]}


def index_with(folder: Path, n: int = 30) -> LocalIndex:
    index = LocalIndex.create(folder / "index", model="m", metric="squared_euclidean", dimension=5)
    index.add(batch(n))
    return index


def batch(n: int, seed: int = 0) -> Entries:
    some = points(n, seed)
    return Entries(some["x"], labels=some["y"].tolist(), sources=[f"{seed}-{i}" for i in range(n)])


def index_state(folder: Path) -> object:
    index = LocalIndex.open(folder / "index")
    index.verify()
    stored = index.read_all()
    return stored.ids.tolist(), stored.vectors.tobytes(), [tuple(map(str, one)) for one in stored.entries]


def changed(change: Callable[[LocalIndex], object]) -> Callable[[Path], object]:
    return lambda folder: change(LocalIndex.open(folder / "index"))


def add_missing(folder: Path) -> None:
    """Ten adds and a compaction, as `nearkin index --add` does them: what is there already is skipped."""
    index = LocalIndex.open(folder / "index")
    for seed in range(1, 11):
        if not index.known_sources([f"{seed}-0"]):
            index.add(batch(6, seed))
    index.compact()


def save_checkpoint(folder: Path, step: int) -> None:
    checkpoint.save(folder / "checkpoints", step, {"w": torch.arange(50_000.0) + step}, {"epoch": step})


def checkpoint_state(folder: Path) -> object:
    found = checkpoint.newest(folder / "checkpoints", lambda line: pytest.fail(line))
    assert found is not None
    return found.step, found.state, float(found.tensors["w"].sum())


def shards_state(folder: Path) -> object:
    if not is_sharded(folder / "shards"):
        return None
    found = open_shards(folder / "shards", partial=True, verify=True) if _records(folder) else []
    return [(part.ids.tolist(), part.vectors.tobytes()) for part in found]


def _records(folder: Path) -> list[Any]:
    found: list[Any] = json.loads((folder / "shards/shards.json").read_text())["body"]["shards"]
    return found


def trained(folder: Path) -> None:
    run = override(Run(), {**SETTINGS, "checkpoint_seconds": "0", "data.source": str(folder / "points.npz")})
    begun = (folder / "model/run.json").exists() or any((folder / "model/checkpoints").glob("step-*"))
    train(run, folder / "model", device="cpu", resume=begun)


def trained_state(folder: Path) -> object:
    """The figures of the trained model, which do not depend on how often it was interrupted."""
    model = folder / "model"
    if not (model / "metrics.json").exists():
        return None
    assert not [one for one in check_all(model) if one.wrong and one.name != "README.md"]
    metrics = json.loads((model / "metrics.json").read_text())
    embeddings = nearkin.load(model, device="cpu").encode(points(9)["x"])
    return metrics["steps"], metrics["test"], np.asarray(embeddings).tobytes()


def quietly(*words: object) -> None:
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()) as said:
        if cli.main([*map(str, words), "--device", "cpu"]):
            raise OSError(5, said.getvalue().splitlines()[-1])


def evaluated_state(folder: Path) -> object:
    page = folder / "model/evaluation.json"
    assert not [one for one in check_all(folder / "model") if one.wrong and one.name != "README.md"]
    return json.loads(page.read_text())["figures" if "figures" in page.read_text() else "metric"] if page.exists() else None


def with_model(folder: Path) -> None:
    np.savez(folder / "points.npz", **points(60))
    trained(folder)


def embedded_state(folder: Path) -> object:
    path = folder / "e.npz"
    if not path.exists():
        return None
    return {name: array.tobytes() for name, array in np.load(path).items() if name != "sources"}  # these name the folder


def map_state(folder: Path) -> object:
    path = folder / "atlas/single.safetensors"
    assert not path.exists() or is_whole(path)
    return path.exists()


def draw_map(folder: Path) -> None:
    list(build_maps([Indexed(folder, LocalIndex.open(folder / "index"))], "pca"))


def drawn_page(folder: Path) -> None:
    from nearkin.serve.atlas.export import write_page

    write_page(list(build_maps([Indexed(folder, LocalIndex.open(folder / "index"))], "pca"))[-1], folder / "page")


def page_state(folder: Path) -> object:
    """A page without atlas.js shows nothing; with it, every file is there."""
    names = sorted(path.name for path in (folder / "page").rglob("*") if path.is_file())
    return names if "atlas.js" in names else None


def with_map(folder: Path) -> None:
    index_with(folder)
    draw_map(folder)


SCENARIOS = {
    "index: add": Scenario(index_with, changed(lambda index: index.add(batch(20, 1))), index_state),
    "index: delete": Scenario(index_with, changed(lambda index: index.delete([3, 4])), index_state),
    "index: compact": Scenario(lambda folder: index_with(folder).delete([1, 2]), changed(lambda index: index.compact()), index_state),
    "index: replace": Scenario(
        index_with,
        changed(lambda index: index.replace([batch(9, 2), batch(8, 3)], model="m", metric="cosine", dimension=5)),
        index_state,
    ),
    "index: ten adds": Scenario(index_with, add_missing, index_state, steps=True),
    "checkpoint": Scenario(lambda folder: save_checkpoint(folder, 1), lambda folder: save_checkpoint(folder, 2), checkpoint_state),
    "shards": Scenario(
        lambda _: None, lambda folder: embed(None, sources.open(points(50)), folder / "shards", rows=20), shards_state, steps=True
    ),
    "map": Scenario(index_with, draw_map, map_state),
    "page": Scenario(with_map, drawn_page, page_state),
    "embeddings": Scenario(
        with_model, lambda folder: quietly("embed", folder / "model", folder / "points.npz", "--out", folder / "e.npz"), embedded_state
    ),
    "training": Scenario(lambda folder: np.savez(folder / "points.npz", **points(60)), trained, trained_state, steps=True),
    "report": Scenario(with_model, lambda folder: quietly("evaluate", folder / "model", "--no-pictures"), evaluated_state, steps=True),
}
SLOW = {"training": 2, "report": 1}  # every so many calls even in the soak; the others are visited at every call
WITHOUT_TORCH_AT_WORK = [name for name in SCENARIOS if name not in ("report",)]


class Prepared:
    """A prepared folder, the states before and after, and the write calls between them."""

    def __init__(self, scenario: Scenario, place: Path) -> None:
        self.scenario, self.place, self.base = scenario, place, place / "base"
        self.base.mkdir(parents=True)
        scenario.prepare(self.base)
        self.before = scenario.state(self.base)
        root = self.fresh("whole")
        self.layer = calls(lambda: scenario.work(root))
        self.after, self.root = scenario.state(root), root
        assert self.layer.count > 3

    def fresh(self, name: str) -> Path:
        shutil.rmtree(self.place / name, ignore_errors=True)
        return shutil.copytree(self.base, self.place / name)

    def right(self, found: object) -> bool:
        return self.scenario.steps or found in (self.before, self.after)


def visit(prepared: Prepared, fault: Fault, at: int) -> bool:
    """One fault at one call; returns whether it struck."""
    scenario, folder = prepared.scenario, prepared.fresh("tried")
    if fault == "kill":
        struck = in_a_process(lambda: scenario.work(folder), at)
    else:
        with faults(at, fault) as layer:
            try:
                scenario.work(folder)
                failed = False
            except OSError:  # anything else, a wrong error among them, fails the test
                failed = True
        struck = layer.met
        assert struck or not failed
        if fault == "short":
            assert not failed and scenario.state(folder) == prepared.after
    assert prepared.right(scenario.state(folder)), f"{fault} at call {at}: neither the state before nor the one after"
    if scenario.state(folder) != prepared.after:
        scenario.work(folder)
    assert scenario.state(folder) == prepared.after, f"{fault} at call {at}: the repeated operation ends in another state"
    return struck


def cut_power(prepared: Prepared, at: int, kept: Any) -> None:
    """A power cut after one call."""
    scenario, folder = prepared.scenario, prepared.place / "cut"
    shutil.rmtree(folder, ignore_errors=True)
    after_power_cut(prepared.base, prepared.layer.log[:at], prepared.root, folder, kept)
    found = scenario.state(folder)
    assert prepared.right(found), f"a power cut after call {at} ({kept}): neither the state before nor the one after"
    if at == len(prepared.layer.log):
        assert found == prepared.after, "what was acknowledged is lost"


def sample(n: int, step: int = 1, seed: int = 0) -> Iterator[int]:
    yield from range(1 + seed % step, n + 1, step)


@pytest.mark.parametrize("name", ["index: add", "index: replace", "checkpoint", "shards", "page"])
def test_a_sample_of_faults(tmp_path: Path, name: str) -> None:
    prepared = Prepared(SCENARIOS[name], tmp_path)
    for number, fault in enumerate(FAULTS):
        for at in sample(prepared.layer.count, max(1, prepared.layer.count // SAMPLED), number):
            visit(prepared, fault, at)
    for number, kept in enumerate(("nothing", "names", "removals")):
        for at in sample(len(prepared.layer.log), max(1, len(prepared.layer.log) // SAMPLED), number):
            cut_power(prepared, at, kept)
        cut_power(prepared, len(prepared.layer.log), kept)


@pytest.mark.soak
def test_every_fault_at_every_call(tmp_path: Path) -> None:
    with counted("injected faults (full disk, I/O error, failed sync, short write)") as found:
        for name, scenario in SCENARIOS.items():
            prepared = Prepared(scenario, tmp_path / name.replace(": ", "-"))
            for number, fault in enumerate(FAULTS):
                if fault != "kill":
                    for at in sample(prepared.layer.count, SLOW.get(name, 1), number):
                        found.count += visit(prepared, fault, at)
        found.outcome = "the state before or after, never another; the repeated operation succeeds"
        assert found.count >= 1000


@pytest.mark.soak
def test_a_kill_at_every_call(tmp_path: Path) -> None:
    with counted("kills at a write call of index, training, shards, map, page and embeddings") as found:
        for name in WITHOUT_TORCH_AT_WORK:
            prepared = Prepared(SCENARIOS[name], tmp_path / name.replace(": ", "-"))
            for at in sample(prepared.layer.count):
                found.count += visit(prepared, "kill", at)
        found.outcome = "nothing acknowledged lost, the same weights and points after the repeated command"


@pytest.mark.soak
def test_a_power_cut_after_every_call(tmp_path: Path) -> None:
    with counted("power cuts after a write call, unsynced writes dropped") as found:
        for name, scenario in SCENARIOS.items():
            if name == "report":  # its figures are those of "training", its files as those of "embeddings"
                continue
            prepared = Prepared(scenario, tmp_path / name.replace(": ", "-"))
            for kept in ("nothing", "names", "removals"):
                for at in range(len(prepared.layer.log) + 1):
                    cut_power(prepared, at, kept)
                    found.count += 1
        found.outcome = "the state before or after; nothing acknowledged lost"


def files_of(folder: Path) -> list[Path]:
    """Every file with a checksum: all but the lock and the log."""
    return sorted(path for path in folder.rglob("*") if path.is_file() and path.name not in ("lock", ".lock", "log.jsonl"))


def everything(folder: Path) -> dict[str, object]:
    """What users get from the folder: embeddings, neighbors, settings, split and the resumed checkpoint."""
    model = folder / "model"
    found = {which: nearkin.load(model, which=which, device="cpu") for which in ("best", "last")}
    x = points(6, 4)["x"]
    answers = nearkin.open_index(model, device="cpu").index.search(np.asarray(found["best"].encode(x)), 5)
    newest = checkpoint.newest(model / "checkpoints")
    return {
        "best": np.asarray(found["best"].encode(x)).tobytes(),
        "last": np.asarray(found["last"].encode(x)).tobytes(),
        "predicted": np.asarray(found["best"].predict(x)).tobytes(),
        "answers": [[(hit.id, hit.affinity, hit.label, hit.source) for hit in answer.hits] for answer in answers],
        "run": read_run(model),
        "checkpoint": None if newest is None else (newest.step, float(sum(value.double().sum() for value in newest.tensors.values()))),
        "shards": [(part.ids.tolist(), part.vectors.tobytes()) for part in open_shards(folder / "shards")],
    }


def as_parsed(content: bytes) -> object:
    try:
        return json.loads(content)
    except ValueError:
        return None


def flipped(folder: Path, expected: dict[str, object], path: Path, at: int, bit: int) -> str:
    """Flip a bit and look: "found" if opening says so and names the file, "unread" if all is as before and `nearkin check` finds it."""
    raw = path.read_bytes()
    path.write_bytes(raw[:at] + bytes([raw[at] ^ 1 << bit]) + raw[at + 1 :])
    try:
        try:
            now = everything(folder)
        except (FileDamagedError, ShardDamagedError, FileNotFoundError) as error:
            named = path.name in str(error) or str(path.parent) in str(error)
            return "found" if named else pytest.fail(f"{path} at {at}: the message names another file: {error}")
        older = path.parent.parent.name == "checkpoints"  # the checkpoint before is used
        for name, value in expected.items():
            assert now[name] == value or (older and name == "checkpoint"), f"{path} at {at}: {name} is silently another"
        with contextlib.redirect_stdout(io.StringIO()):
            places = [folder / ("shards" if "shards" in path.parts else "model")]
            same = path.suffix == ".json" and as_parsed(path.read_bytes()) == json.loads(raw)  # such as 1E-5 for 1e-5
            assert same or any(cli.main(["check", str(place)]) for place in places), f"{path} at {at}: unnoticed"
        return "unread"
    finally:
        path.write_bytes(raw)


def with_everything(folder: Path) -> dict[str, object]:
    with_model(folder)
    quietly("index", folder / "model", folder / "points.npz")
    quietly("evaluate", folder / "model", "--no-pictures")
    draw_map_of(folder / "model")
    embed(folder / "model", sources.open(str(folder / "points.npz")), folder / "shards", rows=25, device="cpu")
    return everything(folder)


def draw_map_of(model: Path) -> None:
    list(build_maps([Indexed(model, nearkin.open_index(model, device="cpu").index.frozen())], "pca"))


def flips(folder: Path, count: int) -> tuple[int, int]:
    """So many flips over every file, evenly; returns how many were found at opening, and how many by `nearkin check` only."""
    expected, rng = with_everything(folder), np.random.default_rng(0)
    paths = [path for place in ("model", "shards") for path in files_of(folder / place)]
    found = [
        flipped(folder, expected, path, int(rng.integers(path.stat().st_size)), int(rng.integers(8)))
        for path in (paths[number % len(paths)] for number in range(count))
    ]
    return found.count("found"), found.count("unread")


def test_no_flipped_bit_goes_unnoticed(tmp_path: Path) -> None:
    at_opening, by_check = flips(tmp_path, 20)
    assert at_opening > 4 and by_check > 4


@pytest.mark.soak
def test_a_thousand_flipped_bits(tmp_path: Path) -> None:
    with counted("flipped bits in every file of model, index, checkpoints, map and shards") as found:
        at_opening, by_check = flips(tmp_path, 1000)
        found.count = at_opening + by_check
        found.outcome = (
            f"{at_opening} named when the file was opened, {by_check} in files that were not read named by nearkin check; 0 silent"
        )


@pytest.mark.soak
def test_two_writers_a_hundred_times(tmp_path: Path) -> None:
    with counted("pairs of writers of one folder (index --add, train)") as found:
        refused = 0
        with_model(tmp_path)
        quietly("index", tmp_path / "model", tmp_path / "points.npz")
        for number in range(50):
            place = tmp_path / str(number)
            place.mkdir()
            refused += two_writers(tmp_path / "points.npz", shutil.copytree(tmp_path / "model", place / "model"), place)
            shutil.rmtree(place)
            found.count += 2
        found.outcome = (
            f"{refused} second writers refused by name, the others came after the first had ended; no point twice, no mixed training"
        )
