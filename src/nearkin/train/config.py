"""Run: the frozen configuration of one training, a tree of dataclasses with plain leaves.

It goes to JSON and back, and the command line overrides leaves by their dotted names. The schema of `options` is the signature of
the component that the name builds, which checks them. This module does not import torch.
"""

import dataclasses
import inspect
import json
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, get_type_hints

from nearkin.compose.validation import check_choice, check_whole, nearest_name

Options = Mapping[str, Any]


@dataclass(frozen=True)
class DataChoice:
    """Which data to train on, and how to split them.

    Parameters
    ----------
    source : str, default=""
        Name of a known data set, a folder of images, a table (.csv, .tsv, .parquet), arrays (.npz, .npy) or a folder of
        shards.
    root : str, default=""
        Folder in which a known data set was found. It is written by training, so that later commands find the data again.
    size : int, default=None
        Resize the short side of images and cut out the center, size x size pixels. None takes the encoder's size; without one
        it keeps the size of the images, or chooses one if they differ or are large. Of texts: how many tokens are read.
    crop : float, default=1.0
        Share of the short side that the cut keeps: the short side is resized to size / crop first. Encoders bring their own.
    interpolation : {"nearest", "bilinear", "bicubic", "lanczos"}, default="bilinear"
        How images are resized. Encoders bring their own.
    path_column : str, default="path"
        Column of a table that holds the paths of the images.
    text_column : str, default=""
        Column of a table that holds texts to learn from, instead of images. Two or more, separated by commas, belong together: the
        texts of a row are each other's positives.
    label_column : str, default="label"
        Column of a table that holds the classes.
    target_columns : str, default=""
        Columns of a table that hold numbers to learn from, separated by commas.
    split_column : str, default="split"
        Column of a table that names the part of each row: train, validation or test.
    group_column : str, default="group"
        Column of a table whose groups are never divided between two parts.
    ignore_columns : str, default=""
        Columns that are not read, separated by commas, of a table whose rows are the points.
    keep_columns : str, default=""
        Columns of such a table, separated by commas, that are used although they look like an id.
    category_columns : str, default=""
        Columns of such a table, separated by commas, whose numbers are names, such as zip codes.
    corrections : str, default=""
        CSV file of corrected labels with the columns path and label, such as the explorer writes.
    split : {"given", "stratified", "group", "classes"}, default="given"
        How to split the data. "given" keeps the split of the data, and makes a fitting one if they have none. "classes" holds
        out whole classes, to measure retrieval of classes that were not trained on.
    validation : float, default=0.1
        Share of the training part held out to choose the best epoch. 0 holds out nothing. Without any labels it is 0.
    test : float, default=0.2
        Share held out for the final test if the data have no test part. Without any labels it is 0.
    on_error : {"raise", "skip"}, default="raise"
        What to do with files that cannot be read.
    leaks : {"error", "allow"}, default="error"
        What to do if two parts contain the same content. Use "allow" for official splits that have such duplicates.
    resident_gigabytes : float, default=4.0
        Data up to this size are kept on the device. Larger data are streamed.

    Examples
    --------
    >>> from nearkin.train import DataChoice, Run
    >>> Run(data=DataChoice("photos", size=32)).data.validation
    0.1
    """

    source: str = ""
    root: str = ""
    size: int | None = None
    crop: float = 1.0
    interpolation: Literal["nearest", "bilinear", "bicubic", "lanczos"] = "bilinear"
    path_column: str = "path"
    text_column: str = ""
    label_column: str = "label"
    target_columns: str = ""
    split_column: str = "split"
    group_column: str = "group"
    ignore_columns: str = ""
    keep_columns: str = ""
    category_columns: str = ""
    corrections: str = ""
    split: Literal["given", "stratified", "group", "classes"] = "given"
    validation: float = 0.1
    test: float = 0.2
    on_error: Literal["raise", "skip"] = "raise"
    leaks: Literal["error", "allow"] = "error"
    resident_gigabytes: float = 4.0

    def columns(self) -> Options:
        """Return the names of a table's columns, as `nearkin.data.open` takes them.

        Returns
        -------
        dict
            Keyword arguments. An optional column that keeps its default name is None: it may be missing.
        """
        usual = {"label_column": "label", "split_column": "split", "group_column": "group"}
        named = {leaf: None if getattr(self, leaf) == name else getattr(self, leaf) for leaf, name in usual.items()}
        optional = {name: getattr(self, name) or None for name in ("text_column", "ignore_columns", "keep_columns", "category_columns")}
        points = {"path_column": self.path_column, **optional}
        return {**points, "target_columns": self.target_columns or None, **named, "keep_unlabeled": bool(self.corrections)}


@dataclass(frozen=True)
class Part:
    """A component by name, with options of its own.

    Parameters
    ----------
    name : str, default="auto"
        Name of the component. "auto" chooses one that fits the data.
    options : dict, default={}
        Keyword arguments of the component. An unknown one is an error that names the nearest known one.

    Examples
    --------
    >>> from nearkin.train import Part, Run
    >>> Run(objective=Part("nca", {"temperature": 0.5})).objective.name
    'nca'
    """

    name: str = "auto"
    options: Options = field(default_factory=dict)


@dataclass(frozen=True)
class NetworkChoice:
    """The network and its head.

    Parameters
    ----------
    name : str, default="auto"
        Name of the network. "auto" is a convnet for images and a perceptron ("mlp") for vectors.
    dimension : int, default=64
        Dimensions of the embedding. More dimensions help large data and cost memory in the index.
    normalize : bool, default=False
        Scale every embedding to length 1.
    weights : str, default=None
        Local safetensors file with weights to start from.
    pretrained : bool, default=False
        Start from the pretrained encoder `name`: its weights are `weights`, or looked for on this machine, and its
        preprocessing is used.
    download : bool, default=False
        Let the encoder's library fetch weights that are not on this machine.
    scratch : bool, default=False
        Do not look for a pretrained encoder where `name` is "auto".
    tune : str, default="auto"
        What to train: "none" (take the encoder's features as they are), "head", "lora" (changes of rank 8 of its linear layers, or of a
        network without any its convolutions; another rank as "lora=4"), "last-blocks=N" or "all". "auto" is "head" for a pretrained
        encoder and "all" for other networks. The features of a frozen encoder are computed once and kept in the model folder.
    views : int, default=0
        Views of every training image, changed at random by `augment`, whose features a frozen encoder computes once, beside those of the
        image itself; each step takes one of them.
    rate : float, default=1.0
        Learning rate of the body, relative to that of head and objective. Lower it to fine-tune pretrained weights.
    layer_decay : float, default=1.0
        Factor of the rate from each block of the body to the one before it. Below 1, first layers change less.
    statistics : {"batch", "kept"}, default="batch"
        Batch normalization uses the statistics of each batch, or keeps those stored in `weights`.
    checkpointing : bool, default=False
        Keep only the inputs of the network's blocks for the backward pass and compute the rest again there: the same gradient in much
        less memory, about a third slower. `chunk` saves memory, too, and also that of the blocks' inputs.
    options : dict, default={}
        Keyword arguments of the network, such as ``{"hidden": [256]}`` for "mlp".

    Examples
    --------
    >>> from nearkin.train import NetworkChoice, Run
    >>> Run(network=NetworkChoice("resnet18", dimension=128, normalize=True)).network.tune
    'auto'
    """

    name: str = "auto"
    dimension: int = 64
    normalize: bool = False
    weights: str | None = None
    pretrained: bool = False
    download: bool = False
    scratch: bool = False
    tune: str = "auto"
    views: int = 0
    rate: float = 1.0
    layer_decay: float = 1.0
    statistics: Literal["batch", "kept"] = "batch"
    checkpointing: bool = False
    options: Options = field(default_factory=dict)


@dataclass(frozen=True)
class CodesChoice:
    """Whether the embedding is learned as a binary code, one bit per dimension, with any objective.

    Parameters
    ----------
    learn : bool, default=False
        Train for binary codes: the objective sees tanh of the outputs, and the index compares signs by Hamming distance.
    pull : float, default=0.1
        Weight of the penalty that pulls the outputs to +1 and -1.

    Examples
    --------
    >>> from nearkin.train import CodesChoice, Run
    >>> Run(codes=CodesChoice(learn=True)).codes.pull
    0.1
    """

    learn: bool = False
    pull: float = 0.1


@dataclass(frozen=True)
class OptimizerChoice:
    """How the weights are updated.

    Parameters
    ----------
    name : {"sgd", "adam", "conjugate_gradient"}, default="sgd"
        The optimizer. "conjugate_gradient" needs ``references=training_set``.
    learning_rate : float, default=0.1
        Learning rate before the schedule. `nearkin train --find-rate` searches for a good one.
    momentum : float, default=0.9
        Momentum of "sgd".
    nesterov : bool, default=True
        Whether "sgd" uses Nesterov momentum.
    weight_decay : float, default=5e-4
        L2 penalty on the weights, of "sgd" and "adam".
    epsilon : float, default=1e-8
        Term in the denominator of "adam".
    clip : float, default=0.0
        Largest norm of the gradient; longer ones are scaled down. 0 means no limit. Set it if the loss becomes NaN.
    iterations : int, default=10
        Line searches per epoch of "conjugate_gradient", which restarts its directions after them.

    Examples
    --------
    >>> from nearkin.train import OptimizerChoice, Run
    >>> Run(optimizer=OptimizerChoice("adam", learning_rate=1e-3)).optimizer.clip
    0.0
    """

    name: Literal["sgd", "adam", "conjugate_gradient"] = "sgd"
    learning_rate: float = 0.1
    momentum: float = 0.9
    nesterov: bool = True
    weight_decay: float = 5e-4
    epsilon: float = 1e-8
    clip: float = 0.0
    iterations: int = 10


@dataclass(frozen=True)
class ScheduleChoice:
    """How the learning rate changes during training.

    Parameters
    ----------
    name : {"constant", "cosine", "one_cycle", "milestones", "plateau"}, default="cosine"
        "cosine" falls to 0 over the training. "milestones" and "plateau" multiply the rate by `factor`: at given epochs, or
        when the loss stops falling.
    warmup : float, default=0.05
        Share of all steps during which the rate grows linearly from 0.
    milestones : tuple of float, default=(0.5, 0.8)
        Shares of all epochs after which "milestones" lowers the rate.
    factor : float, default=0.1
        Factor of "milestones" and "plateau".
    patience : int, default=5
        Epochs without a lower loss before "plateau" lowers the rate.

    Examples
    --------
    >>> from nearkin.train import Run, ScheduleChoice
    >>> Run(schedule=ScheduleChoice("one_cycle")).schedule.warmup
    0.05
    """

    name: Literal["constant", "cosine", "one_cycle", "milestones", "plateau"] = "cosine"
    warmup: float = 0.05
    milestones: tuple[float, ...] = (0.5, 0.8)
    factor: float = 0.1
    patience: int = 5


@dataclass(frozen=True)
class DiscoveryChoice:
    """Rounds of the objective "neighborhood_discovery"; no other objective reads them. The epochs are divided among the rounds.

    Parameters
    ----------
    rounds : int, default=4
        Rounds after the instance round. Each trusts a larger share of the neighborhoods.
    instance_round : bool, default=True
        Begin with a round in which every point is only its own positive. Without it, the first neighborhoods are those of
        random vectors.
    one_off : bool, default=False
        Trust all neighborhoods from the first round on, instead of a share that grows.
    refresh : {"round", "epoch"}, default="round"
        How often neighborhoods are searched for again.
    mutual : bool, default=False
        Use only neighbors that have each other in their lists.
    gradual : bool, default=False
        Let the trusted share grow with every epoch instead of every round. Needs ``refresh=epoch``.
    restart : bool, default=True
        Restart the learning rate schedule with every round.
    labeled : float, default=0.0
        Share of the points whose class is used. If some points have no class, all known classes are used in any case.
    released_protocol : bool, default=False
        Also report the accuracy of the best epoch of the last round on the test part, measured against the memory bank. This
        is the protocol of the authors' released code; it selects on the test part.

    References
    ----------
    [huang2019and]

    Examples
    --------
    >>> from nearkin.train import DiscoveryChoice, Run
    >>> Run(discovery=DiscoveryChoice(rounds=5)).discovery.refresh
    'round'
    """

    rounds: int = 4
    instance_round: bool = True
    one_off: bool = False
    refresh: Literal["round", "epoch"] = "round"
    mutual: bool = False
    gradual: bool = False
    restart: bool = True
    labeled: float = 0.0
    released_protocol: bool = False


@dataclass(frozen=True)
class Run:
    """One training: everything a model folder remembers about how the model was made.

    Parameters
    ----------
    data : DataChoice
        Which data to train on, and how to split them.
    network : NetworkChoice
        The network and its head.
    objective : Part
        What is optimized. "auto" chooses by the data: NCA for classes, NCA regression for numbers, NCA of sets for label sets,
        neighborhood discovery without labels.
    codes : CodesChoice
        Whether to learn binary codes.
    optimizer : OptimizerChoice
        How the weights are updated.
    schedule : ScheduleChoice
        How the learning rate changes.
    preprocess : Part, default=Part("standardize")
        What is done to every image: "standardize", "local_contrast", or the fixed statistics of a known data set such as
        "imagenet". The option `crop` cuts out the center first. Vectors are standardized column by column; "none" leaves them as
        they are.
    augment : Part
        Random changes of training inputs: "none", "shift", "crop", "crop_flip", "resized_crop", "affine", "discovery", and "swap" for
        vectors.
        "auto" is "none" for objectives that use labels, and "discovery" or "swap" for those that do not.
    sampler : Part, default=Part("shuffled")
        How batches are drawn: "shuffled", "per_class", "class_balanced", "grouped", "hard_classes" or "near_neighbors".
    discovery : DiscoveryChoice
        Rounds of neighborhood discovery.
    references : {"objective", "training_set"}, default="objective"
        "objective" compares with what the objective defines (the batch, proxies, a bank). "training_set" makes every step over
        all training points at once, exactly.
    epochs : int, default=20
        Passes over the training part.
    least_steps : int, default=0
        Add epochs until there are at least this many steps. Small data need steps rather than epochs.
    batch_size : int, default=256
        Points per step.
    chunk : int, default=0
        Points that pass through the network at a time, with the exact gradient of the whole batch: large batches in little
        memory, at the cost of a second pass. 0 takes the whole batch.
    views : int, default=1
        Copies of every point in a step, each augmented on its own. The network sees views x batch_size inputs. With a teacher
        (`neighbor_targets`), which sees one more, each copy is an update of its own.
    seed : int, default=0
        Seed of the split, weights, batches and augmentation.
    precision : {"float32", "bfloat16"}, default="float32"
        Precision of the network. Objectives always use float32 or better.
    capture : bool, default=True
        On CUDA with data on the device, record the whole step as one CUDA graph.
    compile : bool, default=False
        Compile the network with torch.compile: faster steps after about a minute of compilation.
    validate_every : int, default=1
        Epochs between two validations.
    patience : int, default=0
        Stop after this many validations without a better result. 0 never stops early. In neighborhood discovery only the last
        round stops early.
    checkpoint_seconds : float, default=30.0
        Least time between two checkpoints. One is always written at the end, and on Ctrl-C or SIGTERM.

    See Also
    --------
    override : Replace settings by their dotted names.
    train : Train a run and write the model folder.

    Examples
    --------
    >>> from nearkin.train import OptimizerChoice, Run
    >>> run = Run(optimizer=OptimizerChoice("adam", 1e-3), epochs=5)
    >>> run.optimizer.learning_rate
    0.001
    >>> Run.from_json(run.to_json()) == run
    True
    """

    data: DataChoice = field(default_factory=DataChoice)
    network: NetworkChoice = field(default_factory=NetworkChoice)
    objective: Part = field(default_factory=Part)
    codes: CodesChoice = field(default_factory=CodesChoice)
    optimizer: OptimizerChoice = field(default_factory=OptimizerChoice)
    schedule: ScheduleChoice = field(default_factory=ScheduleChoice)
    preprocess: Part = field(default_factory=lambda: Part("standardize"))
    augment: Part = field(default_factory=Part)
    sampler: Part = field(default_factory=lambda: Part("shuffled"))
    discovery: DiscoveryChoice = field(default_factory=DiscoveryChoice)
    references: Literal["objective", "training_set"] = "objective"
    epochs: int = 20
    least_steps: int = 0
    batch_size: int = 256
    chunk: int = 0
    views: int = 1
    seed: int = 0
    precision: Literal["float32", "bfloat16"] = "float32"
    capture: bool = True
    compile: bool = False
    validate_every: int = 1
    patience: int = 0
    checkpoint_seconds: float = 30.0

    def __post_init__(self) -> None:
        for name, least in (("epochs", 1), ("least_steps", 0), ("batch_size", 1), ("chunk", 0), ("views", 1), ("validate_every", 1)):
            check_whole(name, getattr(self, name), least)

    def to_json(self) -> str:
        """Write the whole tree as JSON.

        Returns
        -------
        str
            JSON that `from_json` reads.
        """
        return json.dumps(dataclasses.asdict(self), indent=2)

    @staticmethod
    def from_json(text: str) -> "Run":
        """Read the tree back.

        Parameters
        ----------
        text : str
            JSON written by `to_json`. Missing leaves keep their defaults.

        Returns
        -------
        Run
            The configuration.

        Raises
        ------
        ValueError
            If a leaf is unknown or has a value of the wrong type.
        """
        read = json.loads(text)
        network = read.get("network", {}) if isinstance(read, Mapping) else {}
        if isinstance(network, dict) and "frozen" in network:  # of earlier versions
            network["tune"] = "head" if network.pop("frozen") else "all"
        run: Run = _build(Run, read, "")
        return run


def override(run: Run, settings: Mapping[str, str]) -> Run:
    """Replace leaves of a run by their dotted names.

    Parameters
    ----------
    run : Run
        The run to start from; it is not changed.
    settings : mapping of str to str
        Dotted name to value, written as on the command line (JSON, or plain text).

    Returns
    -------
    Run
        A new run.

    Raises
    ------
    ValueError
        If a name is unknown (the message names the nearest known one) or a value has the wrong type.

    Examples
    --------
    >>> from nearkin.train import Run, override
    >>> run = override(Run(), {"optimizer.learning_rate": "0.05", "objective.options.temperature": "0.1"})
    >>> run.optimizer.learning_rate, run.objective.options
    (0.05, {'temperature': 0.1})
    """
    for name, text in settings.items():
        run = _replaced(run, name.split("."), text, name)
    return run


def leaves(kind: type = Run, prefix: str = "") -> list[str]:
    """The dotted names of all leaves."""
    names = []
    for item in dataclasses.fields(kind):
        hint = get_type_hints(kind)[item.name]
        full = prefix + item.name
        names += leaves(hint, full + ".") if dataclasses.is_dataclass(hint) and isinstance(hint, type) else [full]
    return names


def check_options(
    what: str, given: Mapping[str, Any], maker: Callable[..., Any], *, filled: Collection[str] = (), besides: Collection[str] = ()
) -> None:
    """Refuse an option that `maker` does not take, and anything but true or false for a flag: even "no" would count as true.

    `filled` are arguments that come from the data and the run, `besides` are options that other code reads.
    """
    takes = inspect.signature(maker).parameters
    known = [*besides, *(name for name in takes if name not in filled)]
    for option, value in given.items():
        if option not in known:
            listed = f"its options are {', '.join(known)}" if known else "it has none"
            raise ValueError(f"{what} has no option {option!r}{nearest_name(option, known)}; {listed}")
        if option in takes and isinstance(takes[option].default, bool) and not isinstance(value, bool):
            raise ValueError(f"{what}: {option} ({value!r}) must be true or false")


def _replaced(node: Any, path: list[str], text: str, name: str) -> Any:
    head, *rest = path
    if isinstance(node, Mapping):
        return {**node, ".".join(path): _parsed(text)}
    known = {item.name for item in dataclasses.fields(node)}
    if head not in known or (not rest and dataclasses.is_dataclass(getattr(node, head))):
        check_choice("setting", name, leaves())
    value = getattr(node, head)
    if rest:
        if not (dataclasses.is_dataclass(value) or isinstance(value, Mapping)):
            check_choice("setting", name, leaves())
        return dataclasses.replace(node, **{head: _replaced(value, rest, text, name)})
    hint = get_type_hints(type(node))[head]
    new = _checked(text if hint is str else _parsed(text), hint, name)  # not parsed: a folder may be named 2024
    return dataclasses.replace(node, **{head: new})


def _parsed(text: str) -> Any:
    try:
        return json.loads(text)
    except json.JSONDecodeError:
        return {"True": True, "False": False, "None": None}.get(text, text)


def _build(kind: type, values: Any, prefix: str) -> Any:
    if not isinstance(values, Mapping):
        raise ValueError(f"{prefix or 'the run'} must be a mapping of settings, not {values!r}")
    hints = get_type_hints(kind)
    built = {}
    for key, value in values.items():
        if key not in hints:
            check_choice("setting", prefix + key, leaves())
        hint = hints[key]
        nested = dataclasses.is_dataclass(hint) and isinstance(hint, type)
        built[key] = _build(hint, value, f"{prefix}{key}.") if nested else _checked(value, hint, prefix + key)
    return kind(**built)


def _checked(value: Any, hint: Any, name: str) -> Any:
    """The value, converted to the type of the leaf, or an error that names both."""
    choices = getattr(hint, "__args__", ())
    origin = getattr(hint, "__origin__", None)
    if origin is Literal:
        return check_choice(name, value, choices)
    if origin is tuple and isinstance(value, list | tuple):
        return tuple(float(v) for v in value)
    if type(None) in choices:
        if value is None:
            return None
        hint = next(choice for choice in choices if choice is not type(None))
    if hint is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if isinstance(hint, type) and (not isinstance(value, hint) or (isinstance(value, bool) and hint is not bool)):
        raise ValueError(f"{name} ({value!r}) must be of type {hint.__name__}")
    return value
