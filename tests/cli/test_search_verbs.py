"""index, search and serve from the command line: what they do, what they print, and how they say no."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from sklearn.datasets import load_digits

from nearkin import cli
from nearkin.cli.index import parsed_ids
from nearkin.index.collection import model_version
from nearkin.index.local import LocalIndex
from tests.serve.small_model import D, make_model, make_pictures, picture


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a model, its pictures, and an index made by the command line."""
    place = tmp_path_factory.mktemp("verbs")
    make_model(place / "model")
    make_pictures(place / "pictures")
    (place / "queries").mkdir()
    for number, color in enumerate(("red", "green", "blue")):
        picture(color, 900 + number).save(place / "queries" / f"{number}-{color}.png")
    assert cli.main(["index", str(place / "model"), str(place / "pictures"), "--device", "cpu"]) == 0
    return place


def run(capsys: pytest.CaptureFixture[str], *arguments: object) -> str:
    assert cli.main([str(one) for one in arguments]) == 0
    return capsys.readouterr().out


def refused(capsys: pytest.CaptureFixture[str], *arguments: object) -> str:
    assert cli.main([str(one) for one in arguments]) == 1
    return capsys.readouterr().err


def test_an_index_is_built_and_described(tmp_path: Path, capsys) -> None:
    model, pictures = make_model(tmp_path / "model"), make_pictures(tmp_path / "pictures")
    output = run(capsys, "index", model, pictures, "--device", "cpu")
    assert (
        "60 points added" in output
        and "60 points of 8 dimensions" in output
        and "searched by exact" in output
        and "likely of the same class from affinity" in output
    )
    assert "already has an index; add to it (--add), or rebuild it (--replace)" in refused(capsys, "index", model, pictures)
    more = make_pictures(tmp_path / "more", 2, first=500)
    (more / "red/broken.png").write_bytes(b"\x89PNG")
    assert cli.main(["index", str(model), "--add", str(more)]) == 0
    out, err = capsys.readouterr()
    assert "6 points added, 1 could not be decoded" in out and "broken.png cannot be decoded" in err
    assert "0 points added, 60 were already in the index" in run(capsys, "index", model, "--add", pictures)
    told = run(capsys, "index", model, "--delete", "0-9,65", "--compact", "--check")
    assert "11 points removed" in told and "every file matches its checksum" in told and "55 points" in told
    assert "20 points added" not in run(capsys, "index", model, pictures, "--replace") and LocalIndex.open(model / "index").count == 60


def test_another_backend_is_taken_from_now_on(tmp_path: Path, capsys) -> None:
    pytest.importorskip("faiss")
    model, pictures = make_model(tmp_path / "model"), make_pictures(tmp_path / "pictures")
    run(capsys, "index", model, pictures, "--device", "cpu")
    assert "searched by hnsw" in run(capsys, "index", model, "--backend", "hnsw")
    assert "ivf_pq needs at least 10,000 points" in refused(capsys, "index", model, "--backend", "ivf_pq")


def test_a_picture_is_answered_in_a_table(place: Path, capsys) -> None:
    output = run(capsys, "search", place / "model", place / "queries/0-red.png", "-k", 3)
    assert (
        "0-red.png: the 3 nearest" in output and output.count(" red ") == 3 and output.count("│ likely ") == 3 and "pictures/red" in output
    )
    assert "same class: likely from affinity" in output and "approximate" not in output


def test_a_point_without_a_class_has_no_label(tmp_path: Path, capsys) -> None:
    """The number of an unknown class is -1, which is no place among the names of classes."""
    model, pictures = make_model(tmp_path / "model"), sorted(make_pictures(tmp_path / "pictures").rglob("*.png"))
    table = tmp_path / "some.csv"
    named = {path: path.parent.name if row % 2 else "" for row, path in enumerate(pictures)}
    table.write_text("path,label\n" + "".join(f"{path},{label}\n" for path, label in named.items()))
    run(capsys, "index", model, table, "--device", "cpu")
    points = LocalIndex.open(model / "index").entries(range(len(pictures)))
    assert [point.label for point in points] == [label or None for label in named.values()]


def test_without_labels_there_is_no_column_for_them(tmp_path: Path, capsys) -> None:
    model, pictures = make_model(tmp_path / "model"), make_pictures(tmp_path / "pictures")
    table = tmp_path / "bare.csv"
    table.write_text("path\n" + "".join(f"{path}\n" for path in sorted(pictures.rglob("*.png"))))
    run(capsys, "index", model, table, "--device", "cpu")
    head = run(capsys, "search", model, "--id", 0, "-k", 3).splitlines()[2]
    assert head.replace("┃", " ").split() == ["affinity", "id", "path"]


def test_numbers_are_shown_beside_the_neighbors(tmp_path: Path, capsys) -> None:
    model, pictures = make_model(tmp_path / "model"), make_pictures(tmp_path / "pictures")
    table = tmp_path / "numbers.csv"
    table.write_text("path,target\n" + "".join(f"{path},{row}.5\n" for row, path in enumerate(sorted(pictures.rglob("*.png")))))
    run(capsys, "index", model, table, "--device", "cpu")
    lines = run(capsys, "search", model, "--id", 0, "-k", 3).splitlines()
    assert lines[2].replace("┃", " ").split() == ["affinity", "target", "id", "path"]
    for line in lines[4:7]:
        _, _, target, point, *_ = line.replace("│", " ").split()
        assert float(target) == int(point) + 0.5


def test_a_folder_of_queries_and_json(place: Path, capsys) -> None:
    found = json.loads(run(capsys, "search", place / "model", place / "queries", "-k", 2, "--json"))
    assert [Path(one["query"]).name for one in found] == ["0-red.png", "1-green.png", "2-blue.png"]
    assert [[hit["label"] for hit in one["neighbors"]] for one in found] == [["red"] * 2, ["green"] * 2, ["blue"] * 2]
    assert set(found[0]["neighbors"][0]) == {"id", "affinity", "label", "source", "metadata", "same_kind"} and found[0]["exact"] is True


def test_a_query_that_cannot_be_read_is_named_and_the_others_are_answered(place: Path, tmp_path: Path, capsys) -> None:
    queries = shutil.copytree(place / "queries", tmp_path / "queries")
    for name in ("0-broken.png", "3-broken.png"):
        (queries / name).write_bytes(b"\x89PNG")
    (queries / "IMG_1.heic").write_bytes(b"whatever")
    assert cli.main(["search", str(place / "model"), str(queries), "nowhere.jpg", "-k", "2", "--json"]) == 0
    out, err = capsys.readouterr()
    assert [Path(one["query"]).name for one in json.loads(out)] == ["0-red.png", "1-green.png", "2-blue.png"]
    skipped = [line for line in err.splitlines() if line.startswith("skipped: ")]
    assert [Path(line.split()[1]).name for line in skipped] == ["0-broken.png", "3-broken.png", "nowhere.jpg"]
    assert "left out 1 files in a format that cannot be read (IMG_1.heic); convert them to JPEG or PNG" in err
    output = refused(capsys, "search", place / "model", queries / "0-broken.png", "nowhere.jpg").splitlines()
    assert "0-broken.png cannot be decoded" in output[0] and output[1] == "skipped: nowhere.jpg does not exist" and len(output) == 3


def test_by_id_and_by_vector(place: Path, tmp_path: Path, capsys) -> None:
    by_id = json.loads(run(capsys, "search", place / "model", "--id", 3, "--id", 4, "-k", 2, "--json"))
    assert [one["query"] for one in by_id] == ["id 3", "id 4"] and 3 not in [hit["id"] for hit in by_id[0]["neighbors"]]
    vectors = np.array(LocalIndex.open(place / "model/index").snapshot.vectors[3:5])
    np.save(tmp_path / "q.npy", vectors)
    from_file = json.loads(run(capsys, "search", place / "model", "--vector", tmp_path / "q.npy", "-k", 3, "--json"))
    assert [one["neighbors"][0]["id"] for one in from_file] == [3, 4]
    typed = ",".join(str(float(number)) for number in vectors[0])
    found = json.loads(run(capsys, "search", place / "model", f"--vector={typed}", "-k", 3, "--json"))
    assert [hit["id"] for hit in found[0]["neighbors"]][1:] == [hit["id"] for hit in by_id[0]["neighbors"]]


def test_embeddings_of_a_file_are_queries_named_by_their_sources(place: Path, tmp_path: Path, capsys) -> None:
    out = tmp_path / "e.npz"
    run(capsys, "embed", place / "model", place / "queries", "--out", out, "--device", "cpu")
    asked = json.loads(run(capsys, "search", place / "model", "--vector", out, "-k", 3, "--json"))
    assert asked == json.loads(run(capsys, "search", place / "model", place / "queries", "-k", 3, "--json")) and len(asked) == 3


def test_a_model_of_vectors_searches_new_vectors(tmp_path: Path, capsys) -> None:
    x, y = load_digits(return_X_y=True)
    np.savez(tmp_path / "x.npz", x=x[:200].astype(np.float32), y=y[:200])
    np.save(tmp_path / "new.npy", x[[3, 7]].astype(np.float32))
    run(capsys, "train", tmp_path / "x.npz", "--out", tmp_path / "m", "--epochs", 1, "--device", "cpu")
    run(capsys, "index", tmp_path / "m", tmp_path / "x.npz", "--device", "cpu")
    found = json.loads(run(capsys, "search", tmp_path / "m", tmp_path / "new.npy", "-k", 3, "--json", "--device", "cpu"))
    assert [(one["query"], one["neighbors"][0]["id"]) for one in found] == [
        (f"{tmp_path}/new.npy row {n}", at) for n, at in ((0, 3), (1, 7))
    ]


def test_filters(place: Path, capsys) -> None:
    found = json.loads(
        run(capsys, "search", place / "model", "--id", 3, "--label", "red", "--label", "green", "--where", "data=pictures", "--json")
    )
    assert {hit["label"] for hit in found[0]["neighbors"]} <= {"red", "green"} and len(found[0]["neighbors"]) == 10
    told = run(capsys, "search", place / "model", "--id", 3, "--where", "data=nothing")
    assert "the 0 nearest" in told and "10 were requested; there are no more" in told


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["search", "{model}"], "nothing to search for: pass image files, folders, arrays or texts, or --id or --vector"),
        (["search", "{model}", "nowhere.jpg"], "none of the queries could be read; see the messages above"),
        (["search", "{model}", "{place}/empty"], "empty holds no images"),
        (["search", "{model}", "--id", "999"], "--id: no point has the id 999; the index holds 60 points"),
        (["search", "{model}", "--vector", "1,2,x"], "--vector '1,2,x' must be numbers such as"),
        (["search", "{model}", "--vector", "1,2"], f"--vector has 2 numbers; this index holds embeddings of {D} numbers: pass as many"),
        (["search", "{model}", "--vector", "{place}/labels.npz"], "labels.npz holds y, and no embeddings; pass a file that"),
        (["search", "{model}", "{place}/vectors.npy"], "has points of shape (5,), and this model reads (3, 16, 16)"),
        (["search", "{model}", "{place}/embeddings.npy"], "this model reads (3, 16, 16); pass embeddings with --vector"),
        (["search", "{model}", "--id", "3", "--where", "red"], "--where 'red' must read key=value, such as split=test"),
        (["search", "{place}", "--id", "3"], "is no model folder: it has no model.json"),
        (["index", "{model}", "--delete", "3-x"], "'3-x' is not an id; pass whole numbers and ranges such as 3,17,100-199"),
        (["index", "{model}", "--delete", "1,999"], "--delete: no point has the id 999; the index holds 60 points; nothing was removed"),
        (
            ["index", "{model}", "{place}/pictures", "--add", "{place}/pictures"],
            "DATA builds an index and --add adds to one; pass one of them",
        ),
        (["index", "{model}", "--replace"], "--replace needs DATA to build the index from"),
        (["index", "{place}/nothing"], "holds no index; create one with `nearkin index DIR DATA`"),
        (["index", "{place}/nothing", "{place}/pictures"], "nothing is no model folder: it has no model.json"),
        (["embed", "{place}/nothing", "{place}/pictures", "--out", "{place}/shards"], "nothing is no model folder: it has no model.json"),
        (["index", "{model}", "--add", "{place}/vectors.npy"], "has points of shape (5,), and this model reads (3, 16, 16)"),
    ],
)
def test_mistakes_are_reported_in_one_line(place: Path, arguments: list[str], message: str, capsys) -> None:
    (place / "empty").mkdir(exist_ok=True)
    np.save(place / "vectors.npy", np.ones((4, 5), np.float32))
    np.save(place / "embeddings.npy", np.ones((4, D), np.float32))
    np.savez(place / "labels.npz", y=np.ones(4))
    output = refused(capsys, *(one.format(model=place / "model", place=place) for one in arguments))
    assert message in output.splitlines()[-1]
    assert LocalIndex.open(place / "model/index").count == 60


def test_ids_as_people_write_them() -> None:
    assert parsed_ids("3, 17,100-102") == [3, 17, 100, 101, 102]


def test_the_service_is_opened_in_a_browser_with_its_token(place: Path, capsys, monkeypatch) -> None:
    from nearkin.serve import listen
    from nearkin.serve.workers import Workers

    seen: dict[str, object] = {}

    def served(collection, *, host, port, token, ready, compare, method) -> None:
        seen.update(host=host, port=port, token=token, compare=compare, method=method)
        ready("http://127.0.0.1:5")

    monkeypatch.setattr(listen, "serve", served)
    monkeypatch.setattr(Workers, "any_running", lambda: False)  # those of other tests, for which the verb would end this process
    monkeypatch.setattr("webbrowser.open", lambda address: seen.update(opened=address))
    monkeypatch.setenv("NEARKIN_TOKEN", "a-secret-of-the-environment")
    output = run(capsys, "serve", place / "model", "--port", 5)
    assert seen["opened"] == "http://127.0.0.1:5/explore?token=a-secret-of-the-environment" and "60 points at http://127.0.0.1:5" in output
    seen.clear()
    monkeypatch.delenv("NEARKIN_TOKEN")
    assert "every address" in run(capsys, "serve", place / "model", "--host", "::", "--no-browser", "--token", "a-secret-of-an-option")
    assert "every address" not in run(capsys, "serve", place / "model", "--no-browser")
    assert seen == {"host": "127.0.0.1", "port": 8000, "token": None, "compare": None, "method": "tsne"}


def test_brackets_are_no_markup_and_training_data_are_recognized_by_any_path(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Names may look like markup of the terminal's; a slash behind a folder does not make it another one."""
    photos, model = tmp_path / "ph [bold] otos", tmp_path / "mo [red] del"
    for name, number in (("[zero] a", 0), ("[one] b", 1)):
        (photos / name).mkdir(parents=True)
        for row, image in enumerate(load_digits().images[load_digits().target == number][:30]):
            Image.fromarray((image * 15).astype(np.uint8)).save(photos / name / f"{row}.png")
    first = photos / "[one] b" / "0.png"
    (tmp_path / "fix.csv").write_text(f"path,label\n{first},[zero] a\n")
    words = ["train", str(photos), "--out", str(model), "--labels", str(tmp_path / "fix.csv")]
    words += ["--network", "mlp", "--epochs", "2", "--device", "cpu"]
    assert cli.main(words) == 0 and f"the model is in {model}" in capsys.readouterr().out
    assert cli.main(["index", str(model), f"{photos}/"]) == 0 and f"in {model}/index" in capsys.readouterr().out
    assert cli.main(["search", str(model), str(first), "-k", "1"]) == 0
    output = capsys.readouterr().out
    assert "[zero] a" in output and str(first) in output  # the corrected label
    assert cli.main(["embed", str(model), str(photos), "--out", str(tmp_path / "e.npz")]) == 0
    assert np.load(tmp_path / "e.npz")["classes"].tolist() == ["[one] b", "[zero] a"]


def test_an_index_that_was_stopped_before_its_first_points_is_made_anew(tmp_path: Path) -> None:
    model = tmp_path / "m"
    assert cli.main(["train", "digits", "--out", str(model), "--network", "mlp", "--epochs", "1", "--device", "cpu"]) == 0
    LocalIndex.create(model / "index", model=model_version(model), metric="squared_euclidean", dimension=64)
    assert cli.main(["index", str(model), "digits"]) == 0 and LocalIndex.open(model / "index").count == 1797
    assert cli.main(["index", str(model), "digits"]) == 1  # has one already


@pytest.mark.soak
def test_the_report_is_written_even_if_the_output_pipe_is_closed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def gone(*_: object) -> None:
        raise BrokenPipeError(32, "Broken pipe")

    model = tmp_path / "m"
    assert cli.main(["train", "digits", "--out", str(model), "--network", "mlp", "--epochs", "1", "--device", "cpu"]) == 0
    monkeypatch.setattr("nearkin.cli.evaluate._print", gone)
    assert cli.main(["evaluate", str(model), "--no-pictures"]) == 1 and (model / "evaluation.json").exists()


def test_an_unknown_label_is_reported(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["search", str(place / "model"), "--id", "3", "--label", "rde", "--device", "cpu"]) == 0
    assert "no point has the label 'rde'; the labels are blue, green, red" in capsys.readouterr().err
