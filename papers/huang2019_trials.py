"""The trainings behind the tables and figures of [huang2019and], and those beyond the paper."""

from collections.abc import Mapping

from nearkin.train.recipes import RECIPES
from papers.cell import Keep, Settings, Trial

SHORT = 6  # epochs per round where rows are only compared with each other; printed is 200
LONG = 50  # the same where most neighbors are right, as in the paper
PRINTED = 200
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
BETTER = {
    **_LARGER,
    "augment.options.flip": "true",
    "augment.options.hue": "0.1",
    "discovery.refresh": "epoch",
    "discovery.gradual": "true",
    "discovery.restart": "false",
}
_DECAYS = {"optimizer.weight_decay": ("5e-4", "1e-3")}  # tried with the whole recipe, at twice the length
CHOSEN = {"optimizer.weight_decay": "1e-3"}  # the choice of goal12
_FIRST = "as 12.5 M images"
_FIRST_RECIPE = "as 10 M views"
_COMPILED = {"compile": "true"}  # once in a process for all trials of one network and batch size
_ALONE = {"compile": "false"}  # no other trial shares this network and batch size: compiling would take longer than it saves
_LONG = {**_COMPILED, "checkpoint_seconds": "45"}  # so that an interrupted run can resume
_BASE = {**_LARGER, **_COMPILED, "epochs": str(SHORT * ROUNDS)}
_AT = {SHORT: _BASE, LONG: {**_LARGER, **_LONG, "epochs": str(LONG * ROUNDS)}}
_INSTANCES = {"objective.name": "instance_discrimination"}
_CLUSTERS = {"objective.name": "deep_cluster", "network.normalize": "false", **_ALONE}
_CLIPPED = {"optimizer.clip": "1.0"}  # the embeddings are unbounded: without clipping those of the stand-in explode in the first 30 steps
_NOISE = {"objective.name": "noise_as_targets"}
_EACH = {"objective.options.quantifier": "each"}
_NEIGHBORS = {"objective.options.quantifier": ("any", "each")}  # tuned by the training of 50 M images
_RATES = {"optimizer.learning_rate": ("0.06", "0.12")}  # tuned with batches of 512, which process more images per second


def _of(settings: Settings) -> Settings:
    """The settings without those of other objectives: options of the bank, and of discovery."""
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
    selected: str = "",
    figure: str = "weighted-nn",
) -> Trial:
    merged: dict[str, str] = {}
    for some in settings:
        merged |= some
    more = {"seeds": seeds, "held_out": held_out, "probe": probe, "voters": voters, "keep": keep, "selected": selected}
    length = tuning_epochs if tune else 0
    return Trial(f"and-{name}", data, _of(merged), tune or {}, length, figure=figure, **more)  # type: ignore[arg-type]


# Beyond the paper, each against the same base, on a tenth of the training part that is left out.
OPTIONS: dict[str, tuple[str, Settings]] = {
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
# Our recipe with one thing changed, on the same tenth, for twice as long.
CHANGES: dict[str, tuple[str, Settings]] = {
    "nothing": ("as it is", {}),
    "flip": ("no flip", {"augment.options.flip": "false"}),
    "gradual": ("trusted share grows every round", {"discovery.gradual": "false"}),
    "refresh": ("neighbors and trusted share renewed every round", {"discovery.refresh": "round", "discovery.gradual": "false"}),
    "restart": ("a cosine for every round", {"discovery.restart": "true"}),
    "mutual": ("mutual neighbors only", {"discovery.mutual": "true"}),
    "views": ("two views, half the epochs", {"views": "2", "epochs": str(SHORT * ROUNDS), **_ALONE}),
    "weighted": ("weighted by entropy instead of selected", {"objective.options.weighted": "true"}),
}
FEW = {"one": "0.01", "ten": "0.1"}  # shares of the labels
_TRIED = 4 * SHORT * ROUNDS  # epochs of the tuning runs of the longest trainings
_TWICE_LONG = {"epochs": str(2 * SHORT * ROUNDS)}
_ALEX = {**_LARGER, **_COMPILED, **_TWICE_LONG, "network.name": "alexnet"}
SETS = {"alex10": "cifar10", "alex100": "cifar100", "alexsvhn": "svhn"}
_AS_PRINTED = {**_LONG, "epochs": str(PRINTED * ROUNDS), "discovery.restart": "false"}  # and one schedule for all
_PHOTOGRAPHS = {"network.options.stem": "large", "batch_size": "128", "optimizer.learning_rate": "0.03", "data.size": "128"}
_BIRDS = {**_LARGER, **_PHOTOGRAPHS, "epochs": str(8 * SHORT * ROUNDS)}
METHODS: dict[str, tuple[str, Settings]] = {
    "and": ("AND", {}),
    "instance": ("Instance", _INSTANCES),
    "cluster": ("DeepCluster", {**_CLUSTERS, **_CLIPPED}),
}

# Of tables 5 and 6 and figures 4 and 5; with none of them it is the base.
COMPARED: dict[str, Settings] = {
    "random": {"discovery.instance_round": "false"},
    "oneoff": {"discovery.one_off": "true"},
    **{f"k{k}": {"objective.options.k": str(k)} for k in SIZES[1:]},
    **{f"r{rounds}": {"discovery.rounds": str(rounds)} for rounds in (1, 2, 8)},
}


def compared(name: str, a_round: int) -> str:
    """The name of one of these at a length, without its beginning."""
    return name if a_round == SHORT else f"long-{name}"


# What `nearkin train DATA --for discovery` does, as it is, with as many views through a network as the other ways to learn.
_RECIPE = {**RECIPES["discovery"].settings, **_LONG, "precision": "bfloat16", "least_steps": "0"}
VIEWS = 3  # of an image in one of its epochs: two for the student, one for the teacher
ELSEWHERE: dict[str, tuple[str, str, int, Settings]] = {  # words, data, epochs of the recipe, settings
    "cifar100": ("CIFAR-100", "cifar100", 30, {}),
    "mnist": ("MNIST", "mnist", 14, {}),
    "omniglot": ("Omniglot, unseen alphabets", "omniglot", 43, {}),
    "cub": ("CUB-200, 32 px", "cub-200-2011", 100, {"data.size": "32"}),
}
WAYS: dict[str, tuple[str, Settings]] = {
    "recipe": ("a teacher's neighbors (--for discovery)", _RECIPE),
    "rounds": ("discovery in rounds", {**BETTER, **CHOSEN, **_LONG}),
    "instance": ("instance discrimination", {**BETTER, **CHOSEN, **_LONG, **_INSTANCES}),
}


def figures_of(data: str) -> dict[str, str]:
    """Figures of data without labels, the nearest image last. Omniglot's test part has classes of its own."""
    return {"1-NN": "recall@1"} if data == "omniglot" else {"weighted kNN": "weighted-nn", "1-NN": "1-nn"}


def nearest_of(data: str) -> str:
    """The figure of the nearest image."""
    return figures_of(data)["1-NN"]


def _elsewhere(short: str, way: str) -> Trial:
    _, data, epochs, settings = ELSEWHERE[short]
    length = {"epochs": str(epochs if way == "recipe" else VIEWS * epochs)}
    return _trial(f"{short}-by-{way}", WAYS[way][1], length, settings, data=data, seeds=2, figure=nearest_of(data))


TRIALS = (
    _trial("base", _BASE, keep="rounds", seeds=3, voters=tuple(FEW.values())),  # most rows of this length are compared with it
    _trial("twice", _BASE, _TWICE_LONG),  # as long as the AlexNet stand-in it is compared with
    *(_trial(name, _AT[SHORT], settings) for name, settings in COMPARED.items()),
    _trial("goal12", BETTER, _LONG, {"epochs": "250"}, tune=_DECAYS, seeds=3),
    *(_trial(f"opt-{name}", _BASE, settings, held_out=True) for name, (_, settings) in OPTIONS.items()),
    *(_trial(f"change-{name}", BETTER, CHOSEN, _COMPILED, _TWICE_LONG, settings, held_out=True) for name, (_, settings) in CHANGES.items()),
    _trial("each", _BASE, _EACH, voters=tuple(FEW.values())),
    _trial("instance", _BASE, _INSTANCES),
    _trial("cluster", _BASE, _CLUSTERS),
    _trial("noise", _BASE, _NOISE),
    *(_trial(f"semi-{name}", _BASE, {"discovery.labeled": share}) for name, share in FEW.items()),
    *(_trial(f"semi-each-{name}", _BASE, _EACH, {"discovery.labeled": share}) for name, share in FEW.items()),
    *(
        _trial(f"{short}-{name}", _ALEX, settings, data=data, probe="conv5")
        for short, data in SETS.items()
        for name, (_, settings) in METHODS.items()
    ),
    *(_trial(f"cub-{name}", _BIRDS, METHODS[name][1], data="cub-200-2011") for name in ("and", "instance")),
    *(_trial(f"dogs-{name}", _BIRDS, METHODS[name][1], data="dogs") for name in ("and", "instance")),
    _trial("e50", _RELEASED, _LONG, {"epochs": "250"}),
    _trial("goal25", BETTER, CHOSEN, _LONG, {"epochs": "500"}, seeds=3, selected=_FIRST),
    _trial("alone12", BETTER, CHOSEN, _LONG, _INSTANCES, {"epochs": "250"}, selected=_FIRST),
    _trial("alone25", BETTER, CHOSEN, _LONG, _INSTANCES, {"epochs": "500"}, seeds=3, selected=_FIRST),
    _trial("alone80", BETTER, CHOSEN, _LONG, _INSTANCES, {"batch_size": "512", "epochs": "1600"}, selected="as 80 M images"),
    _trial("alone-released", _RELEASED, _LONG, _INSTANCES, {"epochs": "250"}),
    _trial("best", BETTER, CHOSEN, _LONG, {"epochs": "1000"}, tune=_NEIGHBORS, tuning_epochs=_TRIED),
    _trial("most", BETTER, CHOSEN, _LONG, {"batch_size": "512", "epochs": "1600"}, tune=_RATES, tuning_epochs=_TRIED),
    _trial(
        "longest", BETTER, CHOSEN, _LONG, {"batch_size": "512", "epochs": "2000"}, selected="as 80 M images"
    ),  # its rate is the choice of the row above
    _trial("e100", _RELEASED, _LONG, {"epochs": "500"}),
    *(_elsewhere(short, way) for way in WAYS for short in ELSEWHERE),
    *(
        Trial(f"and-{short}-raw", data, settings, method="raw", seeds=1, figure=nearest_of(data))
        for short, (_, data, _, settings) in ELSEWHERE.items()
    ),
    *(_trial(compared(name, LONG), _AT[LONG], settings, seeds=3) for name, settings in {"base": {}, **COMPARED}.items()),
    *(
        _trial(f"printed-{short}-{name}", _ALEX, _AS_PRINTED, settings, data=SETS[short], probe="conv5")
        for short in ("alex10", "alex100")
        for name, (_, settings) in METHODS.items()
    ),
    *(_trial(f"printed-cub-{name}", _BIRDS, _AS_PRINTED, METHODS[name][1], data="cub-200-2011", seeds=2) for name in ("and", "instance")),
    _trial("recipe25", _RECIPE, seeds=3, selected=_FIRST_RECIPE),
    _trial("recipe80", _RECIPE, {"epochs": "533"}, selected=_FIRST_RECIPE),
    _trial("e200", _RELEASED, _LONG, {"epochs": "1000"}),
    _trial("deep-e200", _RELEASED, _LONG, {"epochs": "1000", "network.name": "resnet101"}),
)
