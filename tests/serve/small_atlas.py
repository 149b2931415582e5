"""Two small model folders over the same colored pictures, with two wrong labels and a picture that is in two splits."""

from pathlib import Path
from typing import NamedTuple

from nearkin.index.collection import Collection, build_index
from tests.serve.small_model import COLORS, make_model, opened, picture

EACH, TESTED = 16, 6
WRONG = ("green", "red", 901), ("blue", "green", 902)  # folder, true color, seed
TWIN = "red"


class Folders(NamedTuple):
    """Where the data are, and two models of them with an index each."""

    data: Path
    one: Collection
    other: Collection


def make_data(folder: Path) -> Path:
    """train/ and test/ with a folder for each color."""
    for number, color in enumerate(COLORS):
        for part, count in (("train", EACH), ("test", TESTED)):
            place = folder / part / color
            place.mkdir(parents=True)
            for i in range(count):
                picture(color, 100 * number + i + 50 * (part == "test")).save(place / f"{color}{i:02d}.png")
    for said, true, seed in WRONG:
        picture(true, seed).save(folder / "train" / said / f"wrong{seed}.png")
    (folder / "test" / TWIN / "twin.png").write_bytes((folder / "train" / TWIN / f"{TWIN}00.png").read_bytes())
    return folder


def make_folders(place: Path) -> Folders:
    data = make_data(place / "pictures")
    one, other = (build_index(make_model(place / name, seed), opened(data), device="cpu")[0] for name, seed in (("one", 0), ("other", 3)))
    return Folders(data, one, other)
