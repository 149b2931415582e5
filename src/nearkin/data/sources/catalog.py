"""The named sets, as data: where each lies, where it can be had, its checksums, and which reader knows its layout.

Checksums: Fashion-MNIST's, CIFAR's and CUB's are the authors' own; MNIST's, SVHN's and Omniglot's are torchvision's, Online
Products' is pytorch-metric-learning's, Dogs' are TensorFlow Datasets'. None is known for COIL-20.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from nearkin.data.dataset import Dataset
from nearkin.data.sources.cifar import Layout, read_cifar
from nearkin.data.sources.idx import read_idx_set
from nearkin.data.sources.lists import read_cub, read_products
from nearkin.data.sources.local_files import Official, Shelf
from nearkin.data.sources.matlab import read_cars, read_dogs, read_svhn
from nearkin.data.sources.objects import read_coil, read_digits, read_imagenet, read_omniglot
from nearkin.data.sources.options import Wanted
from nearkin.data.sources.stick_figures import read_stick_figures


@dataclass(frozen=True)
class NamedSet:
    """One entry. Files are looked for in `folders` under the data root and fetched into the first; sets without files have no folders."""

    read: Callable[[Shelf, Wanted], Dataset]
    folders: tuple[str, ...]
    home: str
    files: tuple[Official, ...] = ()
    note: str = ""
    shares_names: bool = False


def _idx_files(checksums: tuple[str, str, str, str], *mirrors: str) -> tuple[Official, ...]:
    names = ("train-images-idx3", "train-labels-idx1", "t10k-images-idx3", "t10k-labels-idx1")
    files = [f"{name}-ubyte.gz" for name in names]
    return tuple(
        Official(file, tuple(mirror + file for mirror in mirrors), f"md5:{checksum}")
        for file, checksum in zip(files, checksums, strict=True)
    )


def _one(url: str, checksum: str | None, *, extra: bool = False, unpacked: bool = False) -> Official:
    return Official(url.rpartition("/")[2], (url,), checksum, extra, unpacked)


TORONTO = "https://www.cs.toronto.edu/~kriz/"
HOUSES = "http://ufldl.stanford.edu/housenumbers/"
DRAWINGS = "https://github.com/brendenlake/omniglot/raw/master/python/"
KENNEL = "http://vision.stanford.edu/aditya86/ImageNetDogs/"
NO_PICKLE = "the python version is a pickle and is never read"
CIFAR_10 = Layout(
    "cifar-10-binary.tar.gz",
    "cifar-10-batches-bin",
    {"train": tuple(f"data_batch_{number}.bin" for number in range(1, 6)), "test": ("test_batch.bin",)},
    "batches.meta.txt",
)
CIFAR_100 = Layout(
    "cifar-100-binary.tar.gz", "cifar-100-binary", {"train": ("train.bin",), "test": ("test.bin",)}, "fine_label_names.txt", 2, 1
)
CIFAR_100_FILE = _one(TORONTO + CIFAR_100.archive, "md5:03b5dce01913d631647c71ecec9e9cb8")
CLOTHES = ("T-shirt/top", "Trouser", "Pullover", "Dress", "Coat", "Sandal", "Shirt", "Sneaker", "Bag", "Ankle boot")

SETS: dict[str, NamedSet] = {
    "digits": NamedSet(read_digits, (), "https://scikit-learn.org"),
    "stick-figures": NamedSet(read_stick_figures, (), "rendered here, from a seed"),
    "mnist": NamedSet(
        partial(read_idx_set, classes=tuple("0123456789")),
        ("mnist", "MNIST/raw"),
        "http://yann.lecun.com/exdb/mnist/",
        _idx_files(
            (
                "f68b3c2dcbeaaa9fbdd348bbdeb94873",
                "d53e105ee54ea40749a09fcbcd1e9432",
                "9fb629c4189551a2d022fa330f9573f3",
                "ec29112dd5afa0611ce80d1b7f02629c",
            ),
            "https://ossci-datasets.s3.amazonaws.com/mnist/",  # PyTorch's copy of the same files; the authors' own server often refuses
            "http://yann.lecun.com/exdb/mnist/",
        ),
        shares_names=True,
    ),
    "fashion-mnist": NamedSet(
        partial(read_idx_set, classes=CLOTHES),
        ("fashion-mnist", "FashionMNIST/raw", "fashion_mnist"),
        "https://github.com/zalandoresearch/fashion-mnist",
        _idx_files(
            (
                "8d4fb7e6c68d591d4c3dfef9ec88bf0d",
                "25c81989df183df01b3e8a0aad5dffbe",
                "bef4ecab320f06d8554ea6380940ec79",
                "bb300cfdad3c16e7a12a480ee83cd310",
            ),
            "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/",
        ),
        shares_names=True,
    ),
    "cifar-10": NamedSet(
        partial(read_cifar, layout=CIFAR_10),
        ("cifar-10", "cifar10"),
        TORONTO + "cifar.html",
        (_one(TORONTO + CIFAR_10.archive, "md5:c32a1d4ab5d03f1284b67883e8d87530"),),
        NO_PICKLE,
    ),
    "cifar-100": NamedSet(
        partial(read_cifar, layout=CIFAR_100), ("cifar-100", "cifar100"), TORONTO + "cifar.html", (CIFAR_100_FILE,), NO_PICKLE
    ),
    "cifar-100-coarse": NamedSet(
        partial(read_cifar, layout=CIFAR_100._replace(names_in="coarse_label_names.txt", label_at=0)),
        ("cifar-100", "cifar100"),
        TORONTO + "cifar.html",
        (CIFAR_100_FILE,),
        NO_PICKLE,
    ),
    "svhn": NamedSet(
        read_svhn,
        ("svhn", "SVHN"),
        HOUSES,
        (
            _one(HOUSES + "train_32x32.mat", "md5:e26dedcc434d2e4c54c9b2d4a06d8373"),
            _one(HOUSES + "test_32x32.mat", "md5:eb5a983be6a315427106f1b164d9cef3"),
            _one(HOUSES + "extra_32x32.mat", "md5:a93ce644f1a588dc4d68dda5feec44a7", extra=True),
        ),
    ),
    "omniglot": NamedSet(
        read_omniglot,
        ("omniglot", "omniglot-py", "omniglot/python"),
        "https://github.com/brendenlake/omniglot",
        (
            _one(DRAWINGS + "images_background.zip", "md5:68d2efa1b9178cc56df9314c21c6e718"),
            _one(DRAWINGS + "images_evaluation.zip", "md5:6b91aef0f799c5bb55b94e3f2daec811"),
        ),
    ),
    "coil-20": NamedSet(
        read_coil,
        ("coil-20", "coil20", "coil-20-proc"),
        "https://www.cs.columbia.edu/CAVE/software/softlib/coil-20.php",
        (_one("https://www.cs.columbia.edu/CAVE/databases/SLAM_coil-20_coil-100/coil-20/coil-20-proc.zip", None),),
    ),
    "cub-200-2011": NamedSet(
        read_cub,
        ("cub-200-2011", "cub-200-2011/CUB_200_2011", "CUB_200_2011", "cub200"),
        "https://www.vision.caltech.edu/datasets/cub_200_2011/",
        (
            _one(
                "https://data.caltech.edu/records/65de6-vp158/files/CUB_200_2011.tgz",
                "md5:97eceeb196236b17998738112f37df78",
                unpacked=True,
            ),
        ),
    ),
    "cars": NamedSet(
        read_cars,
        ("cars", "stanford_cars", "cars196"),
        "https://ai.stanford.edu/~jkrause/cars/car_dataset.html",
        note="the authors' files are no longer served there; copies are kept elsewhere, without an official checksum",
    ),
    "online-products": NamedSet(
        read_products,
        ("online-products", "Stanford_Online_Products", "online-products/Stanford_Online_Products"),
        "https://cvgl.stanford.edu/projects/lifted_struct/",
        (_one("http://ftp.cs.stanford.edu/cs/cvgl/Stanford_Online_Products.zip", "md5:7f73d41a2f44250d4779881525aea32e"),),
    ),
    "dogs": NamedSet(
        read_dogs,
        ("dogs", "stanford_dogs"),
        KENNEL,
        (
            _one(KENNEL + "images.tar", "sha256:a443fc2f9a851aa1a7b8e4fa4af94b8459fce2c9f5a2f4dd4669cf9673a4ec58", unpacked=True),
            _one(KENNEL + "lists.tar", "sha256:34b47cacd9a98b5d150e084f24d29391c084c55272295ec65c85651bc35f4d6c", unpacked=True),
        ),
    ),
    "imagenet": NamedSet(
        read_imagenet,
        ("imagenet", "ImageNet"),
        "https://image-net.org/download.php",
        note="it is given to registered researchers only; sort the images into train/CLASS/ and val/CLASS/",
    ),
}
