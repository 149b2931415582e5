"""Tables from the command line: train, predict, embed, index, search, evaluate and serve rows, and what is refused by name."""

import gzip
import json
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from starlette.testclient import TestClient

import nearkin
from nearkin import cli
from nearkin.cli import _warnings_in_words
from nearkin.cli.search import rounded, text_of
from nearkin.data import columns
from nearkin.data.columns import read_columns
from nearkin.data.sources.rows import open_rows
from nearkin.data.sources.table import Columns
from nearkin.data.table_format import TableFormat
from nearkin.index.collection import open_index
from nearkin.serve.app import make_app

HEADER = "id,age,job,member,since,planet,income"
TRAIN = ("--label", "income", "--epochs", "12", "--dimension", "8", "--device", "cpu", "--set", "network.options.members=1")


def people(n: int = 160, seed: int = 0) -> list[str]:
    """Lines of a table whose income depends on age and job."""
    rng = np.random.default_rng(seed)
    lines = []
    for at in range(n):
        age, job, member = int(rng.integers(18, 80)), rng.choice(["cook", "smith", "pilot"]), rng.choice(["yes", "no"])
        income = "high" if (age > 45) != (job == "cook") else "low"
        cells = [at + 1, "" if at % 20 == 19 else age, job, member, f"2024-{at % 12 + 1:02d}-{at % 27 + 1:02d}", "earth", income]
        lines.append(",".join(map(str, cells)))
    return lines


def write(path: Path, lines: list[str], header: str = HEADER) -> Path:
    path.write_text("\n".join([header, *lines]) + "\n", encoding="utf-8")
    return path


def run(capsys: pytest.CaptureFixture[str], *arguments: object) -> str:
    code = cli.main([str(one) for one in arguments])
    out, err = capsys.readouterr()
    assert code == 0, err
    return str(out + err)


def refused(capsys: pytest.CaptureFixture[str], *arguments: object) -> str:
    assert cli.main([str(one) for one in arguments]) == 1
    return str(capsys.readouterr().err)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("tables")
    table = write(place / "people.csv", people())
    assert cli.main(["train", str(table), "--out", str(place / "model"), *TRAIN]) == 0
    assert cli.main(["index", str(place / "model"), str(table), "--device", "cpu"]) == 0
    features = [line.rpartition(",")[0] for line in people(6, seed=1)]
    write(place / "new.csv", features, HEADER.rpartition(",")[0])
    return place


def test_training_prints_the_schema_and_what_is_left_out(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lines = people(60)
    lines[3] = lines[3].rpartition(",")[0] + ","
    said = run(capsys, "train", write(tmp_path / "t.csv", lines), "--out", tmp_path / "m", *TRAIN)
    assert "income is missing in 1 of 60 rows, which are left out" in said
    assert "age     number, some missing" in said and "job     category of 3: cook, pilot, smith" in said
    assert "member  boolean" in said and "since   date" in said
    assert "id      left out: a whole number of its own" in said and "planet  left out: the same value in every row" in said
    assert "accuracy" in said and "log_loss" in said and "calibration_error" in said


def test_the_model_folder_keeps_the_schema_and_no_pickle(place: Path) -> None:
    about = json.loads((place / "model" / "model.json").read_text())
    assert [column["name"] for column in about["table"]["schema"]["columns"]] == ["age", "job", "member", "since"]
    assert about["table"]["label"] == "income" and about["network"]["name"] == "tabular"
    assert not list((place / "model").rglob("*.pkl")) and (place / "model" / "weights.safetensors").exists()


def test_rows_are_predicted_by_soft_votes_that_sum_to_one(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = json.loads(run(capsys, "predict", place / "model", place / "new.csv", "--json").partition("\n]")[0] + "\n]")
    assert len(found) == 6 and {one["label"] for one in found} <= {"high", "low"} and all(0.5 <= one["probability"] <= 1 for one in found)
    model = nearkin.load(place / "model", device="cpu")
    assert torch.allclose(model.shares(place / "new.csv").sum(1), torch.ones(6))
    test = open_rows(place / "people.csv", Columns(), None, TableFormat.from_dict(model.about["table"]))
    assert isinstance(test.inputs, torch.Tensor) and test.labels is not None
    assert float((model.predict(test.inputs, numbers=True) == test.labels).float().mean()) > 0.75


def test_rows_that_speak_for_a_prediction_are_shown(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = json.loads(run(capsys, "explain", place / "model", place / "new.csv", "-k", "1000", "--json").partition("\n]")[0] + "\n]")
    model, lines = nearkin.load(place / "model", device="cpu"), people()
    for one, share in zip(found, model.shares(place / "new.csv").max(1).values.tolist(), strict=True):
        voters = one["voters"]
        assert sum(row["share"] for row in voters) == pytest.approx(1, abs=1e-4)  # all rows vote
        assert sum(row["share"] for row in voters if row["votes for"] == one["label"]) == pytest.approx(share, abs=1e-4)
        assert [row["share"] for row in voters] == sorted((row["share"] for row in voters), reverse=True)
        for row in voters[:5]:
            age, job = row["row"].get("age"), row["row"]["job"]
            assert age is None or row["votes for"] == ("high" if (age > 45) != (job == "cook") else "low")  # as the table was made
            at = int(row["source"].rpartition(" ")[2])
            assert lines[at - 2].split(",")[2] == job
    said = run(capsys, "explain", place / "model", place / "new.csv", "-k", "2")
    assert said.count("probability") == 6 and "share" in said and "job" in said


def test_rows_are_predicted_and_searched_although_their_label_is_empty_or_not(place: Path, tmp_path: Path, capsys: Any) -> None:
    labels = ["", "high", "", "a class of its own", "", ""]
    rows = [f"{line.rpartition(',')[0]},{label}" for line, label in zip(people(6, seed=1), labels, strict=True)]
    for name, some in (("some", rows), ("none", [line.rpartition(",")[0] + "," for line in rows])):
        told = run(capsys, "predict", place / "model", write(tmp_path / f"{name}.csv", some), "--json")
        assert told.count('"label"') == 6 and "left out" not in told
    assert run(capsys, "search", place / "model", tmp_path / "none.csv", "-k", 1).count("the 1 nearest") == 6


def test_rows_are_embedded_and_indexed_although_their_label_is_empty(place: Path, tmp_path: Path, capsys: Any) -> None:
    lines = people(10)
    table = write(tmp_path / "t.csv", [line.rpartition(",")[0] + "," if at % 2 else line for at, line in enumerate(lines)])
    assert "10 embeddings" in run(capsys, "embed", place / "model", table, "--out", tmp_path / "e.npz")
    found = np.load(tmp_path / "e.npz")
    names = [str(found["classes"][code]) if code >= 0 else "" for code in found["labels"].tolist()]
    assert names == [line.rpartition(",")[2] if at % 2 == 0 else "" for at, line in enumerate(lines)]
    none = write(tmp_path / "none.csv", [line.rpartition(",")[0] + "," for line in lines])
    assert "10 points" in run(capsys, "index", place / "model", none, "--replace", "--device", "cpu")
    run(capsys, "index", place / "model", place / "people.csv", "--replace", "--device", "cpu")


def test_rows_without_the_number_to_predict_are_embedded_and_indexed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lines = [f"{at % 7},{at / 3},{at / 7 if at % 5 else ''}" for at in range(60)]
    table = write(tmp_path / "t.csv", lines, "a,b,target")
    run(capsys, "train", table, "--out", tmp_path / "m", *TRAIN[2:])
    run(capsys, "embed", tmp_path / "m", table, "--out", tmp_path / "e.npz")
    found = np.load(tmp_path / "e.npz")
    assert len(found["embeddings"]) == 60 and np.isnan(found["targets"][:, 0]).nonzero()[0].tolist() == list(range(0, 60, 5))
    assert "60 points" in run(capsys, "index", tmp_path / "m", table, "--device", "cpu")
    first, second = (entry.metadata for entry in open_index(tmp_path / "m").index.entries([0, 1]))
    assert "target" not in first and second["target"] == pytest.approx(1 / 7)


def test_a_column_that_looks_like_an_id_is_kept(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    table = write(tmp_path / "t.csv", people(60))
    said = run(capsys, "train", table, "--out", tmp_path / "m", "--keep", "id", *TRAIN)
    assert "id      number" in said
    assert "has no column 'ids'" in refused(capsys, "train", table, "--label", "income", "--keep", "ids", "--out", tmp_path / "n")


@pytest.mark.parametrize("form", ["pandas", "polars", "mapping", "parquet"])
def test_a_model_reads_frames_mappings_and_parquet(place: Path, tmp_path: Path, form: str) -> None:
    pandas = pytest.importorskip("pandas")
    frame = pandas.read_csv(place / "new.csv")
    if form == "polars":
        given: Any = pytest.importorskip("polars").read_csv(place / "new.csv")
    elif form == "parquet":
        pytest.importorskip("pyarrow")
        given = tmp_path / "new.parquet"
        frame.to_parquet(given)
    else:
        given = frame if form == "pandas" else {name: frame[name].tolist() for name in frame}
    model = nearkin.load(place / "model", device="cpu")
    np.testing.assert_allclose(model.encode(given), model.encode(place / "new.csv"), atol=1e-5)


def test_the_saved_network_embeds_as_the_references_were(place: Path) -> None:
    model = nearkin.load(place / "model", device="cpu")
    data = open_rows(place / "people.csv", Columns(), None, TableFormat.from_dict(model.about["table"]))
    assert isinstance(data.inputs, torch.Tensor) and model.references is not None
    everything = torch.as_tensor(model.encode(data.inputs))
    away = torch.cdist(model.references.embeddings, everything, compute_mode="donot_use_mm_for_euclid_dist").min(1).values
    assert float(away.max()) < 1e-3


def test_search_shows_columns_and_finds_the_row_itself(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    said = run(capsys, "search", place / "model", place / "new.csv", "-k", 1)
    assert "age" in said and "job" in said and "people.csv row" in said
    found = json.loads(run(capsys, "search", place / "model", "--id", 5, "-k", 2, "--json"))
    assert set(found[0]["neighbors"][0]["metadata"]) >= {"job", "member", "since"}
    assert "job" in run(capsys, "search", place / "model", "--id", 5, "--where", "job=cook", "-k", 1)


def test_rows_are_evaluated_and_embedded(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("matplotlib")
    said = run(capsys, "evaluate", place / "model", "--compare", "--device", "cpu", "--out", place / "evaluation")
    assert "1-nn" in said and "columns standardized, categories one-hot" in said and "Uncentered inputs" not in said
    assert (place / "evaluation" / "report.html").exists()
    assert "this model reads rows" in refused(capsys, "export", place / "model", "--onnx")
    assert "160 embeddings of 8 dimensions" in run(capsys, "embed", place / "model", place / "people.csv", "--out", place / "e.npz")


def test_the_service_searches_by_row_and_names_what_is_wrong(place: Path) -> None:
    row = {"id": 7, "age": 30, "job": "cook", "member": "no", "since": "2024-03-04", "planet": "earth"}
    with TestClient(make_app(open_index(place / "model", device="cpu")), base_url="http://127.0.0.1:8000") as client:
        found = client.post("/search?k=3", json={"row": row}).json()
        assert len(found["neighbors"]) == 3 and found["neighbors"][0]["metadata"]["job"] == "cook"
        wrong = client.post("/search", json={"row": {**row, "age": "young"}})
        assert wrong.status_code == 422 and "column 'age' was a number in training" in wrong.json()["error"]["message"]
        assert "exactly one of" in client.post("/search", json={"row": row, "id": 1}).json()["error"]["message"]
        assert "differs" in client.get("/").text


def without_job(header: str, line: str) -> tuple[str, str]:
    cells = line.split(",")
    return header.replace("job,", ""), ",".join(cells[:2] + cells[3:])


def retyped(header: str, line: str) -> tuple[str, str]:
    cells = line.split(",")
    return header, ",".join([cells[0], "old", *cells[2:]])


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (without_job, "columns are missing: job"),
        (lambda header, line: (header + ",shoe", line + ",44"), "columns are not in the schema: shoe"),
        (lambda header, line: ("age,id" + header.removeprefix("id,age"), line), "columns are in another order: id"),
        (retyped, "column 'age' was a number in training, and now holds 'old'"),
    ],
)
def test_a_later_table_is_checked_against_the_schema(
    place: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], change: Any, said: str
) -> None:
    header, *lines = (place / "new.csv").read_text().splitlines()
    changed = [change(header, line) for line in lines]
    assert said in refused(capsys, "predict", place / "model", write(tmp_path / "q.csv", [line for _, line in changed], changed[0][0]))


def test_numbers_to_predict_are_recognized(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(150, 2))
    lines = [f"{a:.4f},{b:.4f},{100 + 20 * a - 5 * b:.3f}" for a, b in x]
    table = write(tmp_path / "t.csv", lines, "a,b,price")
    said = run(capsys, "train", table, "--out", tmp_path / "m", "--label", "price", *TRAIN[2:])
    assert "price holds fractions, or more than 20 different numbers: it is learned as a number" in said and "r2" in said
    found = run(capsys, "predict", tmp_path / "m", write(tmp_path / "q.csv", ["0,0", "1,1"], "a,b"), "--json")
    assert '"price": 1' in found
    other = run(capsys, "train", table, "--out", tmp_path / "m2", "--set", "data.target_columns=price", *TRAIN[2:])
    assert "root_mean_square_error" in other


@pytest.mark.parametrize(
    ("header", "lines", "said"),
    [
        ("a,b", ["1,2", "3,4"], "has no column 'label' or 'target' to learn from; name one with --label"),
        ("a,label", ["1,", "2,"], "label is missing in every row"),
        ("a,label", [], "has no rows below its header"),
        ("a,a,label", ["1,2,x", "3,4,y"], "column 'a' is there twice"),
        ("a,label", ["1,x", "1,y"], "no column is left to learn from: a (the same value in every row)"),
        ("a,label", [",x", ",y"], "a (every cell is missing)"),
        ("a,label", ["1.5,x", "2,x"], "has one class only (x)"),
        ("a,label", ["1,x", "2,y,z"], "line 3 has 3 cells, and the header (a, label) has 2"),
        ("a,label", [f'"{at},5",{"xy"[at % 2]}' for at in range(30)], "holds numbers with decimal commas"),
        ("t,label", [f'"this is a long text about {at}",{"xy"[at % 2]}' for at in range(30)], "column 't' holds free text"),
        ("a,target", ["1,inf", "2,3"], "holds infinity"),
        ("a,label", [f'{at},"{at},{at}"' for at in range(30)], "column 'label' holds numbers with decimal commas ('0,0'); write a point"),
        ("a,target", [f'{at},"0,{at}"' for at in range(30)], "column 'target' holds numbers with decimal commas"),
        ("a,label", [f"{at}.5,name{at}" for at in range(30)], "every class of 'label' has one row alone"),
        ("a,label", [f"${at}.50,{'xy'[at % 2]}" for at in range(30)], "column 'a' holds numbers with a sign of money or percent ('$0.50')"),
        ("a,label", [f"{at % 7} %,{'xy'[at % 2]}" for at in range(30)], "with a sign of money or percent ('0 %')"),
        ("a,label", [f"03/{at % 28 + 1}/2024,{'xy'[at % 2]}" for at in range(30)], "day and month may be mistaken ('03/1/2024')"),
        ("a,label", [f"{at % 7}e40,{'xy'[at % 2]}" for at in range(30)], "column 'a' holds numbers beyond 3.4e38 (1e+40); divide them"),
        ("a,target", [f"{at},{at + 0.5 if at else '-'}" for at in range(30)], "column 'target' holds numbers and 1 other cells ('-')"),
        ("a,label", [f"{at},{at + 0.5 if at else '-'}" for at in range(30)], "column 'label' holds numbers and 1 other cells ('-')"),
        ("a,label", [f"{at},${at // 2}.50" for at in range(60)], "column 'label' holds numbers with a sign of money or percent"),
        ("a,label", [f"{at},1:{at // 2:02}" for at in range(60)], "column 'label' holds times ('1:00'); write them as numbers"),
        ("a,target", [f"{at},{at % 3 or '-'}" for at in range(30)], "column 'target' holds cells that are no numbers ('-')"),
        ("a,label", [f"2024-03-{at + 1:02},x" for at in range(30)] + ["soon,y"], "holds dates and 1 other cells ('soon')"),
    ],
)
def test_bad_tables_are_refused_in_words(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], header: str, lines: list[str], said: str
) -> None:
    assert said in refused(capsys, "train", write(tmp_path / "t.csv", lines, header), "--out", tmp_path / "m", "--device", "cpu")


def test_columns_are_ignored_and_rows_without_a_class_are_picked_and_learned(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A column of free text is left out by name, there and later; of rows without a class some are chosen, and then learned from."""
    monkeypatch.chdir(tmp_path)
    parts = [line.rpartition(",") for line in people(80)]
    lines = [f"{a},some words about the person of row {at},{b if at % 2 else ''}" for at, (a, _, b) in enumerate(parts)]
    table = write(tmp_path / "t.csv", lines, HEADER.replace(",income", ",notes,income"))
    assert "column 'notes' holds free text; learn from it alone by --text 'notes', or leave it out by --ignore 'notes'" in refused(
        capsys, "pick", table, "--label", "income"
    )
    ignoring = ("--label", "income", "--ignore", "notes")
    assert "--ignore notes --labels" in run(capsys, "pick", table, *ignoring, "--budget", "4", "--out", "picks")
    picked = (tmp_path / "picks/picks.csv").read_text().splitlines()
    assert len(picked) == 5 and all(int(line.partition(" row ")[2].split(",")[0]) % 2 == 0 for line in picked[1:]), "rows without a class"
    (tmp_path / "picks/picks.csv").write_text("\n".join([picked[0], *(line.replace(",,", ",high,", 1) for line in picked[1:])]) + "\n")
    run(capsys, "train", table, *ignoring, *TRAIN[2:], "--labels", "picks/picks.csv", "--out", "m")
    split = json.loads((tmp_path / "m/split.json").read_text())["rows"]
    assert len(nearkin.load("m").references.labels) == len([row for row in split["train"] if row % 2]) + sum(
        int(line.partition(" row ")[2].split(",")[0]) - 2 in split["train"] for line in picked[1:]
    )
    assert "votes for" in run(capsys, "explain", "m", table)
    said = run(capsys, "predict", "m", table, "--out", "p.csv")
    assert "80 predictions are in p.csv" in said and len((tmp_path / "p.csv").read_text().splitlines()) == 81
    assert "row 11 " in said and "row 12 " not in said
    without = write(tmp_path / "q.csv", [line.rpartition(",")[0].rpartition(",")[0] for line in lines], HEADER.rpartition(",")[0])
    assert "q.csv row 2" in run(capsys, "predict", "m", without)
    assert "has no column 'nots'" in refused(capsys, "train", table, "--label", "income", "--ignore", "nots", "--out", "n")
    assert "both ignored and learned from" in refused(capsys, "train", table, "--label", "income", "--ignore", "income", "--out", "n")
    assert "ignore_columns (a) are for tables whose rows" in refused(capsys, "train", "digits", "--ignore", "a", "--out", "n")


def test_a_table_refuses_what_is_for_other_data(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    table = write(tmp_path / "t.csv", people(40))
    said = refused(capsys, "train", table, "--label", "income", "--network", "mlp", "--out", tmp_path / "m")
    assert "network.name (mlp) is not for rows of a table" in said
    assert "has no column 'wage'" in refused(capsys, "train", table, "--label", "wage", "--out", tmp_path / "m2")


def test_ten_rows_many_categories_and_a_lonely_class_are_fitted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lines = [f"{at},c{at % 7},{'z' if at == 0 else 'xy'[at % 2]}" for at in range(10)]
    assert "accuracy" in run(capsys, "train", write(tmp_path / "t.csv", lines, "a,c,label"), "--out", tmp_path / "m", *TRAIN[2:])


GERMAN = "nr;größe;preis;stadt;klasse"


def sales(n: int = 80) -> tuple[bytes, bytes]:
    """One table as a German Excel writes it, and with commas and points in UTF-8."""
    rng = np.random.default_rng(0)
    german, plain = [GERMAN], [GERMAN.replace(";", ",")]
    for at in range(n):
        size, price, town = f"{rng.normal():.2f}", f"{1000 + 500 * rng.random():.2f}", ("Köln", "Bonn; Süd", "Ulm, West")[at % 3]
        kind = "klein" if size.startswith("-") else "groß"
        german.append(f'{at + 1};{size.replace(".", ",")};1.{price[1:].replace(".", ",")};"{town}";{kind}')
        plain.append(f'{at + 1},{size},{price},"{town}",{kind}')
    return "\r\n".join(german).encode("cp1252"), "\n".join(plain).encode()


def test_a_model_of_a_german_excel_file_reads_a_plain_one_and_the_other_way_round(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    german, plain, tabs, packed = (tmp_path / name for name in ("de.csv", "us.csv", "de.txt", "us.csv.gz"))
    for path, content in zip((german, plain), sales(), strict=True):
        path.write_bytes(content)
    text = german.read_bytes().decode("cp1252").replace(";", "\t").replace("Bonn\t", "Bonn;")
    tabs.write_bytes(text.encode("utf-16"))
    packed.write_bytes(gzip.compress(plain.read_bytes()))
    learning = ("--label", "klasse", *TRAIN[2:])
    said = run(capsys, "train", german, *learning, "--out", tmp_path / "m")
    assert "de.csv is read with semicolons between its columns" in said and "Windows-1252, since it is not UTF-8" in said
    assert "größe  number" in said and "preis  number" in said and "stadt  category of 3: Bonn; Süd, Köln, Ulm, West" in said
    assert run(capsys, "train", plain, *learning, "--out", tmp_path / "m2").count("is read with") == 0
    about = [json.loads((tmp_path / name / "model.json").read_text())["table"] for name in ("m", "m2")]
    assert about[0] == about[1], "the same schema"
    for model in ("m", "m2"):
        found = []
        for query in (german, plain, tabs, packed):
            run(capsys, "predict", tmp_path / model, query, "--out", tmp_path / "p.csv")
            found.append([line.split(",", 1)[1] for line in (tmp_path / "p.csv").read_text().splitlines()])
        assert len(found[0]) == 81 and found.count(found[0]) == 4
    run(capsys, "index", tmp_path / "m", plain, "--device", "cpu")
    assert '"distance"' in (answer := run(capsys, "search", tmp_path / "m", tabs, "-k", "1", "--json")) or '"affinity"' in answer
    assert "votes for" in run(capsys, "explain", tmp_path / "m", tabs)


def test_a_txt_file_is_a_table_to_a_model_of_rows_and_a_text_to_a_model_of_texts(tmp_path: Path) -> None:
    (tmp_path / "t.txt").write_text("a\tlabel\n1\tx\n")
    assert text_of(str(tmp_path / "t.txt"))[1] == "a\tlabel\n1\tx\n"
    (tmp_path / "t.data").write_text("a\tlabel\n1\tx\n")
    with pytest.raises(ValueError, match="is a table, and queries are sentences"):
        text_of(str(tmp_path / "t.data"))


def test_tune_keeps_the_settings_that_validate_best(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    table, out = write(tmp_path / "t.csv", people(80)), tmp_path / "m"
    settings = ("--set", "epochs=2", "--set", "network.dimension=4", "--set", "network.options.members=1")
    said = run(capsys, "tune", table, "--label", "income", "--trials", 3, "--out", out, "--device", "cpu", *settings)
    trials = json.loads((out / "tune.json").read_text())
    assert len(trials) == 3 and trials[0]["settings"] == {} and "trial 3 of 3: validation loss" in said and "accuracy" in said
    best = min(trials, key=lambda one: one["validation loss"])["settings"]
    chosen = json.loads((out / "run.json").read_text())
    for name, value in best.items():
        room, _, leaf = name.rpartition(".")
        found = chosen["network"]["options"][leaf] if room == "network.options" else chosen[room][leaf]
        assert found == value, name
    np.savez(tmp_path / "v.npz", x=np.random.default_rng(0).normal(size=(30, 2)), y=np.arange(30) % 2)
    assert "nearkin tune is for tables" in refused(capsys, "tune", tmp_path / "v.npz", "--out", tmp_path / "m2")


def test_progress_is_told_while_a_member_is_trained(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("nearkin.data.progress.PAUSE", 0.0)
    told = run(capsys, "train", write(tmp_path / "t.csv", people(40)), "--out", tmp_path / "m", *TRAIN[:-1], "network.options.members=2")
    assert "training member 2 of 2: 1 of 12 epochs (8 %)" in told and "member 2 of 2: 12 epochs, validation loss" in told
    assert "training member" not in (tmp_path / "m" / "log.jsonl").read_text()  # which keeps results only


@pytest.mark.parametrize(
    ("value", "shown"),
    [(138600.25, "138600"), (11130.0, "11130"), (0.12345, "0.1235"), (7.0, "7"), (-1500.6, "-1501"), (1.2e-7, "1.2e-07")],
)
def test_numbers_are_shown_with_all_digits_before_the_point(value: float, shown: str) -> None:
    assert rounded(value) == shown


def test_numbers_that_are_names_are_categories(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Also where some cells are no numbers, and for a later table whose cells all are."""
    codes = ("10115", "20095", "80331-1")
    table = write(tmp_path / "t.csv", [f"{codes[at % 3]},{at % 5},{'xy'[at % 3 == 1]}" for at in range(150)], "zip,b,label")
    assert "holds numbers and" not in refused(capsys, "train", table, "--category", "zap", "--out", tmp_path / "n")
    said = run(capsys, "train", table, "--category", "zip", "--out", tmp_path / "m", *TRAIN[2:])
    assert "zip  category of 3: 10115, 20095, 80331-1" in said
    found = run(capsys, "predict", tmp_path / "m", write(tmp_path / "q.csv", ["20095,1", "10115,1"], "zip,b"), "--json")
    assert [row["label"] for row in json.loads(found.partition("\n]")[0] + "\n]")] == ["y", "x"]
    rated = write(tmp_path / "r.csv", [f"{at % 40},{at % 40 / 2:g}" for at in range(200)], "a,rating")
    as_classes = run(capsys, "train", rated, "--label", "rating", "--category", "rating", "--out", tmp_path / "c", *TRAIN[2:])
    assert "40 classes (0, 0.5, 1, ...)" in as_classes and "learned as a number" not in as_classes
    typed = read_columns({"zip": np.array([10115, 20095])})["zip"].as_categories()
    assert typed.said == "category" and typed.plain().tolist() == ["10115", "20095"]


def test_classes_that_begin_with_0_keep_it(tmp_path: Path) -> None:
    table = write(tmp_path / "t.csv", [f"{at % 7},{('007', '7', '12')[at % 3]}" for at in range(30)], "a,label")
    assert open_rows(table, Columns(), print).classes == ("007", "12", "7")


def test_an_ignored_column_may_hold_anything(tmp_path: Path) -> None:
    polars = pytest.importorskip("polars")
    frame = polars.DataFrame({"a": np.arange(30) % 7, "nested": [{"b": at} for at in range(30)], "label": ["x", "y"] * 15})
    with pytest.raises(ValueError, match="the table: column 'nested'.*leave the column out by --ignore 'nested'"):
        open_rows(frame, Columns(), print)
    found = open_rows(frame, Columns(ignored=("nested",)), print)
    assert list(found.columns) == ["a"] and len(open_rows(frame, Columns(), print, found.table)) == 30


MOMENTS = {
    "dates": ("2024-03-01", "2024-03-02 12:30", "", "2024-03-01"),
    "dates of the United States": ("03/31/2024", "04/30/2024", "03/31/2024", "unknown", "04/30/2024", "04/30/2024"),
    "durations": ("0 days 01:30:00", "2 days 00:00:00", "", "2 days 00:00:00"),
    "durations of Python": ("1 day, 1:30:00", "0:01:30.5", "-2 days, 0:00:00", "0:01:30.5"),
    "durations of ISO": ("P1DT2H", "PT90.5S", "P2W", "PT90.5S"),
}


@pytest.mark.parametrize("form", MOMENTS)
def test_a_label_of_dates_or_durations_is_refused_by_name(form: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    cells, what = MOMENTS[form], form.partition(" ")[0]
    table = write(tmp_path / "t.csv", [f'{at % 7},"{cells[at % len(cells)]}"' for at in range(60)], "a,when")
    said = refused(capsys, "train", table, "--label", "when", "--out", tmp_path / "m")
    assert f"the label column 'when' holds {what} ({cells[0]!r}); make them numbers, such as days" in said
    assert "as classes by --category 'when' (category_columns), or name another column with --label" in said
    said = refused(capsys, "train", table, "--set", "data.target_columns=when", "--out", tmp_path / "m")
    assert f"the target column 'when' holds {what} ({cells[0]!r}); make them numbers" in said
    found = open_rows(table, Columns(label="when", categories=("when",)), print)
    assert set(found.classes) == {*cells} - {""}


@pytest.mark.parametrize(
    "classes", [("2024", "2025"), ("2024-Q1", "2024-Q2"), ("PT", "ES"), ("a", "2024-03-01"), ("P1", "P2"), ("12:30", "7:15")]
)
def test_classes_that_resemble_dates_and_durations_are_learned(classes: tuple[str, str], tmp_path: Path) -> None:
    table = write(tmp_path / "t.csv", [f"{at % 7},{classes[at % 2]}" for at in range(60)], "a,label")
    assert set(open_rows(table, Columns(), print).classes) == set(classes)


@pytest.mark.parametrize("form", ["numpy", "pandas", "polars", "parquet", "objects"])
@pytest.mark.parametrize("what", ["dates", "durations"])
def test_a_label_typed_as_dates_or_durations_is_refused_by_name(what: str, form: str, tmp_path: Path) -> None:
    days = np.arange(60) % 9 * np.timedelta64(1, "D")
    when = (days + (np.datetime64("2024-03-01") if what == "dates" else np.timedelta64(0, "D"))).astype(
        f"{'M' if what == 'dates' else 'm'}8[us]"
    )
    given: Any = {"a": np.arange(60) % 7, "when": when.tolist() if form == "objects" else when}
    if form in ("pandas", "polars", "parquet"):
        given = pytest.importorskip("polars" if form == "polars" else "pandas").DataFrame(given)
    if form == "parquet":
        pytest.importorskip("pyarrow")
        given.to_parquet(tmp_path / "t.parquet")
        given = tmp_path / "t.parquet"
    first = "2024-03-01" if what == "dates" else "0:00:00"
    with pytest.raises(ValueError, match=rf"the label column 'when' holds {what} \('{first}'\); make them numbers, such as days"):
        open_rows(given, Columns(label="when"), print)
    found = open_rows(given, Columns(label="when", categories=("when",)), print)
    assert len(found.classes) == 9 and ("2024-03-02 00:00:00" if what == "dates" else "86400") in found.classes


def test_dates_that_are_categories_are_the_same_ones_in_a_later_table() -> None:
    days = np.array(["2024-03-01", "2024-03-02"] * 30, dtype="M8[s]")
    known = open_rows({"day": days, "label": ["x", "y"] * 30}, Columns(categories=("day",)), print)
    assert known.table is not None and known.table.schema.columns[0].categories == ("2024-03-01 00:00:00", "2024-03-02 00:00:00")
    assert known.table.schema.encode({"day": days[1:]}).categories.ravel().tolist()[:2] == [2, 1]


def test_a_warning_of_ours_is_a_line_without_its_place_in_the_source() -> None:
    usual = warnings.formatwarning
    with _warnings_in_words():
        assert warnings.formatwarning("few rows", UserWarning, columns.__file__, 1) == "warning: few rows\n"
        assert warnings.formatwarning("old", UserWarning, np.__file__, 1) == usual("old", UserWarning, np.__file__, 1)
    assert warnings.formatwarning is usual
