"""The claims of each paper as differences of cells, and the rows whose restarts are compared."""

from collections.abc import Iterable

from papers import taylor2010
from papers.claim import Claim, Difference, Term
from papers.hao2018_trials import DROPOUT, ROW, trial_name
from papers.huang2019_trials import ELSEWHERE, LONG, PRINTED, ROUNDS, SHORT, SIZES, WAYS, compared, figures_of, nearest_of
from papers.ren2014_trials import FEWER

_FLAT = ("PCA", "PPCA", "LDA")
_FORMS = ("log", "expected")


def _ren(trial: str, figure: str = "1-nn") -> Term:
    return f"ren2014-{trial}", figure


def _minus(label: str, plus: Term, minus: Term, caveat: str = "") -> Difference:
    return Difference(label, (plus,), (minus,), caveat)


def _flat(more: str, less: str) -> Difference:
    """Of 1-NN accuracy in 2-D; the label names the map that was fitted on a part of the images."""
    trials = {name: f"mnist-{name.lower()}-2d" for name in (*_FLAT, "LMNN")} | {"linear NCA": "mnist-linear_nca-2d", "ours": "mnist-nca-2d"}
    fitted = [name for name in (more, less) if name in ("LMNN", "linear NCA")]
    label = f"{more} minus {less} ({' and '.join(fitted)} {FEWER})"
    return _minus(label, _ren(trials[more]), _ren(trials[less]))


_REN = (
    Claim(
        "by 1-NN, NCA features are better than softmax features of the same network",
        "tables I and II",
        (
            _minus("MNIST error: softmax minus NCA, log form", _ren("mnist-softmax"), _ren("mnist-nca-log")),
            _minus("MNIST error: softmax minus NCA, expected form", _ren("mnist-softmax"), _ren("mnist-nca-expected")),
            _minus("MNIST error, shifted: softmax minus NCA, log form", _ren("mnist-softmax-shift"), _ren("mnist-nca-log-shift")),
            _minus("CIFAR-10 accuracy: NCA, log form, minus softmax", _ren("cifar-nca-log"), _ren("cifar-softmax")),
            _minus("CIFAR-10 accuracy: NCA, expected form, minus softmax", _ren("cifar-nca-expected"), _ren("cifar-softmax")),
            _minus(
                "CIFAR-10 accuracy, crop and flip: NCA, log form, minus softmax", _ren("cifar-nca-log-crop"), _ren("cifar-softmax-crop")
            ),
        ),
    ),
    Claim(
        "the same, every row trained by the paper's rule: rate finder, a tenth of the rate at every plateau, early stopping",
        "tables I and II",
        (
            *(
                _minus(f"MNIST error: softmax minus NCA, {form} form", _ren("mnist-rule-softmax"), _ren(f"mnist-rule-nca-{form}"))
                for form in _FORMS
            ),
            *(
                _minus(f"CIFAR-10 accuracy: NCA, {form} form, minus softmax", _ren(f"cifar-rule-nca-{form}"), _ren("cifar-rule-softmax"))
                for form in _FORMS
            ),
        ),
    ),
    Claim(
        "not shuffling sometimes leads to worse models",
        "text",
        (_minus("MNIST error: the same batches every epoch minus shuffled", _ren("mnist-nca-log-same-batches"), _ren("mnist-nca-log")),),
    ),
    Claim(
        "in 2-D, LMNN and linear NCA tell classes apart better than PCA, PPCA and LDA, and the convnet better than both",
        "figure 3, here by 1-NN accuracy",
        (
            *(_flat(more, less) for more in ("LMNN", "linear NCA") for less in _FLAT),
            *(_flat("ours", less) for less in ("LMNN", "linear NCA")),
            *(
                _minus(f"linear NCA, all images, minus {less}", _ren("mnist-linear_nca-2d-all"), _ren(f"mnist-{less.lower()}-2d"))
                for less in _FLAT
            ),
            _minus("ours minus linear NCA, all images", _ren("mnist-nca-2d"), _ren("mnist-linear_nca-2d-all")),
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
    return trial_name(data, loss, dropout), "class vectors"


def _gain(label: str, loss: str, before: tuple[str, str], after: tuple[str, str]) -> Difference:
    """By how much more the error of `loss` falls than SoftMax's, from one (data, dropout) to the other."""
    mine, others = ([_of(data, name, p) for data, p in (before, after)] for name in (loss, "softmax"))
    return Difference(label, (mine[0], others[1]), (mine[1], others[0]))


_NCM = ("c-ncm", "e-ncm")
_HAO = (
    Claim(
        "on CIFAR-100 without dropout E-NCM has a lower error than C-NCM, and C-NCM than SoftMax",
        "table 3",
        (
            _minus("SoftMax minus C-NCM", _of("cifar100", "softmax", "0.0"), _of("cifar100", "c-ncm", "0.0")),
            _minus("C-NCM minus E-NCM", _of("cifar100", "c-ncm", "0.0"), _of("cifar100", "e-ncm", "0.0")),
        ),
    ),
    Claim(
        "NCM gains more from dropout than SoftMax",
        "table 3",
        tuple(
            _gain(f"{data.upper()}, p = {p}: gain of {ROW[loss]} minus gain of SoftMax", loss, (data, "0.0"), (data, p))
            for p in DROPOUT[1:]
            for data in ("cifar10", "cifar10+", "cifar100")
            for loss in _NCM
        ),
    ),
    Claim(
        "NCM gains more from augmentation than SoftMax",
        "table 3",
        tuple(
            _gain(f"CIFAR10 to CIFAR10+, p = {p}: gain of {ROW[loss]} minus gain of SoftMax", loss, ("cifar10", p), ("cifar10+", p))
            for p in DROPOUT
            for loss in _NCM
        ),
    ),
    Claim(
        "without dropout and augmentation C-NCM and E-NCM have a lower error than SoftMax on CIFAR-10, too",
        "text",
        tuple(_minus(f"SoftMax minus {ROW[loss]}", _of("cifar10", "softmax", "0.0"), _of("cifar10", loss, "0.0")) for loss in _NCM),
    ),
    Claim(
        "E-NCM is slightly better than C-NCM on CIFAR-10, with and without augmentation",
        "text, against its own table 3 on CIFAR10 at p = 0.1 and 0.5",
        tuple(
            _minus(f"{data.upper()}, p = {p}: C-NCM minus E-NCM", _of(data, "c-ncm", p), _of(data, "e-ncm", p))
            for data in ("cifar10", "cifar10+")
            for p in DROPOUT
        ),
    ),
    Claim(
        "the center loss alone collapses to a point",
        "text, which says: to the origin; figure 2 below gives the distance of the point from it",
        tuple(
            _minus(f"{label}: E-NCM minus center loss alone", ("hao2018-mnist-2d-e-ncm", figure), ("hao2018-mnist-2d-pull", figure))
            for label, figure in (("spread about the mean of the points", "spread about the mean"), ("1-NN accuracy", "1-nn"))
        ),
    ),
)


def _and(trial: str, figure: str = "weighted-nn") -> Term:
    return f"and-{trial}", figure


def _printed_at_200(where: str, *epochs: int) -> str:
    return f"{where}, printed at 200 epochs per round, here {' and '.join(map(str, epochs))}"


def _at_lengths(pairs: Iterable[tuple[str, str, str]]) -> tuple[Difference, ...]:
    """What a row has more than another, at both lengths of the compared rows."""
    return tuple(
        _minus(f"{a_round} epochs per round: {label}", _and(compared(more, a_round)), _and(compared(less, a_round)))
        for a_round in (SHORT, LONG)
        for label, more, less in pairs
    )


def _growth(how: str, trial: str) -> tuple[Difference, ...]:
    """Neighborhoods of the last round minus those of the first, and which kind grows faster."""

    def found(number: int, word: str) -> Term:
        return _and(trial, f"round {number} {word}")

    words = ("consistent", "inconsistent")
    return (
        *(_minus(f"{how}, {word}: last round minus first", found(ROUNDS - 1, word), found(1, word)) for word in words),
        Difference(
            f"{how}: growth of the consistent minus growth of the inconsistent",
            (found(ROUNDS - 1, "consistent"), found(1, "inconsistent")),
            (found(1, "consistent"), found(ROUNDS - 1, "inconsistent")),
        ),
    )


_RESTARTS = f"confounded by schedules, {ROUNDS} restarts against one"  # where only AND has rounds


_SCHEDULES = (
    f"the shorter ones confounded by schedules: AND restarts its rate in each of {ROUNDS} rounds, the others have one schedule over as "
    "many epochs"
)
_LONG_ONE = f", {PRINTED} epochs per round and one schedule for all"
_SMALL = (  # trials, data, length, caveat
    *((trials, data, "", _RESTARTS) for trials, data in (("alex10", "CIFAR-10"), ("alex100", "CIFAR-100"), ("alexsvhn", "SVHN"))),
    *((trials, data, _LONG_ONE, "") for trials, data in (("printed-alex10", "CIFAR-10"), ("printed-alex100", "CIFAR-100"))),
)
_TABLE_1 = f"{_printed_at_200('table 1', 2 * SHORT, PRINTED)}; {_SCHEDULES}"
_HUANG = (
    Claim(
        "at equal length AND is ahead of Instance on CIFAR-10, ResNet-18",
        "our question: the paper does not say how long its Instance was trained; where the schedules differ, too, the outcome says so",
        (
            _minus("our recipe, 250 epochs, one cosine for both: AND minus Instance", _and("goal12"), _and("alone12")),
            _minus("our recipe, 500 epochs, one cosine for both: AND minus Instance", _and("goal25"), _and("alone25")),
            _minus("released recipe, 250 epochs: AND minus Instance", _and("e50"), _and("alone-released"), _RESTARTS),
            _minus(f"{SHORT * ROUNDS} epochs: AND minus Instance", _and("base"), _and("instance"), _RESTARTS),
        ),
    ),
    Claim(
        "a teacher's neighbors (`--for discovery`) teach better neighbors than discovery in rounds, instance discrimination and raw pixels",
        "our question; as many views through a network for all, the recipe as it is on every set",
        (
            _minus("CIFAR-10, 25 M views, weighted kNN: a teacher's neighbors minus discovery in rounds", _and("recipe25"), _and("goal25")),
            _minus(
                "CIFAR-10, 25 M views, weighted kNN: a teacher's neighbors minus instance discrimination", _and("recipe25"), _and("alone25")
            ),
            *(
                _minus(
                    f"{words}, {voters}: a teacher's neighbors minus {row}",
                    _and(f"{short}-by-recipe", figure),
                    _and(f"{short}-{other}", figure),
                )
                for short, (words, data, _, _) in ELSEWHERE.items()
                for voters, figure in figures_of(data).items()
                for other, row in (*((f"by-{way}", row) for way, (row, _) in WAYS.items() if way != "recipe"), ("raw", "raw pixels"))
                if other != "raw" or figure == nearest_of(data)
            ),
        ),
    ),
    Claim(
        "AND is ahead of Instance and DeepCluster, except DeepCluster by a linear classifier on CIFAR-10",
        _TABLE_1,
        tuple(
            _minus(
                f"{data}, {how}{length}: AND minus {row}",
                _and(f"{trials}-and", figure),
                _and(f"{trials}-{other}", figure),
                caveat,
            )
            for trials, data, length, caveat in _SMALL
            for how, figure in (("weighted kNN", "weighted-nn"), ("linear", "linear conv5"))
            for other, row in (("instance", "Instance"), ("cluster", "DeepCluster"))
            if (data, how, other) != ("CIFAR-10", "linear", "cluster")
        ),
    ),
    Claim(
        "AND gains more over Instance by weighted kNN than by a linear classifier",
        _TABLE_1,
        tuple(
            Difference(
                f"{data}{length}: AND minus Instance by kNN, minus the same by a linear classifier",
                (_and(f"{trials}-and"), _and(f"{trials}-instance", "linear conv5")),
                (_and(f"{trials}-instance"), _and(f"{trials}-and", "linear conv5")),
                caveat,
            )
            for trials, data, length, caveat in _SMALL
        ),
    ),
    Claim(
        "AND outperforms all competitors on ImageNet",
        "table 2, whose own figures have AND first by the linear classifier on conv4 alone, and level with Instance by kNN",
        (),
        "ImageNet is not at hand",
    ),
    Claim(
        "AND is ahead of Instance on fine classes",
        f"{_printed_at_200('table 3', 8 * SHORT, PRINTED)}; {_SCHEDULES}",
        tuple(
            _minus(f"{data}{length}: AND minus Instance", _and(f"{short}-and"), _and(f"{short}-instance"), caveat)
            for short, data, length, caveat in (
                ("cub", "CUB-200", "", _RESTARTS),
                ("dogs", "Stanford Dogs", "", _RESTARTS),
                ("printed-cub", "CUB-200", _LONG_ONE, ""),
            )
        ),
    ),
    Claim(
        "AND gains from stronger networks",
        "table 4",
        (
            _minus(f"ResNet-18 minus the AlexNet stand-in, {2 * SHORT} epochs per round", _and("twice"), _and("alex10-and")),
            _minus("ResNet-101 minus ResNet-18, 200 epochs per round", _and("deep-e200"), _and("e200")),
        ),
    ),
    Claim(
        "more epochs per round are better",
        "section 4.2",
        (_minus("100 minus 50", _and("e100"), _and("e50")), _minus("200 minus 100", _and("e200"), _and("e100"))),
    ),
    Claim(
        "an instance round before the first neighbors is better than none",
        _printed_at_200("table 5", SHORT, LONG),
        _at_lengths([("instance round minus random start", "base", "random")]),
    ),
    Claim(
        "a curriculum is better than trusting all points at once",
        _printed_at_200("table 6", SHORT, LONG),
        _at_lengths([("curriculum minus one-off", "base", "oneoff")]),
    ),
    Claim(
        "the smallest neighborhoods are the best",
        _printed_at_200("figure 4", SHORT, LONG),
        _at_lengths([(f"k = 1 minus k = {k}", "base", f"k{k}") for k in SIZES[1:]]),
    ),
    Claim(
        "four rounds are better than fewer",
        f"figure 5, here with the same epochs in all, {SHORT * ROUNDS} and {LONG * ROUNDS}",
        _at_lengths([(f"R = 4 minus R = {rounds}", "base", f"r{rounds}") for rounds in (1, 2)]),
    ),
    Claim(
        "consistent and inconsistent neighborhoods grow from round to round, and the consistent ones faster",
        "figure 6",
        (
            *_growth(f"{SHORT} epochs per round", "base"),
            *_growth("released, 50 epochs per round", "e50"),
            *_growth("our recipe, 50 epochs per round", "goal12"),
        ),
    ),
)


def _pose(short: str, data: str, other: str, label: str) -> Difference:
    """Of 1-NN errors: how far C-NCAR is below another method."""
    figure = f"1-nn {taylor2010.TASKS[data].unit}"
    theirs, ours = ((f"taylor2010-{short}-{name}", figure) for name in (other, "c-ncar"))
    return _minus(f"{data.replace('coil', 'COIL')}: {label} minus C-NCAR", theirs, ours)


def _by_cg(short: str, data: str) -> tuple[Difference, ...]:
    """Conjugate gradient, which the paper uses, against what the other rows use."""
    figure = f"1-nn {taylor2010.TASKS[data].unit}"
    rows = (("linear-ncar", "linear NCA regression", "L-BFGS"), ("c-ncar", "C-NCAR", "Adam"))
    return tuple(
        _minus(
            f"{data.replace('coil', 'COIL')}, {label}: {other} minus conjugate gradient",
            (f"taylor2010-{short}-{name}", figure),
            (f"taylor2010-{short}-{name}-cg", figure),
        )
        for name, label, other in rows
    )


_TAYLOR = (
    Claim(
        "nonlinear conjugate gradient, which the paper uses, has a lower 1-NN error than our optimizers",
        "our question: section 8 names the optimizer alone",
        tuple(one for short, data in taylor2010.SHORT.items() for one in _by_cg(short, data)),
    ),
    Claim(
        "NCA regression on the convnet (C-NCAR) has a lower 1-NN error than simpler methods",
        "our question: the supplement prints no results",
        tuple(
            _pose(short, data, other, label)
            for short, data in taylor2010.SHORT.items()
            for other, label in (
                ("pixels", "raw pixels"),
                ("linear-ncar", "linear NCA regression"),
                ("direct", "the same network, direct regression"),
            )
        ),
    ),
)
CLAIMS: dict[str, tuple[Claim, ...]] = {"ren2014": _REN, "taylor2010": _TAYLOR, "hao2018": _HAO, "huang2019": _HUANG}
