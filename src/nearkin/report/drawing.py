"""Colors, sizes and saving of all figures. matplotlib (`pip install 'nearkin[plot]'`) is imported when first needed.

Figures are created without pyplot, with every size and color set, so that they neither change nor depend on your matplotlib
backend, open figures or rcParams.
"""

import io
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from nearkin.data.disk import replacing

# Ten colors that stay distinct for normal, protan, deutan and tritan vision: at least 15 OKLab units (of 100) between any two;
# of matplotlib's ten, two are only 1 unit apart. Found by search; a test measures them.
PALETTE = ("#21275d", "#d97812", "#0f8398", "#a43cfc", "#b02c1d", "#e1c93c", "#a09cf9", "#5a0b01", "#56e4d2", "#6c06b2")
MARKERS = ("o", "^", "s", "D", "v", "P", "X")  # after ten classes the colors repeat with another marker
RIGHT, WRONG = "#0a7f5a", "#cc3311"  # bluish green and vermilion, always with a sign for color-blind readers
INK, GRAY, QUIET, PAPER = "#1b1b1b", "#6a6a6a", "#c8c8c8", "#ffffff"
DPI = 200
TITLE, LABEL = 8.0, 6.5  # points; at 1,200 pixels shown 850 wide a title is about 16 pixels high
FORMATS = (".png", ".svg")


def blank(width: int, height: int) -> Any:
    """An empty figure, its size in pixels."""
    figure = matplotlib_part("figure").Figure(figsize=(width / DPI, height / DPI), dpi=DPI, facecolor=PAPER)
    matplotlib_part("backends.backend_agg").FigureCanvasAgg(figure)
    return figure


def save(figure: Any, path: str | Path) -> Path:
    """Write a figure as .png or .svg; missing folders are created.

    Parameters
    ----------
    figure : matplotlib.figure.Figure
        A figure, such as a function of `nearkin.report` returns.
    path : str or Path
        Where to write. The suffix decides the format: .png or .svg.

    Returns
    -------
    Path
        The path that was written.

    Raises
    ------
    ValueError
        If the suffix is neither .png nor .svg.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> from nearkin.report import Series, line, save
    >>> figure = line([1, 5, 10], [Series("accuracy", [0.8, 0.9, 0.85])], title="k-NN", x_label="k", y_label="accuracy")
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     save(figure, Path(folder) / "figures" / "by_k.png").name
    'by_k.png'
    """
    path = Path(path)
    if path.suffix not in FORMATS:
        raise ValueError(f"path {path} ends with {path.suffix or 'nothing'!r}; figures are written as {' or '.join(FORMATS)}")
    path.parent.mkdir(parents=True, exist_ok=True)
    content = as_bytes(figure, path.suffix)
    with replacing(path) as file:
        file.write(content)
    return path


def as_bytes(figure: Any, suffix: str = ".png") -> bytes:
    """The content of the file that `save` would write.

    The same figure always gives the same bytes: an SVG carries no date.

    Parameters
    ----------
    figure : matplotlib.figure.Figure
        A figure, such as a function of `nearkin.report` returns.
    suffix : {".png", ".svg"}, default=".png"
        The format.

    Returns
    -------
    bytes
        The content of an image file.

    Examples
    --------
    >>> from nearkin.report import Series, as_bytes, line
    >>> figure = line([1, 5], [Series("accuracy", [0.8, 0.9])], title="k-NN", x_label="k", y_label="accuracy")
    >>> as_bytes(figure)[1:4]
    b'PNG'
    """
    file = io.BytesIO()
    metadata = {"Date": None} if suffix == ".svg" else None
    figure.savefig(file, format=suffix[1:], dpi=DPI, facecolor=PAPER, metadata=metadata)
    return file.getvalue()


def matplotlib_part(part: str) -> Any:
    """A module of matplotlib; an ImportError says how to install it."""
    try:
        return import_module(f"matplotlib.{part}")
    except ImportError as error:
        raise ImportError("figures need matplotlib, which is not installed; pip install 'nearkin[plot]'") from error


def framed(axes: Any) -> Any:
    """Axes with a thin frame on two sides, a light grid and small numbers."""
    for side, spine in axes.spines.items():
        spine.set(color=QUIET, linewidth=0.6, visible=side in ("left", "bottom"))
    axes.tick_params(labelsize=LABEL, color=QUIET, labelcolor=INK, width=0.6, length=2.5)
    axes.grid(color=QUIET, linewidth=0.4, alpha=0.6)
    axes.set_axisbelow(True)
    axes.set_facecolor(PAPER)
    return axes


def named(axes: Any, title: str, x_label: str, y_label: str) -> None:
    """Set the title and the axis labels."""
    axes.set_title(title, fontsize=TITLE, color=INK, pad=6, linespacing=1.35)
    axes.set_xlabel(x_label, fontsize=LABEL + 0.5, color=INK)
    axes.set_ylabel(y_label, fontsize=LABEL + 0.5, color=INK)


def key(axes: Any, **where: Any) -> None:
    """A legend with a background, so that lines do not cross its text."""
    axes.legend(fontsize=LABEL, facecolor=PAPER, edgecolor="none", framealpha=0.9, labelcolor=INK, **where)


def light(color: str) -> bool:
    """Whether black text reads better on this color than white, by its relative luminance."""
    rgb = np.array([int(color[i : i + 2], 16) / 255 for i in (1, 3, 5)])
    linear = np.where(rgb <= 0.04045, rgb / 12.92, ((rgb + 0.055) / 1.055) ** 2.4)
    return bool(linear @ [0.2126, 0.7152, 0.0722] > 0.25)


def shortened(name: object, most: int = 16) -> str:
    """The name, cut to `most` characters with an ellipsis."""
    text = str(name)
    return text if len(text) <= most else text[: most - 1] + "…"


def as_picture(image: ArrayLike) -> np.ndarray:
    """An image (c, h, w), uint8 or floats in 0..1, as (h, w, 3) floats in 0..1 for matplotlib.

    Gray images are repeated for each color. Of two channels, or more than three, the first is shown.
    """
    array = np.asarray(image)
    if array.ndim != 3 or 0 in array.shape:
        raise ValueError(f"an image has shape {array.shape}; give (c, h, w)")
    scaled = array.astype(np.float64) / (255 if array.dtype == np.uint8 else 1)
    shown = scaled if len(scaled) == 3 else np.repeat(scaled[:1], 3, axis=0)
    return np.clip(shown.transpose(1, 2, 0), 0, 1)
