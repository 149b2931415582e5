"""The claims of the documents as differences of cells, and what is restarted; `claims` says what our runs make of them."""

from papers.claims import Claim, Difference, Term
from papers.hao2018 import DROPOUT, ROW, called
from papers.huang2019 import ROUNDS, SHORT, SIZES
from papers.ren2014 import FEWER

_TABLES, _FLAT = "[ren2014convolutional] tables I and II", ("PCA", "PPCA", "LDA")


def _ren(trial: str, figure: str = "1-nn") -> Term:
    return f"ren2014-{trial}", figure


def _less(said: str, plus: Term, minus: Term) -> Difference:
    return Difference(said, (plus,), (minus,))


def _flat(more: str, less: str) -> Difference:
    """Of 1-NN accuracy in 2-D; which map was fitted on a part of the images is said."""
    trials = {name: f"mnist-{name.lower()}-2d" for name in (*_FLAT, "LMNN")} | {"linear NCA": "mnist-linear_nca-2d", "ours": "mnist-nca-2d"}
    fitted = [name for name in (more, less) if name in ("LMNN", "linear NCA")]
    said = f"{more} less {less} ({' and '.join(fitted)} {FEWER})"
    return _less(said, _ren(trials[more]), _ren(trials[less]))


_REN = (
    Claim(
        "by 1-NN, NCA features are better than softmax features of the same network",
        _TABLES,
        (
            _less("MNIST error: softmax less NCA, log form", _ren("mnist-softmax"), _ren("mnist-nca-log")),
            _less("MNIST error: softmax less NCA, expected form", _ren("mnist-softmax"), _ren("mnist-nca-expected")),
            _less("MNIST error, shifted: softmax less NCA, log form", _ren("mnist-softmax-shift"), _ren("mnist-nca-log-shift")),
            _less("CIFAR-10 accuracy: NCA, log form, less softmax", _ren("cifar-nca-log"), _ren("cifar-softmax")),
            _less("CIFAR-10 accuracy: NCA, expected form, less softmax", _ren("cifar-nca-expected"), _ren("cifar-softmax")),
            _less("CIFAR-10 accuracy, crop and flip: NCA, log form, less softmax", _ren("cifar-nca-log-crop"), _ren("cifar-softmax-crop")),
        ),
    ),
    Claim(
        "not shuffling sometimes leads to worse models",
        "[ren2014convolutional] text",
        (_less("MNIST error: the same batches every epoch less shuffled ones", _ren("mnist-nca-log-same-batches"), _ren("mnist-nca-log")),),
    ),
    Claim(
        "in 2-D, LMNN and linear NCA tell classes apart better than PCA, PPCA and LDA, and the convnet better than both",
        "[ren2014convolutional] figure 3, here by 1-NN accuracy",
        (
            *(_flat(more, less) for more in ("LMNN", "linear NCA") for less in _FLAT),
            *(_flat("ours", less) for less in ("LMNN", "linear NCA")),
        ),
    ),
)
RESTARTS = {
    "MNIST, NCA, log form, 1-NN": _ren("mnist-nca-log"),
    "MNIST, NCA, expected form, 1-NN": _ren("mnist-nca-expected"),
    "MNIST in 2-D, NCA, log form, 1-NN": _ren("mnist-nca-2d"),
    "CIFAR-10, NCA, log form, 1-NN": _ren("cifar-nca-log"),
    "CIFAR-10, NCA, expected form, 1-NN": _ren("cifar-nca-expected"),
    "CIFAR-10, crop and flip, NCA, log form, 1-NN": _ren("cifar-nca-log-crop"),
}


def _of(data: str, loss: str, dropout: str) -> Term:
    return called(data, loss, dropout), "class vectors"


def _gain(said: str, loss: str, before: tuple[str, str], after: tuple[str, str]) -> Difference:
    """By how much more the error of `loss` falls than SoftMax's, from one (data, dropout) to the other."""
    mine, others = ([_of(data, name, p) for data, p in (before, after)] for name in (loss, "softmax"))
    return Difference(said, (mine[0], others[1]), (mine[1], others[0]))


_NCM = ("c-ncm", "e-ncm")
_HAO = (
    Claim(
        "on CIFAR-100 without dropout E-NCM errs less than C-NCM, and C-NCM less than SoftMax",
        "[hao2018anchor] table 3",
        (
            _less("SoftMax less C-NCM", _of("cifar100", "softmax", "0.0"), _of("cifar100", "c-ncm", "0.0")),
            _less("C-NCM less E-NCM", _of("cifar100", "c-ncm", "0.0"), _of("cifar100", "e-ncm", "0.0")),
        ),
    ),
    Claim(
        "NCM gains more from dropout than SoftMax",
        "[hao2018anchor] table 3",
        tuple(
            _gain(f"{data.upper()}, p = {p}: what {ROW[loss]} gains less what SoftMax gains", loss, (data, "0.0"), (data, p))
            for p in DROPOUT[1:]
            for data in ("cifar10", "cifar10+", "cifar100")
            for loss in _NCM
        ),
    ),
    Claim(
        "NCM gains more from augmentation than SoftMax",
        "[hao2018anchor] table 3",
        tuple(
            _gain(f"CIFAR10 to CIFAR10+, p = {p}: what {ROW[loss]} gains less what SoftMax gains", loss, ("cifar10", p), ("cifar10+", p))
            for p in DROPOUT
            for loss in _NCM
        ),
    ),
    Claim(
        "without dropout and augmentation C-NCM and E-NCM err less than SoftMax on CIFAR-10, too",
        "[hao2018anchor] text",
        tuple(_less(f"SoftMax less {ROW[loss]}", _of("cifar10", "softmax", "0.0"), _of("cifar10", loss, "0.0")) for loss in _NCM),
    ),
    Claim(
        "E-NCM is slightly better than C-NCM on CIFAR-10, with and without augmentation",
        "[hao2018anchor] text, against its own table 3 on CIFAR10 at p = 0.1 and 0.5",
        tuple(
            _less(f"{data.upper()}, p = {p}: C-NCM less E-NCM", _of(data, "c-ncm", p), _of(data, "e-ncm", p))
            for data in ("cifar10", "cifar10+")
            for p in DROPOUT
        ),
    ),
    Claim(
        "the center loss alone collapses to a point",
        "[hao2018anchor] text, which says: to the origin; figure 2 below has the point's distance from it",
        tuple(
            _less(f"{said}: E-NCM less center loss alone", ("hao2018-mnist-2d-e-ncm", figure), ("hao2018-mnist-2d-pull", figure))
            for said, figure in (("spread about the points' mean", "spread about the mean"), ("1-NN accuracy", "1-nn"))
        ),
    ),
)


def _and(trial: str, figure: str = "weighted-nn") -> Term:
    return f"and-{trial}", figure


def _printed_at_200(where: str, epochs: int) -> str:
    return f"[huang2019and] {where}, printed at 200 epochs a round, here {epochs}"


def _growth(how: str, trial: str) -> tuple[Difference, ...]:
    """What is found in the last round less what is found in the first, and who grows faster."""

    def found(number: int, word: str) -> Term:
        return _and(trial, f"round {number} {word}")

    words = ("consistent", "inconsistent")
    return (
        *(_less(f"{how}, {word}: last round less first", found(ROUNDS - 1, word), found(1, word)) for word in words),
        Difference(
            f"{how}: what the consistent gain less what the inconsistent gain",
            (found(ROUNDS - 1, "consistent"), found(1, "inconsistent")),
            (found(1, "consistent"), found(ROUNDS - 1, "inconsistent")),
        ),
    )


_SMALL = {"alex10": "CIFAR-10", "alex100": "CIFAR-100", "alexsvhn": "SVHN"}
_HUANG = (
    Claim(
        "AND is ahead of Instance and DeepCluster, but for DeepCluster by a linear classifier on CIFAR-10",
        _printed_at_200("table 1", 2 * SHORT),
        tuple(
            _less(f"{data}, {how}: AND less {row}", _and(f"{short}-and", figure), _and(f"{short}-{other}", figure))
            for how, figure in (("weighted kNN", "weighted-nn"), ("linear", "linear conv5"))
            for short, data in _SMALL.items()
            for other, row in (("instance", "Instance"), ("cluster", "DeepCluster"))
            if (data, how, other) != ("CIFAR-10", "linear", "cluster")
        ),
    ),
    Claim(
        "AND gains more over Instance by weighted kNN than by a linear classifier",
        _printed_at_200("table 1", 2 * SHORT),
        tuple(
            Difference(
                f"{data}: AND less Instance by kNN, less the same by a linear classifier",
                (_and(f"{short}-and"), _and(f"{short}-instance", "linear conv5")),
                (_and(f"{short}-instance"), _and(f"{short}-and", "linear conv5")),
            )
            for short, data in _SMALL.items()
        ),
    ),
    Claim(
        "AND is ahead of Instance on fine classes",
        _printed_at_200("table 3", 8 * SHORT),
        tuple(
            _less(f"{data}: AND less Instance", _and(f"{short}-and"), _and(f"{short}-instance"))
            for short, data in (("cub", "CUB-200"), ("dogs", "Stanford Dogs"))
        ),
    ),
    Claim(
        "AND gains from stronger networks",
        "[huang2019and] table 4",
        (
            _less(f"ResNet-18 less the AlexNet stand-in, {2 * SHORT} epochs a round", _and("twice"), _and("alex10-and")),
            _less("ResNet-101 less ResNet-18, 200 epochs a round", _and("deep-e200"), _and("e200")),
        ),
    ),
    Claim(
        "more epochs a round are better",
        "[huang2019and] section 4.2",
        (_less("100 less 50", _and("e100"), _and("e50")), _less("200 less 100", _and("e200"), _and("e100"))),
    ),
    Claim(
        "an instance round before the first neighbors is better than none",
        _printed_at_200("table 5", SHORT),
        (_less("instance round less random start", _and("base"), _and("random")),),
    ),
    Claim(
        "a curriculum is better than trusting everybody at once",
        _printed_at_200("table 6", SHORT),
        (_less("curriculum less one-off", _and("base"), _and("oneoff")),),
    ),
    Claim(
        "the smallest neighborhoods are the best",
        _printed_at_200("figure 4", SHORT),
        tuple(_less(f"k = 1 less k = {k}", _and("base"), _and(f"k{k}")) for k in SIZES[1:]),
    ),
    Claim(
        "four rounds are better than fewer",
        f"[huang2019and] figure 5, here with the same epochs in all, {SHORT * ROUNDS}",
        tuple(_less(f"R = 4 less R = {rounds}", _and("base"), _and(f"r{rounds}")) for rounds in (1, 2)),
    ),
    Claim(
        "consistent and inconsistent neighborhoods grow from round to round, and the consistent ones faster",
        "[huang2019and] figure 6",
        (
            *_growth(f"{SHORT} epochs a round", "base"),
            *_growth("released, 50 epochs a round", "e50"),
            *_growth("our recipe, 50 epochs a round", "goal12"),
        ),
    ),
)
CLAIMS = (*_REN, *_HAO, *_HUANG)
