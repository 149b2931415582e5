"""Run: the frozen description of one training, all that a model folder remembers of how it was made.

A tree of dataclasses with plain leaves. It goes to JSON and back, and the command line overrides leaves by their
dotted names. What an objective, a network or a sampler takes is its own signature: `options` are checked there.
"""

import dataclasses
import difflib
import inspect
import json
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, get_type_hints

from nearkin.compose.validation import check_whole

Options = Mapping[str, Any]


@dataclass(frozen=True)
class DataChoice:
    """Which data, and how they are cut."""

    source: str = ""
    root: str = ""  # the folder in which a known set was found; "": the folder data, or the source is no known set
    size: int | None = None  # images are brought to size x size; None: as they are
    path_column: str = "path"
    label_column: str = "label"
    target_columns: str = ""
    split_column: str = "split"
    group_column: str = "group"
    corrections: str = ""  # a CSV of corrected labels, such as the explorer's, with the columns path and label
    split: Literal["given", "stratified", "group", "classes"] = "given"  # how to split data that bring no split
    validation: float = 0.1  # share of the training part held out for choosing; 0: none, as where nothing has a label
    test: float = 0.2  # share held out for testing when the data bring no test part; none where nothing has a label
    on_error: Literal["raise", "skip"] = "raise"
    leaks: Literal["error", "allow"] = "error"  # the same content in two parts; "allow" for official splits that have some
    resident_gigabytes: float = 4.0  # sets up to this size live on the device; larger ones stream

    def columns(self) -> Options:
        """What a table's columns are called, as `nearkin.data.open` takes it."""
        usual = {"label_column": "label", "split_column": "split", "group_column": "group"}  # these need not be there
        named = {leaf: None if getattr(self, leaf) == name else getattr(self, leaf) for leaf, name in usual.items()}
        return {"path_column": self.path_column, "target_columns": self.target_columns or None, **named}


@dataclass(frozen=True)
class Part:
    """A named component with options of its own: the signature of what the name builds is the schema."""

    name: str = "auto"
    options: Options = field(default_factory=dict)


@dataclass(frozen=True)
class NetworkChoice:
    """The network and its head."""

    name: str = "auto"
    dimension: int = 64
    normalize: bool = False
    weights: str | None = None  # a local safetensors file to start from
    frozen: bool = False  # train only the head
    rate: float = 1.0  # learning rate of the body relative to the head and the objective
    statistics: Literal["batch", "kept"] = "batch"  # batch normalization goes by each batch, or by what the weights came with
    options: Options = field(default_factory=dict)


@dataclass(frozen=True)
class CodesChoice:
    """Whether the embedding is learned as a binary code, one bit a dimension, whatever the objective; see `nearkin.train.relaxation`."""

    learn: bool = False
    pull: float = 0.1  # weight of the outputs' distance from +-1


@dataclass(frozen=True)
class OptimizerChoice:
    """How weights move."""

    name: Literal["sgd", "adam", "conjugate_gradient"] = "sgd"
    learning_rate: float = 0.1
    momentum: float = 0.9
    nesterov: bool = True
    weight_decay: float = 5e-4
    epsilon: float = 1e-8
    clip: float = 0.0  # largest gradient norm; 0: unbounded
    iterations: int = 10  # conjugate gradient: line searches an epoch, after which directions start anew


@dataclass(frozen=True)
class ScheduleChoice:
    """How the learning rate moves."""

    name: Literal["constant", "cosine", "one_cycle", "milestones", "plateau"] = "cosine"
    warmup: float = 0.05  # share of all steps with a linearly growing rate
    milestones: tuple[float, ...] = (0.5, 0.8)  # shares of all epochs
    factor: float = 0.1
    patience: int = 5  # epochs without a lower objective (plateau)


@dataclass(frozen=True)
class DiscoveryChoice:
    """Rounds of neighborhood discovery, between which the epochs are divided; only the objective neighborhood_discovery has them."""

    rounds: int = 4  # after the instance round, in which nobody is trusted
    instance_round: bool = True  # without it the first neighborhoods are those of random vectors
    one_off: bool = False  # trust everybody from the first round on, instead of a share that grows
    refresh: Literal["round", "epoch"] = "round"  # how often neighborhoods are looked for
    mutual: bool = False  # count only neighbors that are so in both directions
    gradual: bool = False  # the trusted share grows with every epoch instead of every round (with refresh=epoch)
    restart: bool = True  # the schedule begins anew with every round
    labeled: float = 0.0  # share of the points whose class is used; where some classes are missing, those that are there are used anyhow
    released_protocol: bool = False  # also report the best epoch of the last round on the test part against the bank, as the authors did


@dataclass(frozen=True)
class Run:
    """One training."""

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
    references: Literal["objective", "training_set"] = "objective"  # training_set: every step over all points, exactly
    epochs: int = 20
    least_steps: int = 0  # more epochs where these would be fewer steps: small data need steps rather than epochs
    batch_size: int = 256
    views: int = 1  # of every image in a step, each augmented on its own: the network sees views x batch_size images
    seed: int = 0
    precision: Literal["float32", "bfloat16"] = "float32"  # of the network; objectives are always float32 or better
    capture: bool = True  # on CUDA with device-resident data: the whole step in one graph
    compile: bool = False  # the network through torch.compile: faster steps for a minute's wait at the start
    validate_every: int = 1  # epochs
    patience: int = 0  # epochs without a better validation figure before stopping, in the last round alone; 0: never
    checkpoint_seconds: float = 30.0  # least time between two checkpoints; one is always written at the end, and by Ctrl-C

    def __post_init__(self) -> None:
        for name, least in (("epochs", 1), ("least_steps", 0), ("batch_size", 1), ("views", 1), ("validate_every", 1)):
            check_whole(name, getattr(self, name), least)

    def to_json(self) -> str:
        """The whole tree as JSON."""
        return json.dumps(dataclasses.asdict(self), indent=2)

    @staticmethod
    def from_json(text: str) -> "Run":
        """The tree back; an unknown leaf is an error."""
        run: Run = _build(Run, json.loads(text), "")
        return run


def override(run: Run, settings: Mapping[str, str]) -> Run:
    """The same run with leaves replaced: {"optimizer.learning_rate": "0.05", "objective.options.temperature": "0.1"}."""
    for name, text in settings.items():
        run = _replaced(run, name.split("."), text, name)
    return run


def leaves(kind: type = Run, prefix: str = "") -> list[str]:
    """The dotted names of everything that can be set."""
    names = []
    for item in dataclasses.fields(kind):
        hint = get_type_hints(kind)[item.name]
        full = prefix + item.name
        names += leaves(hint, full + ".") if dataclasses.is_dataclass(hint) and isinstance(hint, type) else [full]
    return names


def check_options(
    what: str, given: Mapping[str, Any], maker: Callable[..., Any], *, filled: Collection[str] = (), besides: Collection[str] = ()
) -> None:
    """Refuse an option that the maker does not take, and name the nearest; and a word for a truth value: even "no" would count as true.

    `filled` are arguments that data and run give, `besides` options that somebody else reads.
    """
    takes = inspect.signature(maker).parameters
    known = [*besides, *(name for name in takes if name not in filled)]
    for option, value in given.items():
        if option not in known:
            near = difflib.get_close_matches(option, known, n=1)
            meant = f" (did you mean {near[0]!r}?)" if near else ""
            listed = f"its options are {', '.join(known)}" if known else "it has none"
            raise ValueError(f"{what} has no option {option!r}{meant}; {listed}")
        if option in takes and isinstance(takes[option].default, bool) and not isinstance(value, bool):
            raise ValueError(f"{what}: {option} ({value!r}) must be true or false")


def _replaced(node: Any, path: list[str], text: str, name: str) -> Any:
    head, *rest = path
    if isinstance(node, Mapping):
        return {**node, ".".join(path): _parsed(text)}
    known = {item.name for item in dataclasses.fields(node)}
    if head not in known or (not rest and dataclasses.is_dataclass(getattr(node, head))):
        raise ValueError(f"setting {name!r} is unknown{_nearest(name, leaves())}")
    value = getattr(node, head)
    if rest:
        if not (dataclasses.is_dataclass(value) or isinstance(value, Mapping)):
            raise ValueError(f"setting {name!r} is unknown{_nearest(name, leaves())}")
        return dataclasses.replace(node, **{head: _replaced(value, rest, text, name)})
    hint = get_type_hints(type(node))[head]
    new = _checked(text if hint is str else _parsed(text), hint, name)  # a folder may be called 2024
    return dataclasses.replace(node, **{head: new})


def _parsed(text: str) -> Any:
    try:
        return json.loads(text)
    except json.JSONDecodeError:
        return {"True": True, "False": False, "None": None}.get(text, text)


def _nearest(name: str, known: list[str]) -> str:
    close = difflib.get_close_matches(name, known, n=1, cutoff=0.5)
    return (f"; did you mean {close[0]!r}? Known" if close else "; known") + f": {', '.join(known)}"


def _build(kind: type, values: Any, prefix: str) -> Any:
    if not isinstance(values, Mapping):
        raise ValueError(f"{prefix or 'the run'} must be a mapping of settings, not {values!r}")
    hints = get_type_hints(kind)
    built = {}
    for key, value in values.items():
        if key not in hints:
            raise ValueError(f"setting {prefix + key!r} is unknown{_nearest(prefix + key, leaves())}")
        hint = hints[key]
        nested = dataclasses.is_dataclass(hint) and isinstance(hint, type)
        built[key] = _build(hint, value, f"{prefix}{key}.") if nested else _checked(value, hint, prefix + key)
    return kind(**built)


def _checked(value: Any, hint: Any, name: str) -> Any:
    """The value as the leaf's type, or an error that names both."""
    choices = getattr(hint, "__args__", ())
    origin = getattr(hint, "__origin__", None)
    if origin is Literal:
        if value not in choices:
            raise ValueError(f"{name} {value!r} is unknown; choose one of {', '.join(map(str, choices))}")
        return value
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
