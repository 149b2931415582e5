"""From a Run and its data to the parts of a training: network, objective, optimizer, schedule, sampler, loader, step."""

import hashlib
from dataclasses import replace
from typing import Any, NamedTuple, cast

import torch
import torch.distributed as dist
from torch import Tensor, nn

from nearkin import data as sources
from nearkin.compose.validation import check_choice, check_share
from nearkin.data import preprocess, samplers
from nearkin.data.dataset import WHOLE, Dataset
from nearkin.data.hard_samplers import Grouped, HardClasses, NearNeighbors
from nearkin.data.loader import Loader
from nearkin.data.sample import names_by_split, sample_of
from nearkin.data.sources.sharded import ShardRows
from nearkin.data.texts import Texts
from nearkin.models.catalog import channels_last, loads_itself
from nearkin.models.folder import build_network
from nearkin.models.weights import load_weights
from nearkin.train import ranks
from nearkin.train.config import DiscoveryChoice, NetworkChoice, Run, check_options
from nearkin.train.features import OnFeatures
from nearkin.train.inputs import Prepare, augmentation, preparation
from nearkin.train.objective_choice import BY_SUPERVISION, Built, build, objective_for, without_labels
from nearkin.train.optimizers import Schedule, make_optimizer, make_schedule
from nearkin.train.rank_shards import divide, reads_own
from nearkin.train.rounds import labels_used
from nearkin.train.spread_bank import spread
from nearkin.train.step import CapturedStep, Step
from nearkin.train.teacher import Teacher
from nearkin.train.tuning import add_checkpoints, blocks_of, check_tune, choose_trained


class Parts(NamedTuple):
    """Everything a training loop touches."""

    network: nn.Module  # what is trained
    whole: nn.Module  # what is saved: the same, or a frozen body with the head that is trained
    objective: Built
    optimizer: torch.optim.Optimizer
    schedule: Schedule
    sampler: samplers.Sampler
    loader: Loader
    step: Step
    about: dict[str, Any]  # becomes model.json


class Cut(NamedTuple):
    """The data in their parts; ids of the training part are 0..n-1."""

    train: Dataset
    validation: Dataset | None
    test: Dataset | None
    split: dict[str, Any]  # becomes split.json


def cut(run: Run, data: Dataset, contents: Dataset | None = None) -> Cut:
    """The parts of the data: as they bring them, and split by the run's rule where they do not. A leak is an error.

    `contents` are the same points as they were stored, where `data` are computed from them: two files are one only if their bytes are.
    Of data without any labels nothing is held out unless they say so: nothing could be measured on it.
    """
    choice = run.data
    if choice.validation + choice.test >= 1:
        raise ValueError(
            f"data.validation ({choice.validation}) and data.test ({choice.test}) leave nothing to train on: their sum must be below 1"
        )
    if data.point_labels is None and data.labels is None and choice.split == "given":
        choice = replace(choice, validation=0.0, test=0.0)
    kinds: dict[str, Any] = {"stratified": "stratified", "group": "group", "classes": "unseen classes"}
    how = kinds.get(choice.split)
    written: dict[str, Any] = {"how": "given"}
    if set(data.parts) == {WHOLE} or choice.split != "given":
        shares = {"train": 1 - choice.validation - choice.test, "validation": choice.validation, "test": choice.test}
        shares = {name: share for name, share in shares.items() if share > 0}
        if len(shares) == 1:
            data, written = data.with_split(["train"] * len(data)), {"how": "nothing is held out", "points": len(data)}
        else:
            made = sources.partition(data, how, shares, run.seed)
            data, written = data.with_split(made.names), made.as_dict()
    elif "validation" not in data.parts and choice.validation > 0:
        train = data.part("train")
        made = sources.partition(train, how, {"train": 1 - choice.validation, "validation": choice.validation}, run.seed)
        names = data.split.astype("<U10")
        names[data.rows(train.ids).numpy()] = made.names
        data, written = data.with_split(names), {"how": "given, with a validation part cut from train", "cut": made.as_dict()}
    if choice.leaks == "error" and data.table is None:  # rows of a table may be equal by chance
        sources.check_leaks(data if contents is None else contents.with_split(data.split))
    written["sample"] = sample_of(data if contents is None else contents)
    if choice.on_error == "skip" and (own := names_by_split(data)):  # damaged files, which an index meets again, have no row here
        written["names"] = own
    parts = {name: data.part(name) for name in data.parts}
    return Cut(parts["train"].renumbered(), parts.get("validation"), parts.get("test"), written)


class Whole(NamedTuple):
    """The network that a run builds, and what model.json says of it."""

    network: nn.Module
    about: dict[str, Any]


def build_whole(run: Run, train: Dataset, device: torch.device) -> Whole:
    """The network with its first weights, drawn from the run's seed or loaded."""
    check_tune(run.network.tune)
    torch.manual_seed(run.seed)
    about = describe(run, train)
    network = build_network(about)
    if run.network.statistics == "kept" and run.network.weights is None:
        raise ValueError("network.statistics=kept goes by the statistics that weights came with, and there are none: set network.weights")
    if run.network.weights is not None and not loads_itself(run.network.name):
        load_weights(network, run.network.weights)
    if run.network.tune == "head" and not loads_itself(run.network.name):
        _freeze_body(network)
    choose_trained(network, run.network.tune)
    return Whole(channels_last(network.to(device)), about)


def assemble(
    run: Run, train: Dataset, device: torch.device, whole: Whole | None = None, *, features: bool = False, views: Tensor | None = None
) -> Parts:
    """All parts. With `features`, the points are features of the frozen body, and only the head of `whole` is trained.

    `views` (n, v, f) are the features of several views of each point, of which a step takes one.
    """
    if run.optimizer.name == "conjugate_gradient" and run.references != "training_set":
        raise ValueError("optimizer.name=conjugate_gradient searches along lines of one function: it needs references=training_set")
    _check_codes(run)
    divide(train)
    whole = whole or build_whole(run, train, device)
    about = whole.about
    augmented = () if views is not None else augmentation(run, train, about["objective"])
    network = OnFeatures(cast(Any, whole.network).head) if features else whole.network
    _check_recomputed(run, network)
    if run.network.checkpointing and not features:
        add_checkpoints(network)
    name = about["objective"]
    objective = build(
        name,
        run.objective.options,
        num_classes=max(len(train.classes), 1 + int(train.labels.max()) if train.labels is not None else 0),
        dimension=getattr(getattr(network, "head", None), "trained_dimension", run.network.dimension),
        size=len(train),
        labels=labels_used(run, train),
        unit_length=run.network.normalize,
        steps=run.epochs * max(len(train) // run.batch_size, 1),
    ).to(device)
    _check_teacher(run, objective, name, augmented)
    _check_supervision(run, train, objective, name)
    about |= {"metric": "hamming"} if run.codes.learn else deployed(objective)
    sampler = _sampler(run, train, objective)
    _check_statistics(run, network, sampler.batch, about["network"]["name"])
    spread(objective)
    optimizer = make_optimizer(run.optimizer, _groups(run, network, objective), device)
    schedule = make_schedule(run.schedule, run.epochs, len(sampler) if run.references == "objective" else 1)
    resident = -1 if reads_own(train) else int(run.data.resident_gigabytes * 2**30)
    loader = Loader(train, device=device, resident_bytes=resident)
    generator = torch.Generator(device).manual_seed(run.seed + 1)
    step = Step(
        network,
        objective,
        optimizer,
        read=_reader(loader) if views is None else _view_reader(views.to(device), generator),
        answers=None if train.point_labels is None else train.point_labels.to(device),
        prepare=Prepare(() if features else preprocess.restore(about["prepare"]), train.kind),
        augment=augmented,
        generator=generator,
        bfloat16=run.precision == "bfloat16",
        clip=run.optimizer.clip,
        compiled=run.compile,
        pull=run.codes.pull if run.codes.learn else None,
        views=run.views,
        teacher=_teacher(run, network, objective),
    )
    return Parts(network, whole.network, objective, optimizer, schedule, sampler, loader, step, about)


def captured(run: Run, parts: Parts) -> Step | CapturedStep:
    """The step as a CUDA graph where that is possible, otherwise the step itself."""
    cuda = parts.step.generator.device.type == "cuda"
    possible = (
        not run.chunk
        and not run.network.checkpointing
        and parts.loader.resident is not None
        and parts.about["kind"] != "texts"  # their encoders read the mask of tokens back to the host
        and ranks.count() == 1
        and run.references == "objective"
    )
    if cuda and run.capture and possible and parts.objective.recordable(run.batch_size * run.views):
        return CapturedStep(parts.step, run.batch_size)
    return parts.step


def describe(run: Run, train: Dataset) -> dict[str, Any]:
    """What model.json says, but for the metric, which the objective decides."""
    name, why = objective_for(train, run.objective.name)
    network = run.network.name
    if network == "auto":
        network = "convnet" if train.kind == "images" else "mlp"
    return {
        "format": 1,
        "kind": train.kind,
        "shape": list(train.shape),
        **_framing(run, train),
        **_tokenizer(train),
        "classes": list(train.classes),
        "targets": list(train.target_names),
        "supervision": train.supervision,
        "objective": name,
        "why": why,
        "network": {
            "name": network,
            "dimension": run.network.dimension,
            "normalize": run.network.normalize,
            "options": {**run.network.options, **_of_other_libraries(run)},
        },
        "prepare": _agreed(run, train),
    }


def _framing(run: Run, train: Dataset) -> dict[str, Any]:
    """How image files are resized, where it differs from the plain resize to the shape."""
    if train.kind != "images" or (run.data.crop, run.data.interpolation) == (1.0, "bilinear"):
        return {}
    return {"framing": {"crop": run.data.crop, "interpolation": run.data.interpolation}}


def _tokenizer(train: Dataset) -> dict[str, Any]:
    """The hash of the tokenizer, which tells cached features and indexes of one from those of another."""
    if not isinstance(train.inputs, Texts) or train.inputs.tokenizer is None:
        return {}
    return {"tokenizer": hashlib.sha256(train.inputs.tokenizer.content().encode()).hexdigest()}


def _of_other_libraries(run: Run) -> dict[str, Any]:
    """Bodies of timm and torchvision load and freeze themselves, since the names of their weights are their own."""
    if not loads_itself(run.network.name):
        return {}
    return {"weights": run.network.weights, "frozen": run.network.tune in ("none", "head")}


def deployed(objective: Built) -> dict[str, Any]:
    """What model.json says of the affinity: the metric, and the temperature where a softmax was trained at one."""
    metric, temperature = objective.deployment()
    return {"metric": metric, **({} if temperature is None else {"temperature": temperature})}


def _agreed(run: Run, train: Dataset) -> Any:
    """The preparation in words. Of shards the first rank goes through all of them for it, so that the others need not."""
    agreed = [preprocess.describe(preparation(run, train)) if ranks.is_first() or not reads_own(train) else None]
    if reads_own(train):
        dist.broadcast_object_list(agreed)
    return agreed[0]


def _check_supervision(run: Run, train: Dataset, objective: Built, name: str) -> None:
    """Refuse labels of another kind, missing classes, and options of discovery that the objective cannot use."""
    learned = objective.supervision or train.supervision
    if learned not in (train.supervision, "ids"):
        fits = BY_SUPERVISION[train.supervision][0]
        raise ValueError(
            f"objective {name} learns from {learned}, but {train.name} has {train.supervision}: use {fits}, or leave it at auto"
        )
    if train.partly_labeled and not without_labels(objective):
        assert train.labels is not None
        missing = int((train.labels < 0).sum())
        raise ValueError(
            f"{missing:,} of the {len(train):,} training points of {train.name} have no class, and {name} needs one for each; "
            "use objective.name=neighborhood_discovery, or leave those points out"
        )
    if not objective.discovers:
        usual = DiscoveryChoice(released_protocol=run.discovery.released_protocol)
        for leaf, value in vars(run.discovery).items():
            if value != getattr(usual, leaf):
                fix = f"use objective.name=neighborhood_discovery, or leave it at {getattr(usual, leaf)}"
                raise ValueError(f"discovery.{leaf} ({value}) is an option of neighborhood_discovery, not of {name}; {fix}")
    bank = getattr(getattr(objective, "references", None), "per_sample", False)
    if run.discovery.released_protocol and not bank:
        fix = "use neighborhood_discovery or instance_discrimination, or leave it false"
        raise ValueError(f"discovery.released_protocol (true) compares with a memory bank, but {name} has none; {fix}")


SAMPLERS = {
    "shuffled": samplers.Shuffled,
    "per_class": samplers.PerClass,
    "class_balanced": samplers.ClassBalanced,
    "grouped": Grouped,
    "hard_classes": HardClasses,
    "near_neighbors": NearNeighbors,
}
_FILLED = ("size", "batch", "labels", "groups", "seed", "strata", "near", "table")  # set by the data and the run


def _sampler(run: Run, train: Dataset, objective: Built) -> samplers.Sampler:
    name, options, batch, seed = run.sampler.name, run.sampler.options, run.batch_size, run.seed
    name = "shuffled" if name == "auto" else name
    check_choice("sampler", name, SAMPLERS)
    check_options(f"sampler {name}", options, SAMPLERS[name], filled=_FILLED)
    if name == "shuffled":
        in_batch = getattr(getattr(objective, "references", None), "from_batch", True)
        mixed = in_batch and not without_labels(objective)
        labels = train.labels if mixed and train.supervision == "classes" and len(train) > batch else None
        drop = len(train) > batch and len(train) % batch != 0
        strata = train.inputs.shard_of if isinstance(train.inputs, ShardRows) else None
        mine = {"drop_last": drop, "strata": strata, **options}
        return samplers.Shuffled(len(train), min(batch, len(train)), seed=seed, labels=labels, **mine)
    if name == "near_neighbors":
        return NearNeighbors(torch.full((len(train), 1), -1), min(batch, len(train)), seed=seed, **options)  # until it has looked
    if train.labels is None:
        raise ValueError(f"sampler {name!r} needs classes, and {train.name} has none; use sampler.name=shuffled")
    if name == "per_class":
        return samplers.PerClass(train.labels, batch, seed=seed, **options)
    if name == "hard_classes":
        return HardClasses(train.labels, batch, seed=seed, **options)
    if name == "grouped":
        if train.groups is None:
            raise ValueError(f"sampler 'grouped' needs groups, and {train.name} has none; use sampler.name=per_class")
        return Grouped(train.labels, train.groups, batch, seed=seed, **options)
    return samplers.ClassBalanced(train.labels, batch, seed=seed, **options)


def _check_statistics(run: Run, network: nn.Module, batch: int, name: str) -> None:
    """Batch normalization has something to go by."""
    kept = run.network.statistics == "kept" or run.network.tune == "head"
    if batch * run.views == 1 and not kept and any(isinstance(part, nn.modules.batchnorm._BatchNorm) for part in network.modules()):
        few = f"batch_size ({run.batch_size}) leaves one image a step, and {name} normalizes over the batch"
        raise ValueError(f"{few}: take at least 2, or train on more points")


def _reader(loader: Loader) -> Any:
    def read(ids: Tensor) -> Tensor:
        if loader.resident is not None:
            return loader.resident[ids]  # ids of the training part are its rows
        return next(iter(loader([ids])))[0]

    return read


def _view_reader(views: Tensor, generator: torch.Generator) -> Any:
    def read(ids: Tensor) -> Tensor:
        return views[ids, torch.randint(views.shape[1], (len(ids),), generator=generator, device=views.device)]

    return read


def _check_codes(run: Run) -> None:
    if not run.codes.learn:
        return
    if run.codes.pull < 0:
        raise ValueError(f"codes.pull ({run.codes.pull}) must not be negative")
    if run.network.normalize:
        raise ValueError("codes.learn pushes every output to +-1, which vectors of length 1 cannot reach: set network.normalize=false")


def _check_teacher(run: Run, objective: Built, name: str, augmentation: tuple[Any, ...]) -> None:
    if objective.inertia is None:
        return
    if not augmentation:
        raise ValueError(f"{name} compares two views of every point, which are equal without augmentation; set augment.name")
    usual = Run()
    for setting in ("chunk", "references"):
        if (value := getattr(run, setting)) != (left := getattr(usual, setting)):
            raise ValueError(f"{setting} ({value}) does not go with {name}, which learns from a teacher; leave it at {left}")


def _teacher(run: Run, network: nn.Module, objective: Built) -> Teacher | None:
    if objective.inertia is None:
        return None
    teacher = Teacher(network, objective.inertia)
    set_training(teacher.network, run.network)
    return teacher


def _freeze_body(network: nn.Module) -> None:
    for name, parameter in network.named_parameters():
        parameter.requires_grad_(name.startswith("head."))


def set_training(network: nn.Module, choice: NetworkChoice) -> None:
    """The mode of a training step; a frozen body, and normalization by kept statistics, stay as when they are deployed."""
    network.train()
    for name, module in network.named_modules():
        frozen = choice.tune == "head" and name and not name.startswith("head")
        if frozen or (choice.statistics == "kept" and isinstance(module, nn.modules.batchnorm._BatchNorm)):
            module.eval()


def _body_groups(choice: NetworkChoice, network: nn.Module) -> list[dict[str, Any]]:
    """The parameters of the body, each block with its rate."""
    named = [(name, p) for name, p in network.named_parameters() if p.requires_grad and not name.startswith("head.")]
    if choice.layer_decay == 1.0:
        return [{"params": [p for _, p in named], "rate": choice.rate}]
    check_share("network.layer_decay", choice.layer_decay)
    blocks = blocks_of(getattr(network, "body", network))
    depth = {id(p): at for at, block in enumerate(blocks) for p in block.parameters()}
    groups: dict[int, list[nn.Parameter]] = {}
    at = 0
    for _, parameter in named:  # layers outside the blocks go with the block before them
        at = depth.get(id(parameter), at)
        groups.setdefault(at, []).append(parameter)
    last = len(blocks) - 1
    return [{"params": some, "rate": choice.rate * choice.layer_decay ** (last - at)} for at, some in groups.items()]


def _check_recomputed(run: Run, network: nn.Module) -> None:
    """What is computed a second time must be the same: no layer may mix the points of a chunk, or count a batch twice."""
    if run.chunk and ranks.count() > 1:
        raise ValueError(f"chunk ({run.chunk}) is for one process; several ranks divide the batch already: leave it at 0")
    mixing = any(isinstance(part, nn.modules.batchnorm._BatchNorm) for part in network.modules())
    if not mixing or run.network.statistics == "kept":
        return
    for setting, value in (("chunk", run.chunk), ("network.checkpointing", run.network.checkpointing)):
        if value:
            fix = "set network.statistics=kept"
            raise ValueError(f"{setting} ({str(value).lower()}) would change the statistics of batch normalization; {fix}")


def _groups(run: Run, network: nn.Module, objective: Built) -> list[dict[str, Any]]:
    """Body, head and objective, each with its rate relative to the run's; nothing without parameters."""
    head = [p for name, p in network.named_parameters() if p.requires_grad and name.startswith("head.")]
    groups = [
        *_body_groups(run.network, network),
        {"params": head, "rate": 1.0},
        {"params": list(objective.parameters()), "rate": 1.0},
    ]
    groups = [group for group in groups if group["params"]]
    if not groups:
        raise ValueError("nothing is left to train: the network is frozen and has no head; set network.tune=all")
    return groups
