"""The known sets: the folders, addresses and checksums of their files, and the reader of each layout.

The sha256 checksums are those that TensorFlow Datasets publishes; MNIST's were also computed from the files. For COIL-20 only an md5 is
published, by NEVIS'22, so that its file is checked but not fetched. Addresses are https where the host serves it; the checksum protects
those that are not.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from nearkin.data.dataset import Dataset
from nearkin.data.sources.cifar import Layout, read_cifar
from nearkin.data.sources.idx import read_idx_set
from nearkin.data.sources.lists import read_cub, read_products
from nearkin.data.sources.local_files import LocalFiles, OfficialFile
from nearkin.data.sources.matlab import read_cars, read_dogs, read_svhn
from nearkin.data.sources.objects import read_coil, read_digits, read_imagenet, read_omniglot
from nearkin.data.sources.options import ReadOptions
from nearkin.data.sources.stick_figures import read_stick_figures


@dataclass(frozen=True)
class NamedSet:
    """A known set. Files are looked for in `folders` under the data root and fetched into the first; sets without files have no folders."""

    read: Callable[[LocalFiles, ReadOptions], Dataset]
    folders: tuple[str, ...]
    home: str
    files: tuple[OfficialFile, ...] = ()
    note: str = ""
    shares_names: bool = False


def _idx_files(checksums: tuple[str, str, str, str], *mirrors: str) -> tuple[OfficialFile, ...]:
    names = ("train-images-idx3", "train-labels-idx1", "t10k-images-idx3", "t10k-labels-idx1")
    files = [f"{name}-ubyte.gz" for name in names]
    return tuple(
        OfficialFile(file, tuple(mirror + file for mirror in mirrors), f"sha256:{checksum}")
        for file, checksum in zip(files, checksums, strict=True)
    )


def _one(url: str, checksum: str, *, extra: bool = False, unpacked: bool = False) -> OfficialFile:
    return OfficialFile(url.rpartition("/")[2], (url,), checksum, extra, unpacked)


def _stanford(place: str, name: str, checksum: str, *, extra: bool = False, unpacked: bool = False) -> OfficialFile:
    """A file of a host that serves https, where that is switched on, and http."""
    return OfficialFile(name, (f"https://{place}{name}", f"http://{place}{name}"), checksum, extra, unpacked)


CIFAR_URL = "https://www.cs.toronto.edu/~kriz/"
SVHN = "ufldl.stanford.edu/housenumbers/"
OMNIGLOT_URL = "https://github.com/brendenlake/omniglot/raw/master/python/"
DOGS = "vision.stanford.edu/aditya86/ImageNetDogs/"
NO_PICKLE = "the Python version is a pickle and is never read"
CIFAR_10 = Layout(
    "cifar-10-binary.tar.gz",
    "cifar-10-batches-bin",
    {"train": tuple(f"data_batch_{number}.bin" for number in range(1, 6)), "test": ("test_batch.bin",)},
    "batches.meta.txt",
)
CIFAR_100 = Layout(
    "cifar-100-binary.tar.gz", "cifar-100-binary", {"train": ("train.bin",), "test": ("test.bin",)}, "fine_label_names.txt", 2, 1
)
CIFAR_100_FILE = _one(CIFAR_URL + CIFAR_100.archive, "sha256:58a81ae192c23a4be8b1804d68e518ed807d710a4eb253b1f2a199162a40d8ec")
FASHION_CLASSES = ("T-shirt/top", "Trouser", "Pullover", "Dress", "Coat", "Sandal", "Shirt", "Sneaker", "Bag", "Ankle boot")

SETS: dict[str, NamedSet] = {
    "digits": NamedSet(read_digits, (), "https://scikit-learn.org"),
    "stick-figures": NamedSet(read_stick_figures, (), "rendered from a seed"),
    "mnist": NamedSet(
        partial(read_idx_set, classes=tuple("0123456789")),
        ("mnist", "MNIST/raw"),
        "http://yann.lecun.com/exdb/mnist/",
        _idx_files(
            (
                "440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609",
                "3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c",
                "8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6",
                "f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6",
            ),
            "https://ossci-datasets.s3.amazonaws.com/mnist/",  # PyTorch's copy: the authors' own server often refuses
            "https://storage.googleapis.com/cvdf-datasets/mnist/",  # TensorFlow Datasets' copy
        ),
        shares_names=True,
    ),
    "fashion-mnist": NamedSet(
        partial(read_idx_set, classes=FASHION_CLASSES),
        ("fashion-mnist", "FashionMNIST/raw", "fashion_mnist"),
        "https://github.com/zalandoresearch/fashion-mnist",
        _idx_files(
            (
                "3aede38d61863908ad78613f6a32ed271626dd12800ba2636569512369268a84",
                "a04f17134ac03560a47e3764e11b92fc97de4d1bfaf8ba1a3aa29af54cc90845",
                "346e55b948d973a97e58d2351dde16a484bd415d4595297633bb08f03db6a073",
                "67da17c76eaffca5446c3361aaab5c3cd6d1c2608764d35dfb1850b086bf8dd5",
            ),
            "https://fashion-mnist.s3.eu-central-1.amazonaws.com/",
            "https://github.com/zalandoresearch/fashion-mnist/raw/master/data/fashion/",
        ),
        shares_names=True,
    ),
    "cifar-10": NamedSet(
        partial(read_cifar, layout=CIFAR_10),
        ("cifar-10", "cifar10"),
        CIFAR_URL + "cifar.html",
        (_one(CIFAR_URL + CIFAR_10.archive, "sha256:c4a38c50a1bc5f3a1c5537f2155ab9d68f9f25eb1ed8d9ddda3db29a59bca1dd"),),
        NO_PICKLE,
    ),
    "cifar-100": NamedSet(
        partial(read_cifar, layout=CIFAR_100), ("cifar-100", "cifar100"), CIFAR_URL + "cifar.html", (CIFAR_100_FILE,), NO_PICKLE
    ),
    "cifar-100-coarse": NamedSet(
        partial(read_cifar, layout=CIFAR_100._replace(names_in="coarse_label_names.txt", label_at=0)),
        ("cifar-100", "cifar100"),
        CIFAR_URL + "cifar.html",
        (CIFAR_100_FILE,),
        NO_PICKLE,
    ),
    "svhn": NamedSet(
        read_svhn,
        ("svhn", "SVHN"),
        "http://" + SVHN,
        (
            _stanford(SVHN, "train_32x32.mat", "sha256:435e94d69a87fde4fd4d7f3dd208dfc32cb6ae8af2240d066de1df7508d083b8"),
            _stanford(SVHN, "test_32x32.mat", "sha256:cdce80dfb2a2c4c6160906d0bd7c68ec5a99d7ca4831afa54f09182025b6a75b"),
            _stanford(SVHN, "extra_32x32.mat", "sha256:a133a4beb38a00fcdda90c9489e0c04f900b660ce8a316a5e854838379a71eb3", extra=True),
        ),
    ),
    "omniglot": NamedSet(
        read_omniglot,
        ("omniglot", "omniglot-py", "omniglot/python"),
        "https://github.com/brendenlake/omniglot",
        (
            _one(OMNIGLOT_URL + "images_background.zip", "sha256:ad41ab679c8b5d90b271ef46be6987cc81211774a695c29dcc5367b2b26ee640"),
            _one(OMNIGLOT_URL + "images_evaluation.zip", "sha256:1f61a8f3366785b057fc117d9228e78a16e3d976c8953b2a10fcc74cf0609cee"),
        ),
    ),
    "coil-20": NamedSet(
        read_coil,
        ("coil-20", "coil20", "coil-20-proc"),
        "https://www.cs.columbia.edu/CAVE/software/softlib/coil-20.php",
        (  # no sha256 is published
            _one(
                "https://www.cs.columbia.edu/CAVE/databases/SLAM_coil-20_coil-100/coil-20/coil-20-proc.zip",
                "md5:464dec76a6abfcd00e8de6cf1e7d0acc",
            ),
        ),
    ),
    "cub-200-2011": NamedSet(
        read_cub,
        ("cub-200-2011", "cub-200-2011/CUB_200_2011", "CUB_200_2011", "cub200"),
        "https://www.vision.caltech.edu/datasets/cub_200_2011/",
        (
            _one(
                "https://data.caltech.edu/records/65de6-vp158/files/CUB_200_2011.tgz",
                "sha256:0c685df5597a8b24909f6a7c9db6d11e008733779a671760afef78feb49bf081",
                unpacked=True,
            ),
        ),
    ),
    "cars": NamedSet(
        read_cars,
        ("cars", "stanford_cars", "cars196"),
        "https://ai.stanford.edu/~jkrause/cars/car_dataset.html",
        note="the authors no longer serve the files; there are copies elsewhere, without an official checksum",
    ),
    "online-products": NamedSet(
        read_products,
        ("online-products", "Stanford_Online_Products", "online-products/Stanford_Online_Products"),
        "https://cvgl.stanford.edu/projects/lifted_struct/",
        (
            _one(
                "http://ftp.cs.stanford.edu/cs/cvgl/Stanford_Online_Products.zip",
                "sha256:b04fa78210e69fab050ce73939550e1cd0f96890bdd98ec9fee732c3b756ef48",
            ),
        ),
    ),
    "dogs": NamedSet(
        read_dogs,
        ("dogs", "stanford_dogs"),
        "http://" + DOGS,
        (
            _stanford(DOGS, "images.tar", "sha256:a443fc2f9a851aa1a7b8e4fa4af94b8459fce2c9f5a2f4dd4669cf9673a4ec58", unpacked=True),
            _stanford(DOGS, "lists.tar", "sha256:34b47cacd9a98b5d150e084f24d29391c084c55272295ec65c85651bc35f4d6c", unpacked=True),
        ),
    ),
    "imagenet": NamedSet(
        read_imagenet,
        ("imagenet", "ImageNet"),
        "https://image-net.org/download.php",
        note="registered researchers can download it; sort the images into train/CLASS/ and val/CLASS/",
    ),
}
