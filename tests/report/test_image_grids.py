"""Figures made of images, and the flow of wrong neighbors: signs next to colors, right counts, nothing cut off."""

import numpy as np
import pytest
from matplotlib.colors import to_hex

from nearkin.report.drawing import RIGHT, WRONG, as_picture
from nearkin.report.flow import MOST, neighbor_flow
from nearkin.report.image_grids import Hit, attention, contact_sheet, filters, gallery

GRAY = np.arange(64, dtype=np.uint8).reshape(1, 8, 8)


def words(figure: object) -> list[str]:
    return [text.get_text() for axes in figure.axes for text in axes.texts]  # type: ignore[attr-defined]


def test_right_hits_are_green_with_a_tick_and_wrong_ones_red_with_a_cross() -> None:
    figure = gallery([(Hit(GRAY, "query cat"), [Hit(GRAY, "cat", True), Hit(GRAY, "dog", False)])], title="t")
    query, right, wrong = figure.axes
    assert not query.texts and right.texts[0].get_text() == "✓" and wrong.texts[0].get_text() == "✗"
    assert to_hex(right.spines["left"].get_edgecolor()) == RIGHT and to_hex(wrong.spines["left"].get_edgecolor()) == WRONG
    assert [axes.get_xlabel() for axes in figure.axes] == ["query cat", "cat", "dog"]
    for axes in figure.axes:
        box = axes.get_position()
        assert 0 <= box.x0 < box.x1 <= 1 and 0 <= box.y0 < box.y1 <= 1


def test_rows_of_a_gallery_may_differ_in_length() -> None:
    figure = gallery([(Hit(GRAY), [Hit(GRAY)] * 3), (Hit(GRAY), [Hit(GRAY)])])
    tops = [axes.get_position().y1 for axes in figure.axes]
    assert len(tops) == 6 and len({round(top, 6) for top in tops[:4]}) == 1 and max(tops[4:]) < min(tops[:4])


def test_a_contact_sheet_fills_its_rows_and_breaks_its_captions() -> None:
    figure = contact_sheet([Hit(GRAY, "cat\nor a very long name of a dog?")] * 5, 3)
    boxes = [axes.get_position() for axes in figure.axes]
    assert len(boxes) == 5 and boxes[3].x0 == pytest.approx(boxes[0].x0) and boxes[3].y1 < boxes[0].y0
    assert figure.axes[0].get_xlabel().startswith("cat\nor a very")
    with pytest.raises(ValueError, match="0 images in 3 columns cannot be drawn"):
        contact_sheet([], 3)


def test_pictures_are_in_the_range_of_colors() -> None:
    assert as_picture(GRAY).shape == (8, 8, 3) and as_picture(GRAY).max() == pytest.approx(63 / 255)
    color = np.random.default_rng(0).random((3, 4, 5))
    assert np.allclose(as_picture(color), color.transpose(1, 2, 0)) and as_picture(color * 9).max() == 1
    assert np.allclose(as_picture(np.stack([color[0], color[1]]))[:, :, 2], color[0])
    with pytest.raises(ValueError, match=r"an image has shape \(4, 5\)"):
        as_picture(color[0])


def test_filters_share_one_scale_and_zero_is_gray() -> None:
    weights = np.zeros((2, 1, 3, 3))
    weights[0, 0, 0, 0], weights[1, 0, 2, 2] = 4.0, -2.0
    images, drawn = filters(weights, np.stack([GRAY] * 3)).axes
    page = drawn.images[0].get_array()
    assert page[0, 0, 0] == 1 and page[1, 1, 0] == 0.5 and np.isclose(page, 0.25).any() and not np.isclose(page, 0.0).any()
    assert images.get_title() == "3 input images" and drawn.get_title() == "2 first-layer filters, 3 x 3; gray is 0, white 4"


def test_filters_of_many_channels_are_tiles_of_their_own_and_the_title_says_how_many_are_left_out() -> None:
    drawn = filters(np.ones((20, 4, 2, 2)), np.zeros((1, 4, 8, 8))).axes[1]
    assert drawn.get_title().startswith("64 of 80 first-layer filters, 2 x 2")
    with pytest.raises(ValueError, match=r"weights have shape \(3, 3\)"):
        filters(np.ones((3, 3)), np.zeros((1, 1, 8, 8)))
    with pytest.raises(ValueError, match=r"images have shape \(8, 8\)"):
        filters(np.ones((3, 1, 3, 3)), np.zeros((8, 8)))


def test_attention_is_hot_where_the_map_is_and_cold_where_it_is_zero() -> None:
    heat = np.zeros((8, 8))
    heat[2, 3] = 5.0
    figure = attention([(Hit(GRAY, "q"), heat, Hit(GRAY, "n", True), np.zeros((8, 8)))])
    query, hot, neighbor, cold = (axes.images[0].get_array() for axes in figure.axes)
    assert hot[2, 3, 0] - hot[2, 3, 2] > 0.5 and np.allclose(hot[0], query[0]) and np.allclose(cold, neighbor)
    with pytest.raises(ValueError, match=r"a map has shape \(4, 4\) for an image of \(8, 8\)"):
        attention([(Hit(GRAY), np.zeros((4, 4)), Hit(GRAY), heat)])
    with pytest.raises(ValueError, match="rows is empty"):
        attention([])
    with pytest.raises(ValueError, match="rows is empty"):
        gallery([])


def test_the_flow_tells_true_counts_and_shares() -> None:
    figure = neighbor_flow([[8, 2, 0], [0, 10, 0], [1, 0, 3]], ["cat", "dog", "093.Clark_Nutcracker"])
    axes = figure.axes[0]
    assert axes.get_title().startswith("3 of 24 neighbors are wrong\n") and len(axes.patches) == 2
    assert (
        "cat  (80.0 % right)" in words(figure) and "dog  (2 times)" in words(figure) and "093.Clark_Nutc…  (75.0 % right)" in words(figure)
    )
    heights = sorted(float(np.ptp(patch.get_path().vertices[[0, 7], 1])) for patch in axes.patches)
    assert heights[1] == pytest.approx(2 * heights[0])  # two wrong neighbors are twice as wide as one


def test_a_flow_of_many_classes_shows_those_with_the_most_and_counts_the_rest() -> None:
    counts = np.eye(100) * 5
    counts[np.arange(99), np.arange(1, 100)] = 1
    counts[40, 41] = 30
    figure = neighbor_flow(counts, list(range(100)))
    assert f"the {MOST} classes with the most;" in figure.axes[0].get_title() and "41  (30 times)" in words(figure)
    assert "no wrong neighbors" in words(neighbor_flow(np.eye(3), "abc"))


def test_names_of_thin_bands_do_not_cover_one_another() -> None:
    counts = np.eye(12) * 50
    counts[0, 1:], counts[1:, 0] = 1, 1
    counts[5, 6] = 200
    axes = neighbor_flow(counts, [f"class {i}" for i in range(12)]).axes[0]
    for side in ("right", "left"):
        heights = [text.get_position()[1] for text in axes.texts if text.get_ha() == side]
        assert len(heights) == 12 and np.diff(heights).min() > 0.025 and min(heights) >= 0 and max(heights) <= 1


def test_errors_of_the_flow() -> None:
    with pytest.raises(ValueError, match=r"counts has shape \(2, 3\)"):
        neighbor_flow(np.zeros((2, 3)), "ab")
    with pytest.raises(ValueError, match="classes has 1 names for 2 rows of counts"):
        neighbor_flow(np.zeros((2, 2)), "a")
    with pytest.raises(ValueError, match="counts holds negative or non-finite numbers"):
        neighbor_flow([[0, -1], [0, 0]], "ab")
