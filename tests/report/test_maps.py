"""Figures: right size, right words, nothing of the caller's touched."""

import subprocess
import sys
from pathlib import Path

import matplotlib
import numpy as np
import pytest
import torch
from matplotlib.colors import to_rgb
from PIL import Image

from nearkin.report import maps
from nearkin.report.drawing import MARKERS, PALETTE
from nearkin.report.maps import Panel, embedding_map, number_map, scatter

# What is left of linear RGB without the long, middle or short cones. Machado, Oliveira and Fernandes (2009), severity 1.
SIGHT = {
    "all": np.eye(3),
    "protan": [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]],
    "deutan": [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.011820, 0.042940, 0.968881]],
    "tritan": [[1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602], [0.004733, 0.691367, 0.303900]],
}


def cloud(classes: int = 10, n: int = 200, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    random = np.random.default_rng(seed)
    labels = np.arange(n) % classes
    return random.normal(size=(classes, 2))[labels] * 5 + random.normal(size=(n, 2)), labels


def oklab(linear: np.ndarray) -> np.ndarray:
    """Linear RGB to OKLab times 100, where distances are about as large as they look."""
    to_cones = [[0.41222147, 0.53633254, 0.05144599], [0.21190350, 0.68069955, 0.10739696], [0.08830246, 0.28171884, 0.62997870]]
    to_lab = [[0.21045426, 0.79361779, -0.00407205], [1.97799850, -2.42859221, 0.45059371], [0.02590404, 0.78277177, -0.80867577]]
    return 100 * np.cbrt(linear @ np.transpose(to_cones)) @ np.transpose(to_lab)


@pytest.mark.parametrize("sight", SIGHT)
def test_no_two_colors_look_alike(sight: str) -> None:
    rgb = np.array([to_rgb(color) for color in PALETTE])
    linear = np.where(rgb <= 0.04045, rgb / 12.92, ((rgb + 0.055) / 1.055) ** 2.4)
    seen = oklab(np.clip(linear @ np.transpose(SIGHT[sight]), 0, 1))
    distances = np.linalg.norm(seen[:, None] - seen[None], axis=2)[np.triu_indices(10, 1)]
    assert distances.min() > 15
    assert oklab(linear)[:, 0].max() < 86  # dark enough for white paper


@pytest.mark.parametrize(("panels", "width"), [(1, 400), (4, 1200), (3, 901)])
def test_a_png_has_the_requested_width(tmp_path: Path, panels: int, width: int) -> None:
    points, labels = cloud()
    path = scatter([Panel(f"panel {i}", points, labels, 0.5) for i in range(panels)], tmp_path / "new" / "figure.png", width=width)
    with Image.open(path) as image:
        assert image.format == "PNG" and image.width == width and width / panels < image.height < width / panels + 120


def test_every_class_is_drawn_in_its_color_the_same_in_all_panels(tmp_path: Path) -> None:
    points, labels = cloud(n=2000)
    path = scatter([Panel("all", points, labels), Panel("some", points[labels > 6], labels[labels > 6])], tmp_path / "f.png", width=800)
    pixels = np.asarray(Image.open(path).convert("RGB"))
    for half, expected in ((pixels[:, :400], set(range(10))), (pixels[:, 400:], {7, 8, 9})):
        colors = {tuple(color) for color in half.reshape(-1, 3)}
        found = {i for i, name in enumerate(PALETTE) if tuple(round(255 * c) for c in to_rgb(name)) in colors}  # the labels are opaque
        assert found == expected


def test_titles_and_labels() -> None:
    points, labels = cloud(classes=3)
    first, second = embedding_map([Panel("PCA", points, labels, 0.4567), Panel("no figure", points, labels)]).axes
    assert first.get_title() == "PCA\n1-NN 45.7 %" and second.get_title() == "no figure"
    assert [text.get_text() for text in first.texts] == ["0", "1", "2"]
    for text in first.texts:
        low, high = np.percentile(points[labels == int(text.get_text())], [25, 75], axis=0)
        assert bool((low < text.get_position()).all() and (text.get_position() < high).all())


def test_labels_on_one_spot_are_pushed_apart_and_stay_in_the_frame() -> None:
    random = np.random.default_rng(0)
    axes = embedding_map([Panel("mixed", random.normal(size=(300, 2)), random.integers(0, 10, 300))], width=400).axes[0]
    spots = np.array([text.get_position() for text in axes.texts])
    side = np.ptp(axes.get_xlim())
    distances = np.linalg.norm(spots[:, None] - spots[None], axis=2)[np.triu_indices(10, 1)]
    assert distances.min() > 0.9 * maps.TOGETHER * side
    assert (spots > [axes.get_xlim()[0], axes.get_ylim()[0]]).all() and (spots < [axes.get_xlim()[1], axes.get_ylim()[1]]).all()


def test_every_class_has_its_anchor_inside_the_frame() -> None:
    points, labels = cloud(classes=3)
    anchors = np.array([[40.0, 0.0], [-40.0, 0.0], [0.0, 40.0]])
    axes = embedding_map([Panel("anchors", points, labels, anchors=anchors)], width=400).axes[0]
    stars = axes.collections[-1]
    assert np.allclose(stars.get_offsets(), anchors)
    assert [tuple(color[:3]) for color in stars.get_facecolors()] == [to_rgb(color) for color in PALETTE[:3]]
    assert axes.get_xlim()[1] > 40 and axes.get_ylim()[1] > 40


def test_from_the_eleventh_class_on_another_marker_tells_and_above_thirty_none_is_named() -> None:
    points, labels = cloud(classes=25)
    axes = embedding_map([Panel("many", points, labels)], width=400).axes[0]
    assert len(axes.collections) == 3 and len(axes.texts) == 25 and len(set(MARKERS)) == len(MARKERS)
    points, labels = cloud(classes=31)
    assert not embedding_map([Panel("too many to name", points, labels)], width=400).axes[0].texts


def test_points_without_classes_are_all_alike_and_nameless() -> None:
    points, _ = cloud()
    axes = embedding_map([Panel("no labels", points)], width=400).axes[0]
    assert not axes.texts and {tuple(color) for color in axes.collections[0].get_facecolors()[:, :3]} == {to_rgb(PALETTE[0])}


def test_long_names_are_cut() -> None:
    points, labels = cloud(classes=2)
    axes = embedding_map([Panel("birds", points, np.array(["a", "093.Clark_Nutcracker"])[labels])], width=400).axes[0]
    assert sorted(text.get_text() for text in axes.texts) == ["093.Clark_N…", "a"]


def test_numbers_are_colors_with_their_scale() -> None:
    points, _ = cloud()
    axes, scale = number_map(points, points[:, 0], "pose", "degrees").axes
    assert np.allclose(axes.collections[0].get_array(), points[:, 0]) and scale.get_ylabel() == "degrees"


def test_one_far_point_does_not_shrink_the_rest() -> None:
    points, _ = cloud()
    points[0] = 1e6
    _, half = maps._window(points)
    assert half < 100


@pytest.mark.parametrize("points", [np.zeros((5, 2)), np.ones((1, 2)), torch.rand(5, 2)])
def test_points_on_one_spot_one_point_and_tensors(tmp_path: Path, points: np.ndarray) -> None:
    assert scatter([Panel("few", points, np.arange(len(points)))], tmp_path / "f.png", width=300).stat().st_size > 0


def test_neither_backend_nor_settings_nor_pyplot_are_touched(tmp_path: Path) -> None:
    points, labels = cloud()
    before = dict(matplotlib.rcParams)
    scatter([Panel("a", points, labels)], tmp_path / "f.png", width=300)
    assert dict(matplotlib.rcParams) == before
    code = (
        "import sys; from nearkin.report import Panel, scatter; assert 'matplotlib' not in sys.modules;"
        f"scatter([Panel('a', [[0, 0], [1, 1]], [0, 1])], {str(tmp_path / 'g.png')!r}, width=300);"
        "assert 'matplotlib.pyplot' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_without_matplotlib_the_message_names_the_extra(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    points, labels = cloud()
    with pytest.raises(ImportError, match=r"figures need matplotlib, which is not installed; pip install 'nearkin\[plot\]'"):
        scatter([Panel("a", points, labels)], tmp_path / "f.png")


def test_errors(tmp_path: Path) -> None:
    points, labels = cloud()
    with pytest.raises(ValueError, match="panels is empty"):
        scatter([], tmp_path / "f.png")
    with pytest.raises(ValueError, match=r"embeddings of 'a' have shape \(200, 3\); a scatter needs \(n, 2\)"):
        scatter([Panel("a", np.zeros((200, 3)), labels)], tmp_path / "f.png")
    with pytest.raises(ValueError, match=r"labels of 'a' have shape \(199,\) for 200 points"):
        scatter([Panel("a", points, labels[1:])], tmp_path / "f.png")
    with pytest.raises(ValueError, match="embeddings of 'a' hold NaN or infinity"):
        scatter([Panel("a", points * np.nan, labels)], tmp_path / "f.png")
    with pytest.raises(ValueError, match=r"anchors of 'a' have shape \(3,\); a scatter needs \(C, 2\)"):
        embedding_map([Panel("a", points, labels, anchors=[1, 2, 3])])
    with pytest.raises(ValueError, match="anchors of 'a' has 3 rows for 10 classes; pass one for each class"):
        embedding_map([Panel("a", points, labels, 0.5, anchors=np.zeros((3, 2)))])
    with pytest.raises(ValueError, match=r"width \(299\) makes 2 panels too small to read; pass at least 300"):
        scatter([Panel("a", points, labels)] * 2, tmp_path / "f.png", width=299)
