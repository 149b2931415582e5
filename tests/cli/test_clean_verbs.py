"""`nearkin clean` and `nearkin pick`: tables with reasons, over files, vectors and model folders, and taken back by --labels."""

import csv
import json
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from nearkin.cli import main
from nearkin.cli import unlearned as module
from nearkin.cli.clean import carried, csv_of
from nearkin.data import open as open_data
from nearkin.data.corrections import corrected
from nearkin.index.collection import open_index


def vectors(folder: Path, n: int = 120) -> Path:
    draw = np.random.default_rng(0)
    x = draw.normal(size=(n, 6)).astype(np.float32) + 6 * np.eye(6, dtype=np.float32)[np.arange(n) % 3]
    x[50] = x[2]
    y = np.array(["ant", "bee", "cat"])[np.arange(n) % 3]
    y[7] = "cat"
    np.savez(folder / "points.npz", x=x, y=y)
    return folder / "points.npz"


def rows_of(path: Path) -> list[dict[str, str]]:
    with path.open(newline="", encoding="utf-8") as lines:
        return list(csv.DictReader(lines))


def test_vectors_are_cleaned_and_accepted_rows_are_learned_from(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source, out = vectors(tmp_path), tmp_path / "out"
    assert main(["clean", str(source), "--out", str(out)]) == 0
    printed, said = capsys.readouterr()
    assert "1 label, 1 duplicate" in printed and "--labels" in printed and said.count("to learn from: classes") == 1
    rows = rows_of(out / "problems.csv")
    assert [(row["kind"], row["label"], row["suggested"]) for row in rows] == [("label", "cat", "bee"), ("duplicate", "cat", "")]
    assert rows[0]["reason"] == "other points say bee, not cat"
    about = json.loads((out / "problems.json").read_text())
    assert about["counts"] == {"label": 1, "duplicate": 1} and about["judged by"] == "the vectors themselves"
    text = (out / "problems.csv").read_text().replace("cat,bee,,label", "cat,bee,x,label").replace("cat,,,duplicate", "cat,,x,duplicate")
    (out / "problems.csv").write_text(text)
    data = corrected(open_data(source), str(out / "problems.csv"))
    assert data.labels is not None and len(data) == 119 and data.classes[data.labels[7]] == "bee" and 50 not in data.ids.tolist()


def test_rows_of_a_table_that_lack_most_cells_do_not_contradict_each_other(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    draw = np.random.default_rng(0)
    lines = ["length,width,height,weight,isle,kind"]
    for row in range(150):
        kind = row % 3
        cells = [f"{8 * (kind == at) + value:.2f}" for at, value in enumerate(draw.normal(size=4))]
        lines.append(",".join([*(cells if row not in (3, 70) else [""] * 4), "east" if row % 2 else "west", "abc"[kind]]))
    lines[11] = lines[11][:-1] + "a"  # row 10, which is a b
    (tmp_path / "table.csv").write_text("\n".join(lines) + "\n")
    assert main(["clean", str(tmp_path / "table.csv"), "--label", "kind", "--out", str(tmp_path / "out")]) == 0
    assert "Rows whose label was not judged, because most of their cells are missing: 2." in capsys.readouterr().out
    found = [row for row in rows_of(tmp_path / "out" / "problems.csv") if row["kind"] == "label"]
    assert [(Path(row["path"]).name, row["label"], row["suggested"]) for row in found] == [("table.csv row 12", "a", "b")]


def test_what_was_filled_in_is_kept_and_tables_of_other_data_are_not_overwritten(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source, out = vectors(tmp_path), tmp_path / "out"
    for command, table, mark in (
        (["clean", str(source), "--out", str(out)], "problems", ("cat,bee,,label", "cat,bee,x,label")),
        (["pick", str(source), "--budget", "3", "--seed", "0", "--out", str(out)], "picks", None),
    ):
        if mark is None:
            held = dict(np.load(source))
            held["y"][::2] = ""
            np.savez(source, **held)
        assert main(command) == 0
        path = out / f"{table}.csv"
        rows = rows_of(path)
        text = path.read_text().replace(*mark) if mark else path.read_text().replace(f"{rows[0]['path']},,", f"{rows[0]['path']},ant,")
        path.write_text(text)
        assert text != "" and main(command) == 0 and rows_of(path)[0] == next(csv.DictReader(text.splitlines()))
        assert "1 row that you filled in before is kept" in capsys.readouterr().out
    other = tmp_path / "points.npy"
    np.save(other, np.load(source)["x"])
    assert main(["clean", str(other), "--out", str(out)]) != 0
    assert "holds the table of other data" in capsys.readouterr().err


def test_data_of_one_name_have_tables_of_their_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    np.save("points.npy", np.load(vectors(tmp_path))["x"])
    for name in ("points.npz", "points.npy", "points.npy", "points.npz"):
        assert main(["clean", name]) == 0
    held = {path.parent.name: json.loads(path.read_text())["data"] for path in (tmp_path / "runs").glob("*/problems.json")}
    assert held == {"points-clean": "points.npz", "points.npy-clean": "points.npy"}


def test_labels_of_vectors_are_a_table_of_their_own_and_texts_are_in_the_tables(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    held = np.load(vectors(tmp_path))
    np.save("docs.npy", held["x"])
    Path("rows.csv").write_text("label\n" + "\n".join(held["y"]) + "\n")
    assert main(["clean", "docs.npy", "--labels", "rows.csv"]) == 0
    said = capsys.readouterr().out
    assert "nearkin explore docs.npy --labels rows.csv --labels runs/docs-clean/problems.csv --replace" in said and "train" not in said
    table = Path("runs/docs-clean/problems.csv")
    first = rows_of(table)[0]
    assert (first["path"], first["suggested"]) == ("docs.npy row 7", "bee")
    table.write_text(table.read_text().replace("cat,bee,,label", "cat,bee,x,label"))
    assert main(["explore", "docs.npy", "--labels", "rows.csv", "--labels", str(table), "--no-serve", "--no-evaluation"]) == 0
    entries = open_index("docs.nearkin").index.page(None, 0, 200).entries
    assert [entry.label for entry in entries[6:9]] == ["ant", "bee", "cat"] and len(entries) == 120  # all labels, one of them corrected
    ids, order = [f"shelf/{row}" for row in range(120)], np.random.default_rng(0).permutation(120)
    np.savez("texts.npz", embeddings=held["x"], id=ids, text=[f"text\n{row} {'=' * 400}" for row in range(120)])
    Path("ids.csv").write_text("id,label\n" + "".join(f"{ids[row]},{held['y'][row]}\n" for row in order))
    assert main(["clean", "texts.npz", "--labels", "ids.csv"]) == 0
    row = rows_of(Path("runs/texts-clean/problems.csv"))[0]
    assert (row["path"], row["label"], row["suggested"]) == ("shelf/7", "cat", "bee")
    assert row["text"].startswith("text 7 ===") and row["text"].endswith("…") and len(row["text"]) == 300
    Path("some.csv").write_text("id,label\n" + "".join(f"{ids[row]},{held['y'][row] if row < 20 else ''}\n" for row in order))
    capsys.readouterr()
    assert main(["pick", "texts.npz", "--labels", "some.csv", "--budget", "2"]) == 0
    assert "text " in capsys.readouterr().out
    picked = rows_of(Path("runs/texts-pick/picks.csv"))
    assert len(picked) == 2 and all(int(row["path"].partition("/")[2]) >= 20 and row["text"] for row in picked)
    assert main(["pick", "texts.npz", "--labels", "some.csv", "--labels", "runs/texts-pick/picks.csv", "--budget", "2"]) == 0
    assert "2 of 2 rows have no label yet" in capsys.readouterr().err  # what was not filled in is picked again


def test_vectors_are_judged_as_explore_has_read_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    held = np.load(vectors(tmp_path))
    np.savez("docs.npz", vectors=held["x"], sku=[f"de/{row}" for row in range(120)], body=["words"] * 120, kind=held["y"])
    assert main(["clean", "docs.npz"]) == 0
    assert "There are no classes, so no label was judged; name their column with --label" in capsys.readouterr().out
    how = ["--label-column", "kind", "--id-column", "sku", "--text-column", "body"]
    assert main(["explore", "docs.npz", *how, "--no-serve", "--no-evaluation"]) == 0
    capsys.readouterr()
    assert main(["clean", "docs.npz"]) == 0
    source, table = tmp_path / "docs.npz", "runs/docs-clean/problems.csv"
    command = f"nearkin explore {source} {' '.join(how)}"
    said = capsys.readouterr().out
    assert f"{command} --labels {table} --replace" in said and "nearkin train" not in said
    row = rows_of(Path(table))[0]
    assert (row["path"], row["label"], row["suggested"], row["text"]) == ("de/7", "cat", "bee", "words")
    Path(table).write_text(Path(table).read_text().replace("cat,bee,,label", "cat,bee,x,label"))
    assert main(["explore", "docs.npz", *how, "--labels", table, "--replace", "--no-serve", "--no-evaluation"]) == 0
    capsys.readouterr()
    assert main(["clean", "docs.nearkin", "--out", "runs/docs-clean"]) == 1  # the table of the file, which names other data
    assert main(["clean", "docs.nearkin"]) == 0  # the corrections that the folder was made with come again
    assert f"{command} --labels {tmp_path / table} --labels docs.nearkin/clean/problems.csv --replace" in capsys.readouterr().out
    assert "label" not in {one["kind"] for one in rows_of(Path("docs.nearkin/clean/problems.csv"))}
    assert main(["clean", "docs.npz", "--label", "kind", "--id-column", "sku", "--out", "other"]) == 0  # or as options say
    assert (
        f"explore docs.npz --label-column kind --id-column sku --labels {Path('other/problems.csv')} --replace" in capsys.readouterr().out
    )


def test_picks_of_image_files_are_labeled_and_picked_again(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder, out = tmp_path / "pictures", tmp_path / "out"
    folder.mkdir()
    draw = np.random.default_rng(0)
    for row in range(40):
        pixels = draw.integers(0, 60, (16, 16)) + 180 * (np.arange(16) // 8 == row % 2)
        Image.fromarray(pixels.astype(np.uint8)).save(folder / f"{row:02d}.png")
    assert main(["pick", str(folder), "--budget", "2", "--out", str(out)]) == 0
    rows = rows_of(out / "picks.csv")
    assert sorted(int(Path(row["path"]).stem) % 2 for row in rows) == [0, 1]
    assert rows[0]["reason"].startswith("typical of ") and "principal components of the pixels" in capsys.readouterr().err
    for row in rows:
        row["label"] = "odd" if int(Path(row["path"]).stem) % 2 else "even"
    with (out / "picks.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
    assert main(["pick", str(folder), "--budget", "3", "--labels", str(out / "picks.csv"), "--out", str(tmp_path / "next")]) == 0
    assert not {row["path"] for row in rows} & {row["path"] for row in rows_of(tmp_path / "next" / "picks.csv")}


def test_everything_labeled_leaves_nothing_to_pick(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["pick", str(vectors(tmp_path)), "--out", str(tmp_path / "out")]) == 1
    said = capsys.readouterr().err
    assert "all 120 points have a label, so there is nothing to choose; put images without a label into one folder" in said
    assert "choosing from" not in said, "it is said before anything is computed"


def test_a_model_folder_is_cleaned_over_all_its_parts(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source, folder = vectors(tmp_path), tmp_path / "model"
    assert main(["train", str(source), "--out", str(folder), "--epochs", "1", "--set", "data.leaks=allow", "--device", "cpu"]) == 0
    assert main(["clean", str(folder)]) == 0
    rows = rows_of(folder / "clean" / "problems.csv")
    assert {row["kind"] for row in rows} <= {"label", "duplicate", "leak"} and rows[0]["path"].endswith("row 7")
    assert {row["part"] for row in rows} <= {"train", "validation", "test"}


def test_rows_of_a_table_are_compared_by_standardized_columns(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    draw = np.random.default_rng(0)
    rows = [f"{1000 * draw.normal():.4f},{number % 2 + 0.1 * draw.normal():.4f},{'ab'[number % 2]}" for number in range(80)]
    (tmp_path / "t.csv").write_text("large,telling,label\n" + "\n".join(rows) + "\n")
    assert main(["clean", str(tmp_path / "t.csv"), "--out", str(tmp_path / "out")]) == 0
    said = capsys.readouterr().err
    assert "by the columns of the table, standardized" in said and said.count("80 rows of 2 columns") == 1
    assert "label" not in [row["kind"] for row in rows_of(tmp_path / "out/problems.csv")]


SUBJECTS = {
    "space": ("rocket", "orbit", "launch", "moon", "crew", "probe", "star", "mission"),
    "kitchen": ("oven", "butter", "flour", "recipe", "pan", "salt", "dough", "spoon"),
}


def reviews(folder: Path) -> Path:
    """120 texts of two subjects: row 7 has the wrong subject, and row 21 repeats row 9."""
    draw = np.random.default_rng(0)
    rows = []
    for number in range(120):
        subject = ("space", "kitchen")[number % 2]
        rows.append([" ".join(draw.choice(SUBJECTS[subject], 6)), subject])
    rows[7][1], rows[21][0] = "space", rows[9][0]
    (folder / "reviews.csv").write_text("said,about\n" + "".join(f"{text},{subject}\n" for text, subject in rows))
    return folder / "reviews.csv"


def test_texts_are_encoded_without_their_labels(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(module, "installed_text_encoder", lambda: None)
    source = reviews(tmp_path)
    columns = ["--text", "said", "--label", "about", "--device", "cpu"]
    assert main(["clean", str(source), *columns, "--out", str(tmp_path / "out")]) == 0
    rows = rows_of(tmp_path / "out" / "problems.csv")
    assert [(row["path"].rpartition(" ")[2], row["suggested"]) for row in rows if row["kind"] == "label"] == [("9", "kitchen")]
    assert any(row["kind"] == "duplicate" and row["path"].endswith("row 23") for row in rows)
    about = json.loads((tmp_path / "out" / "problems.json").read_text())
    assert about["judged by"] == "the features of the frozen encoder words"
    said = capsys.readouterr()
    assert "word vectors are fitted to the texts" in said.err and "reviews.csv --text said --label about --labels" in said.out
    assert main(["clean", str(source), *columns, "--encoder", "mobilenet-v2"]) == 1
    assert "mobilenet-v2 reads images, and reviews holds texts; name hf:NAME" in capsys.readouterr().err


def test_texts_are_picked_from_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "installed_text_encoder", lambda: None)
    for number in range(40):
        words = SUBJECTS[("space", "kitchen")[number % 2]]
        (tmp_path / "texts").mkdir(exist_ok=True)
        (tmp_path / "texts" / f"{number:02d}.txt").write_text(" ".join(np.random.default_rng(number).choice(words, 6)))
    assert main(["pick", str(tmp_path / "texts"), "--budget", "2", "--out", str(tmp_path / "out"), "--device", "cpu"]) == 0
    picked = [int(Path(row["path"]).stem) % 2 for row in rows_of(tmp_path / "out" / "picks.csv")]
    assert sorted(picked) == [0, 1], "one of each subject"


def test_the_texts_of_a_model_folder_are_judged_by_its_frozen_encoder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source, folder = reviews(tmp_path), tmp_path / "model"
    words = ["--text", "said", "--label", "about", "--from-scratch", "--epochs", "1", "--set", "data.leaks=allow", "--device", "cpu"]
    assert main(["train", str(source), "--out", str(folder), *words]) == 0
    assert main(["clean", str(folder), "--device", "cpu"]) == 0
    rows = rows_of(folder / "clean" / "problems.csv")
    assert [row["path"].rpartition(" ")[2] for row in rows if row["kind"] == "label"] == ["9"]


def test_a_table_with_missing_cells_is_judged_by_all_of_its_columns(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    draw = np.random.default_rng(0)
    lines = ["age,job,kind"]
    for at in range(120):
        job = ("cook", "smith", "clerk")[at % 3]
        age = "" if at % 11 == 0 else f"{draw.normal(40, 10):.1f}"
        lines.append(f"{age},{job},{'a' if (job == 'cook') != (at == 48) else 'b'}")
    (tmp_path / "t.csv").write_text("\n".join(lines) + "\n")
    assert main(["clean", str(tmp_path / "t.csv"), "--label", "kind", "--out", str(tmp_path / "out"), "--device", "cpu"]) == 0
    named = [row["path"] for row in rows_of(tmp_path / "out" / "problems.csv") if row["kind"] == "label"]
    assert [name.endswith("t.csv row 50") for name in named] == [True]  # a cook, whose code lies between those of the others


def test_edits_that_a_spreadsheet_saved_with_semicolons_are_kept(tmp_path: Path) -> None:
    rows = [{"path": f"{name}.png", "label": "", "suggested": "Käse", "accept": ""} for name in "ab"]
    (tmp_path / "picks.json").write_text(json.dumps({"picks": rows}))
    edited = csv_of(rows).replace("a.png,,", "a.png,früh,").replace(",", ";")
    (tmp_path / "picks.csv").write_bytes(edited.encode("cp1252"))
    text, kept = carried(tmp_path, "picks", csv_of(rows), ("path",))
    assert kept == 1 and text.splitlines()[1:] == ["a.png,früh,Käse,", "b.png,,Käse,"]
