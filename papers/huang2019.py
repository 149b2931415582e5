"""Tables 1 and 3 to 6 and figures 4 to 7 of [huang2019and]: neighborhood discovery, its baselines, and what lies beyond the paper.

"Released" is what the authors' code does: batch 128, rate 0.03, times 0.1 at 60 % and 80 % of every round, no flip, a bank that starts
uniform and not normalized, the release's constants for the colors. Differs: batches are whole, so that 80 of CIFAR's 50,000 images wait
for another epoch; the network runs in bfloat16. Figures are those of the last epoch, against recomputed features, unless they say
otherwise. Tables 5 and 6 and figures 4 to 7 are run at one affordable length, the same for every row; options beyond the paper are
compared on a tenth of the training part that is left out.
"""

from collections.abc import Mapping

from papers.cell import Ablation, Cell, Keep, Settings, Trial

SHORT = 6  # epochs a round where rows are only compared with each other; printed is 200
ROUNDS = 5  # one of instances and four of discovery
SIZES = (1, 5, 20, 100)  # k of figure 4

_NETWORK = {"network.name": "resnet18", "network.dimension": "128", "network.normalize": "true"}
_COMMON = {
    **_NETWORK,
    "objective.name": "neighborhood_discovery",
    "objective.options.precision": "fast",
    "augment.name": "discovery",
    "precision": "bfloat16",
    "schedule.warmup": "0",
}
_RELEASED = {
    **_COMMON,
    "objective.options.start": "released",
    "batch_size": "128",
    "optimizer.learning_rate": "0.03",
    "schedule.name": "milestones",
    "schedule.milestones": "[0.6, 0.8]",
    "preprocess.name": "cifar",
    "discovery.released_protocol": "true",
}
_LARGER = {**_COMMON, "batch_size": "256", "optimizer.learning_rate": "0.06", "schedule.name": "cosine"}
_BETTER = {
    **_LARGER,
    "augment.options.flip": "true",
    "augment.options.hue": "0.1",
    "discovery.refresh": "epoch",
    "discovery.gradual": "true",
    "discovery.restart": "false",
}
_DECAYS = {"optimizer.weight_decay": ("5e-4", "1e-3")}  # tried anew with all that the goals take, at twice the length
CHOSEN = {"optimizer.weight_decay": "1e-3"}  # of them, by goal12
_COMPILED = {"compile": "true"}  # once in a process for all trials of one network and batch size
_ALONE = {"compile": "false"}  # nobody shares this one's network or batch size: the wait would be longer than what it gives
_LONG = {**_COMPILED, "checkpoint_seconds": "45"}  # a machine may be taken away inside such a run
_BASE = {**_LARGER, **_COMPILED, "epochs": str(SHORT * ROUNDS)}
_INSTANCES = {"objective.name": "instance_discrimination"}
_CLUSTERS = {"objective.name": "deep_cluster", "network.normalize": "false", **_ALONE}
_CLIPPED = {"optimizer.clip": "1.0"}  # nothing bounds these embeddings: without it the stand-in's explode in the first 30 steps
_NOISE = {"objective.name": "noise_as_targets"}
_EACH = {"objective.options.quantifier": "each"}
_NEIGHBORS = {"objective.options.quantifier": ("any", "each")}  # tried by the training of 50 M images
_RATES = {"optimizer.learning_rate": ("0.06", "0.12")}  # tried with batches of 512, of which an H200 sees more images a second


def _of(settings: Settings) -> Settings:
    """The settings, without what is another objective's: options of the bank, and of discovery."""
    objective = settings["objective.name"]
    bank, discovers = objective in ("neighborhood_discovery", "instance_discrimination"), objective == "neighborhood_discovery"
    others = (*([] if bank else ["objective.options."]), *([] if discovers else ["discovery."]))
    return {name: value for name, value in settings.items() if not name.startswith(others)}


def _trial(
    name: str,
    *settings: Settings,
    data: str = "cifar10",
    tune: Mapping[str, tuple[str, ...]] | None = None,
    tuning_epochs: int = 2 * SHORT * ROUNDS,
    seeds: int = 1,
    held_out: bool = False,
    probe: str = "",
    voters: tuple[str, ...] = (),
    keep: Keep = "",
) -> Trial:
    merged: dict[str, str] = {}
    for some in settings:
        merged |= some
    more = {"seeds": seeds, "held_out": held_out, "probe": probe, "voters": voters, "keep": keep}
    length = tuning_epochs if tune else 0
    return Trial(f"and-{name}", data, _of(merged), tune or {}, length, figure="weighted-nn", **more)  # type: ignore[arg-type]


# Beyond the paper, each against the same base, on a tenth of the training part that is left out.
_OPTIONS: dict[str, tuple[str, Settings]] = {
    "base": ("none of them", {}),
    "flip": ("flip", {"augment.options.flip": "true"}),
    "hue": ("hue 0.1 instead of 0.4", {"augment.options.hue": "0.1"}),
    "views": ("two views, half the epochs", {"views": "2", "epochs": str(SHORT * ROUNDS // 2), **_ALONE}),
    "refresh": ("neighbors refreshed every epoch", {"discovery.refresh": "epoch"}),
    "mutual": ("mutual neighbors only", {"discovery.mutual": "true"}),
    "weighted": ("weighted by entropy instead of selected", {"objective.options.weighted": "true"}),
    "each": ("each neighbor near, not any", _EACH),
    "gradual": ("trusted share grows every epoch", {"discovery.refresh": "epoch", "discovery.gradual": "true"}),
    "once": ("one cosine over all rounds", {"discovery.restart": "false"}),
    "bank": ("bank starts as released, not normalized", {"objective.options.start": "released"}),
    "rate": ("twice the rate", {"optimizer.learning_rate": "0.12"}),
    "decay": ("twice the weight decay", {"optimizer.weight_decay": "1e-3"}),
    "cool": ("temperature 0.07 instead of 0.1", {"objective.options.temperature": "0.07"}),
    "warm": ("temperature 0.15 instead of 0.1", {"objective.options.temperature": "0.15"}),
}
# The goals' recipe with one thing changed, on the same tenth, for twice as long: where neighbors begin to be right.
_CHANGES: dict[str, tuple[str, Settings]] = {
    "nothing": ("as it is", {}),
    "flip": ("no flip", {"augment.options.flip": "false"}),
    "gradual": ("trusted share grows every round", {"discovery.gradual": "false"}),
    "refresh": ("neighbors and trusted share anew every round", {"discovery.refresh": "round", "discovery.gradual": "false"}),
    "restart": ("a cosine for every round", {"discovery.restart": "true"}),
    "mutual": ("mutual neighbors only", {"discovery.mutual": "true"}),
    "views": ("two views, half the epochs", {"views": "2", "epochs": str(SHORT * ROUNDS), **_ALONE}),
    "weighted": ("weighted by entropy instead of selected", {"objective.options.weighted": "true"}),
}
_FEW = {"one": "0.01", "ten": "0.1"}  # shares of the labels
_TRIED = 4 * SHORT * ROUNDS  # epochs, where the longest trainings choose
_TWICE_LONG = {"epochs": str(2 * SHORT * ROUNDS)}
_ALEX = {**_LARGER, **_COMPILED, **_TWICE_LONG, "network.name": "alexnet"}
_SETS = {"alex10": "cifar10", "alex100": "cifar100", "alexsvhn": "svhn"}
_PHOTOGRAPHS = {"network.options.stem": "large", "batch_size": "128", "optimizer.learning_rate": "0.03", "data.size": "128"}
_BIRDS = {**_LARGER, **_PHOTOGRAPHS, "epochs": str(8 * SHORT * ROUNDS)}
_METHODS: dict[str, tuple[str, Settings]] = {
    "and": ("AND", {}),
    "instance": ("Instance", _INSTANCES),
    "cluster": ("DeepCluster", {**_CLUSTERS, **_CLIPPED}),
}

TRIALS = (
    _trial("base", _BASE, keep="rounds", seeds=3, voters=tuple(_FEW.values())),  # most rows of this length are compared with it
    _trial("twice", _BASE, _TWICE_LONG),  # as long as the AlexNet stand-in that it is compared with
    _trial("random", _BASE, {"discovery.instance_round": "false"}),
    _trial("oneoff", _BASE, {"discovery.one_off": "true"}),
    _trial("goal12", _BETTER, _LONG, {"epochs": "250"}, tune=_DECAYS, seeds=3),
    *(_trial(f"k{k}", _BASE, {"objective.options.k": str(k)}) for k in SIZES[1:]),
    *(_trial(f"r{rounds}", _BASE, {"discovery.rounds": str(rounds)}) for rounds in (1, 2, 8)),
    *(_trial(f"opt-{name}", _BASE, settings, held_out=True) for name, (_, settings) in _OPTIONS.items()),
    *(
        _trial(f"change-{name}", _BETTER, CHOSEN, _COMPILED, _TWICE_LONG, settings, held_out=True)
        for name, (_, settings) in _CHANGES.items()
    ),
    _trial("each", _BASE, _EACH, voters=tuple(_FEW.values())),
    _trial("instance", _BASE, _INSTANCES),
    _trial("cluster", _BASE, _CLUSTERS),
    _trial("noise", _BASE, _NOISE),
    *(_trial(f"semi-{name}", _BASE, {"discovery.labeled": share}) for name, share in _FEW.items()),
    *(_trial(f"semi-each-{name}", _BASE, _EACH, {"discovery.labeled": share}) for name, share in _FEW.items()),
    *(
        _trial(f"{short}-{name}", _ALEX, settings, data=data, probe="conv5")
        for short, data in _SETS.items()
        for name, (_, settings) in _METHODS.items()
    ),
    *(_trial(f"cub-{name}", _BIRDS, _METHODS[name][1], data="cub-200-2011") for name in ("and", "instance")),
    *(_trial(f"dogs-{name}", _BIRDS, _METHODS[name][1], data="dogs") for name in ("and", "instance")),
    _trial("e50", _RELEASED, _LONG, {"epochs": "250"}),
    _trial("goal25", _BETTER, CHOSEN, _LONG, {"epochs": "500"}, seeds=3),
    _trial("alone12", _BETTER, CHOSEN, _LONG, _INSTANCES, {"epochs": "250"}),
    _trial("alone25", _BETTER, CHOSEN, _LONG, _INSTANCES, {"epochs": "500"}, seeds=3),
    _trial("alone-released", _RELEASED, _LONG, _INSTANCES, {"epochs": "250"}),
    _trial("best", _BETTER, CHOSEN, _LONG, {"epochs": "1000"}, tune=_NEIGHBORS, tuning_epochs=_TRIED),
    _trial("most", _BETTER, CHOSEN, _LONG, {"batch_size": "512", "epochs": "1600"}, tune=_RATES, tuning_epochs=_TRIED),
    _trial("longest", _BETTER, CHOSEN, _LONG, {"batch_size": "512", "epochs": "2000"}),  # its rate is the one that the row above chose
    _trial("e100", _RELEASED, _LONG, {"epochs": "500"}),
    _trial("e200", _RELEASED, _LONG, {"epochs": "1000"}),
    _trial("deep-e200", _RELEASED, _LONG, {"epochs": "1000", "network.name": "resnet101"}),
)

_KNN = "weighted-nn"
_SAID = f"{SHORT} epochs a round; printed: 200"
_LENGTHS = {  # the released recipe at the printed lengths: what more epochs give
    "ResNet-18, 50": ("e50", 83.3, ("our recipe", "goal12")),
    "ResNet-18, 100": ("e100", 84.8, ("our recipe", "goal25")),
    "ResNet-18, 200": ("e200", 86.3, ("our recipe, each near", "best")),
}
_LONGER = tuple(
    Ablation(f"{row.split()[-1]} epochs a round, {recipe}", f"and-{trial}", _KNN)
    for row, (released, _, ours) in _LENGTHS.items()
    for recipe, trial in (("as released", released), ours)
)
_TWICE = Ablation(f"{2 * SHORT} epochs a round", "and-twice", _KNN)
_AUTHORS = "the authors' protocol: best epoch of the last round on the test part, against the bank"


def _epochs(name: str, a_round: int) -> str:
    """How long a method of table 1 was trained: those without rounds as long as all rounds together."""
    return f"{a_round} epochs a round" if name == "and" else f"{a_round * ROUNDS} epochs"


def _accuracy(table: str, row: str, trial: str | None, printed: float | None = None, figure: str = _KNN, **more: object) -> Cell:
    named = None if trial is None else f"and-{trial}"
    return Cell(f"[huang2019and] {table}", row, printed, "accuracy %", named, figure, **more)  # type: ignore[arg-type]


def _goals() -> tuple[Cell, ...]:
    table = "beyond the paper: CIFAR-10 without labels, within so many images through the network"
    found = []
    for row, trial, wanted, images, seconds, note in (
        ("12.5 M images, 5 minutes", "goal12", 83.3, 12.5, 300.0, ""),
        ("25 M images, 10 minutes", "goal25", 86.5, 25.0, 600.0, ""),
        ("50 M images", "best", 89.2, None, None, "each neighbor near, not any: chosen by short trainings, on held-out images"),
        ("80 M images", "most", 89.2, None, None, "batches of 512; the rate chosen by short trainings, on held-out images"),
        ("100 M images", "longest", 89.2, None, None, "as 80 M, and its rate"),
    ):
        found.append(_accuracy(table, row, trial, column="weighted kNN", wanted=wanted, note=note))
        for unit, figure, most in (("million images", "images", images), ("seconds", "seconds", seconds)):
            if figure == "seconds" and most is None:  # then other runs may go beside it
                continue
            title = f"[huang2019and] {table}"
            found.append(Cell(title, row, None, unit, f"and-{trial}", figure, unit.split()[-1], wanted=most))  # type: ignore[arg-type]
    alone = "the first row's recipe without neighbors: what discovery is worth there"
    found.append(_accuracy(table, "12.5 M images, Instance", "alone12", column="weighted kNN", note=alone))
    return tuple(found)


def _lengths() -> tuple[Cell, ...]:
    table = "table 4 and section 4.2: CIFAR-10, epochs a round"
    note = f"AlexNet stand-in, {_epochs('and', 2 * SHORT)}"
    last = {"column": "last epoch, recomputed"}
    others = (Ablation("ResNet-18", "and-twice", _KNN), Ablation("Instance", "and-alex10-instance", _KNN))
    found = [_accuracy(table, "AlexNet, 200", "alex10-and", 74.8, note=note, ablations=others, **last)]
    note = f"our schedule, as long as the AlexNet's: {_epochs('and', 2 * SHORT)}"
    found.append(_accuracy(table, "ResNet-18, 200, run as briefly", "twice", 86.3, note=note, ablations=_LONGER, **last))
    for row, (trial, printed, better) in {**_LENGTHS, "ResNet-101, 200": ("deep-e200", 88.4, None)}.items():
        changed = (Ablation(f"{better[0]}, as many epochs", f"and-{better[1]}", _KNN),) if better else ()
        found.append(_accuracy(table, row, trial, printed, ablations=changed, **last))
        found.append(_accuracy(table, row, trial, printed, "released protocol", column="released protocol", note=_AUTHORS))
    alone = f"the released recipe without neighbors, {_epochs('', 50)}: what discovery is worth there"
    found.append(_accuracy(table, "ResNet-18, Instance", "alone-released", None, note=alone, **last))
    return tuple(found)


def _table_1() -> tuple[Cell, ...]:
    table = "table 1: AlexNet"
    knn = {"Split-Brain": (11.7, 1.3, 19.7), "Counting": (41.7, 15.9, 43.4), "DeepCluster": (62.3, 22.7, 84.9)}
    knn |= {"Instance": (60.3, 32.7, 79.8), "AND": (74.8, 41.5, 90.9)}
    linear = {"Split-Brain": (67.1, 39.0, 77.3), "Counting": (50.9, 18.2, 63.4), "DeepCluster": (77.9, 41.9, 92.0)}
    linear |= {"Instance": (70.1, 39.4, 89.3), "AND": (77.6, 47.9, 93.7)}
    trials = {row: name for name, (row, _) in _METHODS.items()}
    found = []
    for how, printed, figure in (("weighted kNN", knn, _KNN), ("linear, conv5", linear, "linear conv5")):
        for row, values in printed.items():
            for short, data, value in zip(_SETS, ("CIFAR-10", "CIFAR-100", "SVHN"), values, strict=True):
                trial = f"{short}-{trials[row]}" if row in trials else None
                length = _epochs(trials.get(row, ""), 2 * SHORT)
                clipped = "; gradients clipped to 1, unlike the other rows" if row == "DeepCluster" else ""
                note = "" if trial is None else f"a stand-in for the AlexNet that was never released; {length}{clipped}"
                others = tuple(Ablation(other, f"and-{short}-{name}", figure) for other, name in trials.items() if trial and other != row)
                found.append(_accuracy(table, f"{row}, {how}", trial, value, figure, column=data, note=note, ablations=others))
    return tuple(found)


def _table_3() -> tuple[Cell, ...]:
    table, found = "table 3: fine classes, ResNet-18", []
    for short, data, values in (("cub", "CUB-200", (11.6, 14.4)), ("dogs", "Stanford Dogs", (27.0, 32.3))):
        for name, printed in zip(("instance", "and"), values, strict=True):
            note, other = f"128 px, {_epochs(name, 8 * SHORT)}", "and" if name == "instance" else "instance"
            others = (Ablation(_METHODS[other][0], f"and-{short}-{other}", _KNN),)
            found.append(_accuracy(table, _METHODS[name][0], f"{short}-{name}", printed, column=data, note=note, ablations=others))
    return tuple(found)


def _compared() -> tuple[Cell, ...]:
    """Tables 5 and 6 and figures 4 to 6, all rows at one length."""
    fifth, sixth = "table 5: how the network starts", "table 6: curriculum"
    fourth, rounds = "figure 4: size k of a neighborhood", "figure 5: rounds R"
    noise = f"{SHORT * ROUNDS} epochs in {ROUNDS - 1} rounds; printed: 200 epochs a round; the first neighbors are those of a bank of noise"
    found = [
        _accuracy(fifth, "random", "random", 85.7, note=noise, ablations=(Ablation("instance round", "and-base", _KNN),)),
        _accuracy(fifth, "instance round", "base", 86.3, note=_SAID, ablations=(_TWICE, *_LONGER)),
        _accuracy(sixth, "one-off", "oneoff", 84.2, note=_SAID, ablations=(Ablation("curriculum", "and-base", _KNN),)),
        _accuracy(sixth, "curriculum", "base", 86.3, note=_SAID, ablations=(_TWICE, *_LONGER)),
        *(_accuracy(fourth, f"k = {k}", "base" if k == 1 else f"k{k}", note=_SAID) for k in SIZES),
        *(_accuracy(rounds, f"R = {r}", "base" if r == 4 else f"r{r}", note=f"{SHORT * ROUNDS} epochs in all") for r in (1, 2, 4, 8)),
    ]
    return (*found, *_counted("figure 6: trusted neighborhoods of round r", "base", _SAID))


def _counted(table: str, trial: str, note: str, prefix: str = "") -> tuple[Cell, ...]:
    """How many trusted neighborhoods of every round are of one class, and how many are not."""
    return tuple(
        Cell(f"[huang2019and] {table}", f"r = {number}", None, "points", f"and-{trial}", f"round {number} {word}", prefix + word, note=note)
        for number in range(1, ROUNDS)
        for word in ("consistent", "inconsistent")
    )


def _counted_longer() -> tuple[Cell, ...]:
    """Figure 6 where neighbors are mostly right, as in the paper: at 6 epochs a round most of them are wrong."""
    table = "figure 6 at 50 epochs a round"
    ours = "our recipe, which looks anew in every epoch: those of the round's last"
    return (*_counted(table, "e50", "", "released: "), *_counted(table, "goal12", ours, "ours: "))


def _beyond() -> tuple[Cell, ...]:
    options = "beyond the paper: options, on a validation part"
    changes = "beyond the paper: the goals' recipe with one thing changed, on a validation part"
    others = "baselines and some labels, CIFAR-10, ResNet-18"
    rounds, whole = _epochs("and", SHORT), _epochs("", SHORT)
    few = f"{rounds}; only the labeled points vote"

    def length(settings: Settings, a_round: int) -> str:
        return _epochs("and", a_round // 2 if "views" in settings else a_round)

    def note(settings: Settings) -> str:
        changed = {leaf: value for leaf, value in settings.items() if leaf not in ("compile", "epochs")}  # those follow from two views
        taken = bool(changed) and changed.items() <= {**_BETTER, **CHOSEN}.items()
        return length(settings, SHORT) + ("; in the goals' recipe" if taken else "")

    return (
        *(_accuracy(options, row, f"opt-{name}", note=note(settings)) for name, (row, settings) in _OPTIONS.items()),
        *(_accuracy(changes, row, f"change-{name}", note=length(settings, 2 * SHORT)) for name, (row, settings) in _CHANGES.items()),
        _accuracy(others, "Instance", "instance", note=whole),
        _accuracy(others, "DeepCluster, 100 clusters", "cluster", note=whole),
        _accuracy(others, "NAT", "noise", note=whole),
        _accuracy(others, "AND", "base", note=rounds),
        *(
            _accuracy(others, f"AND, {float(share):.0%} of the labels, {how}".replace("%", " %"), trial, None, figure, note=few)
            for name, share in _FEW.items()
            for how, trial, figure in (
                ("used", f"semi-{name}", _KNN),
                ("left alone", "base", f"{_KNN} of {share}"),
                ("used, each near", f"semi-each-{name}", _KNN),
                ("left alone, each near", "each", f"{_KNN} of {share}"),
            )
        ),
    )


CELLS = (*_goals(), *_lengths(), *_table_1(), *_table_3(), *_compared(), *_counted_longer(), *_beyond())
