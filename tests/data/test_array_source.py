"""Arrays, from files and from memory; a pickle is never read."""

import numpy as np
import pytest
import torch

from nearkin.data import open as open_data

GRAY = np.arange(4 * 6 * 5, dtype=np.uint8).reshape(4, 6, 5)
VECTORS = np.random.default_rng(0).normal(size=(4, 3))


def test_vectors_and_labels_from_memory():
    data = open_data((torch.from_numpy(VECTORS), torch.tensor([3, 1, 3, 1])))
    assert data.inputs.dtype == torch.float32 and data.labels.tolist() == [1, 0, 1, 0] and data.classes == ("1", "3")
    assert data.kind == "vectors" and data.shape == (3,)
    assert torch.equal(data.read([2])[0], torch.from_numpy(VECTORS[2]).float())


@pytest.mark.parametrize(
    ("y", "supervision"),
    [
        (["u", "v", "u", "v"], "classes"),
        (np.array([0.1, 2.0, 3.0, 4.0]), "numbers"),
        (np.zeros((4, 2)), "numbers"),
        (np.zeros((4, 2), dtype=bool), "sets"),
    ],
)
def test_the_dtype_of_y_decides_its_kind(y, supervision):
    assert open_data((VECTORS, y)).supervision == supervision


@pytest.mark.parametrize(
    ("images", "shape"),
    [
        (GRAY, (1, 6, 5)),
        (np.zeros((4, 6, 5, 3), dtype=np.uint8), (3, 6, 5)),
        (np.zeros((4, 3, 6, 5), dtype=np.uint8), (3, 6, 5)),
        (np.zeros((4, 6, 5, 1), dtype=np.uint8), (1, 6, 5)),
    ],
)
def test_channels_are_found_on_either_side(images, shape):
    assert open_data(images).shape == shape


def test_the_pixels_stay_where_they_were():
    color = np.random.default_rng(0).integers(0, 256, (2, 6, 5, 3), dtype=np.uint8)
    assert np.array_equal(open_data({"images": color}).read([1])[0].numpy(), color[1].transpose(2, 0, 1))
    assert open_data(GRAY, size=4, channels=3).shape == (3, 4, 4)


def test_a_file_with_everything(tmp_path):
    np.savez(
        tmp_path / "all.npz",
        x=GRAY,
        y=np.array([0, 1, 1, 0]),
        classes=np.array(["no", "yes"]),
        targets=np.arange(4.0),
        split=np.array(["train", "train", "val", "test"]),
        groups=np.array(["p", "q", "p", "q"]),
    )
    data = open_data(tmp_path / "all.npz")
    assert data.classes == ("no", "yes") and data.labels.tolist() == [0, 1, 1, 0] and data.targets.shape == (4, 1)
    assert data.parts == {"train": 2, "validation": 1, "test": 1} and data.groups.tolist() == [0, 1, 0, 1]
    assert data.sources[3].endswith("all.npz row 3") and data.name == "all"
    np.save(tmp_path / "only.npy", VECTORS)
    assert open_data(tmp_path / "only.npy").supervision == "ids"


@pytest.mark.parametrize(
    ("labels", "classes", "numbers"),
    [
        (np.array([3, -1, 7, -1]), None, [0, -1, 1, -1]),
        (np.array(["b", "", "a", ""]), None, [1, -1, 0, -1]),
        (np.array([-1, 1, 1, -1]), None, [0, 1, 1, 0]),  # two classes, as of support vector machines
        (np.array([0, 1, -1, 1]), ["u", "v"], [0, 1, -1, 1]),
    ],
)
def test_missing_labels_are_unknown_classes(labels, classes, numbers):
    given = {"x": VECTORS, "labels": labels} | ({} if classes is None else {"classes": classes})
    assert open_data(given).labels.tolist() == numbers


def test_unknown_arrays_are_reported():
    lines = []
    open_data({"x": VECTORS, "color": np.zeros(4)}, report=lines.append)
    assert "color is ignored; known names are x, images, vectors" in lines[0]


def spring():
    raise AssertionError("a pickle was read")


class Trap:
    def __reduce__(self):
        return (spring, ())


def test_no_pickle_is_ever_read(tmp_path):
    np.savez(tmp_path / "trap.npz", x=VECTORS, labels=np.array([Trap()] * 4, dtype=object))
    with pytest.raises(ValueError, match=r"trap.npz holds Python objects \(a pickle\), which are never read; save names as"):
        open_data(tmp_path / "trap.npz")


@pytest.mark.parametrize(
    ("arrays", "error"),
    [
        (
            {"y": np.zeros(4)},
            r"the arrays must hold exactly one of x, images, vectors and embeddings, but hold y; name the array of images or vectors x",
        ),
        ({"x": VECTORS, "images": GRAY}, r"must hold exactly one of x, images, vectors and embeddings, but hold images, x"),
        ((VECTORS, [1, 2]), r"labels has 2 entries for 4 points; give one for each"),
        ({"x": VECTORS, "split": ["train"] * 3 + ["tarin"]}, r"split of row 3 is 'tarin'; it must be train, validation or test"),
        (
            {"x": VECTORS, "labels": [0, 1, 2, 3], "classes": ["a", "b"]},
            r"labels holds 3, but classes has 2 names; labels must run from 0 to 1",
        ),
        ({"x": VECTORS, "labels": ["a"] * 4, "classes": ["a", "b"]}, r"labels are <U1; together with classes they must be whole numbers"),
        (np.full((4, 3), np.nan), r"x has numbers that are not finite in 4 rows, first row 0"),
        ({"x": VECTORS, "targets": [1, 2, np.nan, 4]}, r"targets has numbers that are not finite in 1 rows, first row 2"),
        (np.zeros((4, 6, 5)), r"x is float64 \(4, 6, 5\); give images as uint8 .*Images in \[0, 1\] become uint8 by"),
        (np.zeros((4, 3, 8, 3), dtype=np.uint8), r"x is \(4, 3, 8, 3\), so the axis of the channels \(1, 3 or 4 of them\) is not clear"),
        (np.array([{}, {}]), r"x holds Python objects"),
        ((VECTORS, VECTORS, VECTORS), r"what has 3 members; pass x, a pair \(x, y\), or a mapping"),
    ],
)
def test_errors_name_the_fix(arrays, error):
    with pytest.raises(ValueError, match=error):
        open_data(arrays)


def test_a_damaged_file_is_named(tmp_path):
    (tmp_path / "bad.npz").write_bytes(b"PK\x03\x04 not really")
    with pytest.raises(ValueError, match=r"bad.npz is damaged or not a NumPy file"):
        open_data(tmp_path / "bad.npz")


def test_points_are_called_by_their_ids_and_vectors_have_several_names(tmp_path):
    for name in ("x", "embeddings", "features"):
        np.savez(tmp_path / "v.npz", **{name: np.eye(3), "id": ["a/1", "a/2", "b/1"]})
        data = open_data(tmp_path / "v.npz")
        assert list(data.sources) == ["a/1", "a/2", "b/1"] and data.kind == "vectors"
    np.savez(tmp_path / "v.npz", x=np.eye(3), id=["a", "a", "b"])  # ids that do not tell points apart name none
    assert open_data(tmp_path / "v.npz").sources[1].endswith("v.npz row 1")
