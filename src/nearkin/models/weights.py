"""Weights from files. Only safetensors are read, since a pickle can run any code.

A `.pth` file is converted once, with torch's reader for tensors only, to a `.safetensors` file next to it.
"""

import pickle
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file, save
from torch import Tensor, nn

from nearkin.data.disk import FileDamagedError, digest, replacing

PICKLES = (".pth", ".pt", ".bin", ".tar", ".ckpt")
ORIGIN = "nearkin.made_from"  # key of the sha256 of the .pth file
WRAPPERS = ("state_dict", "model", "model_state_dict", "net")  # keys under which training scripts store the weights


def load_weights(module: nn.Module, path: str | Path, cut: Sequence[str] = ()) -> None:
    """Load weights from a local file into a module.

    Parameters
    ----------
    module : nn.Module
        The network to fill.
    path : path
        A .safetensors file, or a .pth file, which is converted first.
    cut : sequence of str, default=()
        Layers in the file to ignore, such as its classifier.

    Raises
    ------
    FileNotFoundError
        If there is no such file.
    ValueError
        If the file is damaged, or its weights are those of another network.

    Examples
    --------
    >>> import tempfile
    >>> import torch
    >>> from safetensors.torch import save_file
    >>> from torch import nn
    >>> from nearkin.models import load_weights
    >>> layer = nn.Linear(2, 1, bias=False)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     save_file({"weight": torch.ones(1, 2), "classifier.weight": torch.ones(9, 1)}, f"{folder}/w.safetensors")
    ...     load_weights(layer, f"{folder}/w.safetensors", cut=("classifier",))
    >>> layer.weight.tolist()
    [[1.0, 1.0]]
    """
    path = Path(path)
    if not path.is_file():
        raise FileNotFoundError(f"weights {str(path)!r} is not a file; give a local .safetensors or .pth (nothing is downloaded)")
    if path.suffix in PICKLES:
        path = convert_weights(path)
    stored = read_tensors(path, "fetch it again")
    stored = {name: value for name, value in stored.items() if not any(name == c or name.startswith(f"{c}.") for c in cut)}
    expected = module.state_dict()
    counters = {name for name in expected if name.endswith("num_batches_tracked")}  # old files have none, and none is needed
    missing, unknown = sorted(expected.keys() - stored.keys() - counters), sorted(stored.keys() - expected.keys())
    if missing or unknown:
        raise ValueError(f"weights {str(path)!r} are of another network: {_some('missing', missing)}; {_some('unknown', unknown)}")
    for name, value in stored.items():
        if value.shape != expected[name].shape:
            raise ValueError(f"weights {str(path)!r}: {name} has shape {tuple(value.shape)}, the network's {tuple(expected[name].shape)}")
    module.load_state_dict(stored, strict=False)


def convert_weights(path: str | Path) -> Path:
    """Convert a .pth file to a .safetensors file next to it, unless that was made from the same file; code in the pickle is not run.

    Parameters
    ----------
    path : path
        A file that torch.save wrote: a state dict, or a dict with one.

    Returns
    -------
    Path
        The .safetensors file.

    Raises
    ------
    ValueError
        If the file holds other things than tensors, or is damaged.

    Examples
    --------
    >>> import tempfile
    >>> import torch
    >>> from nearkin.models import convert_weights
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     torch.save({"state_dict": {"weight": torch.ones(2)}}, f"{folder}/w.pth")
    ...     convert_weights(f"{folder}/w.pth").name
    'w.safetensors'
    """
    path = Path(path)
    target, origin = path.with_suffix(".safetensors"), digest(path)
    made_from = _origin(target) if target.is_file() else ""
    if made_from == origin:  # dates would say nothing: a copied file keeps its own
        return target
    if made_from is None and target.stat().st_mtime >= path.stat().st_mtime:
        return target
    if made_from is None:
        raise ValueError(f"weights {str(path)!r}: {target} is older, and not known to be made from it; remove one of the two files")
    try:
        loaded = torch.load(path, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError as error:
        raise ValueError(f"weights {str(path)!r} holds more than tensors, or is damaged; ask its author for safetensors") from error
    except Exception as error:  # of a file that is cut off, torch's reader raises what it stumbles over: RuntimeError, IndexError, KeyError
        raise ValueError(f"weights {str(path)!r} is not a complete file that torch.save wrote; fetch it again") from error
    tensors = _tensors(loaded, path)
    content = save({name: value.detach().clone().contiguous() for name, value in tensors.items()}, {ORIGIN: origin})
    with replacing(target) as file:
        file.write(content)
    return target


def read_tensors(path: Path, fix: str, device: str = "cpu") -> dict[str, Tensor]:
    """Read a safetensors file; if it is cut or something else, the error names the file and the fix."""
    try:
        return load_file(path, device=device)
    except (SafetensorError, ValueError, KeyError) as error:
        raise FileDamagedError(f"{path} is not a complete safetensors file ({error}); {fix}") from error


def _origin(target: Path) -> str | None:
    """The sha256 of the file that a converted one was made from; None if it was made by others."""
    try:
        with safe_open(target, framework="pt") as file:
            return (file.metadata() or {}).get(ORIGIN)
    except SafetensorError:
        return ""


def _tensors(loaded: Any, path: Path) -> dict[str, Tensor]:
    """The state dict out of what training scripts wrap it in, without the prefix of data-parallel training."""
    for wrapper in WRAPPERS:
        if isinstance(loaded, Mapping) and isinstance(loaded.get(wrapper), Mapping):
            loaded = loaded[wrapper]
    if not isinstance(loaded, Mapping) or not loaded or not all(isinstance(value, Tensor) for value in loaded.values()):
        raise ValueError(f"weights {str(path)!r} holds no dict of tensors, not even under {', '.join(WRAPPERS)}; save network.state_dict()")
    wrapped = all(str(name).startswith("module.") for name in loaded)
    return {str(name).removeprefix("module.") if wrapped else str(name): value for name, value in loaded.items()}


def _some(kind: str, names: Sequence[str]) -> str:
    shown = ", ".join(names[:3]) + (", ..." if len(names) > 3 else "")
    return f"{len(names)} {kind}" + (f" ({shown})" if names else "")
