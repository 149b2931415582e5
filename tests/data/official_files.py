"""Small files in the official layouts, for tests of the readers of known sets."""

import gzip
import struct
import tarfile
import zipfile
from pathlib import Path

import numpy as np
from scipy.io import savemat

from tests.data.picture_files import save, save_tree

RANDOM = np.random.default_rng(0)


def idx(array: np.ndarray) -> bytes:
    return struct.pack(f">BBBB{array.ndim}I", 0, 0, 8, array.ndim, *array.shape) + array.tobytes()


def write_idx(folder: Path, train: int = 5, test: int = 3, packed: bool = True, classes: int = 10) -> dict[str, np.ndarray]:
    folder.mkdir(parents=True, exist_ok=True)
    held = {}
    for stem, count in (("train", train), ("t10k", test)):
        held[stem] = RANDOM.integers(0, 256, (count, 4, 4), dtype=np.uint8)
        files = {f"{stem}-images-idx3-ubyte": held[stem], f"{stem}-labels-idx1-ubyte": np.arange(count, dtype=np.uint8) % classes}
        for name, array in files.items():
            (folder / (name + ".gz" * packed)).write_bytes(gzip.compress(idx(array)) if packed else idx(array))
    return held


def cifar_record(*labels: int) -> tuple[bytes, np.ndarray]:
    image = RANDOM.integers(0, 256, (3, 32, 32), dtype=np.uint8)
    return bytes(labels) + image.tobytes(), image


def write_cifar10(folder: Path) -> list[np.ndarray]:
    inner = folder / "cifar-10-batches-bin"
    inner.mkdir(parents=True)
    images = []
    for name, label in [*((f"data_batch_{number}", number) for number in range(1, 6)), ("test_batch", 9)]:
        raw, image = cifar_record(label)
        (inner / f"{name}.bin").write_bytes(raw)
        images.append(image)
    (inner / "batches.meta.txt").write_text("airplane\nautomobile\nbird\ncat\ndeer\ndog\nfrog\nhorse\nship\ntruck\n\n")
    return images


def write_cifar100(folder: Path, coarse_names: bool = True) -> None:
    inner = folder / "cifar-100-binary"
    inner.mkdir(parents=True)
    (inner / "train.bin").write_bytes(cifar_record(1, 2)[0] + cifar_record(0, 1)[0])
    (inner / "test.bin").write_bytes(cifar_record(1, 0)[0])
    (inner / "fine_label_names.txt").write_text("apple\nbaby\nbear\n")
    if coarse_names:
        (inner / "coarse_label_names.txt").write_text("food\nliving\n")


def tar(archive: Path, folder: Path, mode: str = "w:gz") -> None:
    with tarfile.open(archive, mode) as tape:
        tape.add(folder, folder.name)


def zipped(archive: Path, folder: Path) -> None:
    with zipfile.ZipFile(archive, "w") as pack:
        for path in sorted(folder.rglob("*")):
            pack.write(path, path.relative_to(folder.parent))


def write_svhn(folder: Path, *parts: str) -> dict[str, np.ndarray]:
    folder.mkdir(parents=True, exist_ok=True)
    held = {}
    for part in parts:
        held[part] = RANDOM.integers(0, 256, (32, 32, 3, 2), dtype=np.uint8)
        savemat(folder / f"{part}_32x32.mat", {"X": held[part], "y": np.array([[10], [3]], dtype=np.uint8)})
    return held


def write_omniglot(folder: Path) -> None:
    for part, alphabets in (("images_background", ("Greek", "Latin")), ("images_evaluation", ("Ge_ez",))):
        names = [f"{alphabet}/character0{c}/0001_0{d}.png" for alphabet in alphabets for c in (1, 2) for d in (1, 2, 3)]
        save_tree(folder / part, *names, channels=1)


def write_cub(folder: Path) -> None:
    names = ["001.Albatross/a.jpg", "002.Auk/b.jpg", "002.Auk/c.jpg"]
    save_tree(folder / "images", *names)
    (folder / "images.txt").write_text("".join(f"{at} {name}\n" for at, name in enumerate(names, 1)))
    (folder / "image_class_labels.txt").write_text("1 1\n2 2\n3 2\n")
    (folder / "train_test_split.txt").write_text("1 1\n2 1\n3 0\n")
    (folder / "classes.txt").write_text("1 001.Albatross\n2 002.Auk\n")


def write_cars_devkit(folder: Path) -> None:
    kind = [("bbox_x1", "O"), ("class", "O"), ("fname", "O")]
    (folder / "devkit").mkdir(parents=True)
    for part, rows, at in (
        ("train", [(1, 2, "00001.jpg"), (1, 1, "00002.jpg")], "devkit/cars_train_annos.mat"),
        ("test", [(1, 2, "00001.jpg")], "cars_test_annos_withlabels.mat"),
    ):
        savemat(folder / at, {"annotations": np.array([rows], dtype=kind)})
        save_tree(folder / f"cars_{part}", *(name for _, _, name in rows))
    savemat(folder / "devkit/cars_meta.mat", {"class_names": np.array([["Audi S4", "BMW M3"]], dtype=object)})


def write_cars_list(folder: Path) -> None:
    kind = [("relative_im_path", "O"), ("class", "O"), ("test", "O")]
    rows = [("car_ims/000001.jpg", 1, 0), ("car_ims/000002.jpg", 2, 1), ("car_ims/000003.jpg", 2, 0)]
    save_tree(folder, *(name for name, _, _ in rows))
    names = np.array([["Audi S4", "BMW M3"]], dtype=object)
    savemat(folder / "cars_annos.mat", {"annotations": np.array([rows], dtype=kind), "class_names": names})


def write_products(folder: Path) -> None:
    folder.mkdir(parents=True)
    for part, rows in (("train", ["1 1 1 chair_final/1_0.JPG", "2 2 1 chair_final/2_0.JPG"]), ("test", ["3 11319 2 lamp_final/3_0.JPG"])):
        (folder / f"Ebay_{part}.txt").write_text("image_id class_id super_class_id path\n" + "\n".join(rows) + "\n")
        for row in rows:
            save(folder / row.split()[-1], int(row.split()[0]))


def write_dogs(folder: Path) -> None:
    folder.mkdir(parents=True)
    for part, rows in (("train", [("n01-Chihuahua/a.jpg", 1), ("n02-Pug/b.jpg", 2)]), ("test", [("n02-Pug/c.jpg", 2)])):
        cells = np.array([[name] for name, _ in rows], dtype=object)
        savemat(folder / f"{part}_list.mat", {"file_list": cells, "labels": np.array([[label] for _, label in rows])})
        save_tree(folder / "Images", *(name for name, _ in rows))
