"""Weights from files. Only safetensors are read: a pickle can run anything.

A `.pth` is converted once, with torch's reader that admits nothing but tensors, to a `.safetensors` beside it.
"""

import os
import pickle
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from nearkin.data.disk import set_default_permissions

PICKLES = (".pth", ".pt", ".bin", ".tar", ".ckpt")
WRAPPERS = ("state_dict", "model", "model_state_dict", "net")  # under which training scripts bury the weights


def load_weights(module: nn.Module, path: str | Path, cut: Sequence[str] = ()) -> None:
    """Fill the module from a local file. `cut` names layers of the file's network that this one does without (its classifier)."""
    path = Path(path)
    if not path.is_file():
        raise FileNotFoundError(f"weights {str(path)!r} is no file; give a local .safetensors or .pth (nothing is downloaded)")
    if path.suffix in PICKLES:
        path = convert_weights(path)
    try:
        stored = load_file(path)
    except SafetensorError as error:
        raise ValueError(f"weights {str(path)!r} is not a whole safetensors file ({error}); fetch it again") from error
    stored = {name: value for name, value in stored.items() if not any(name == c or name.startswith(f"{c}.") for c in cut)}
    wanted = module.state_dict()
    counters = {name for name in wanted if name.endswith("num_batches_tracked")}  # old files have none, and none is needed
    missing, unknown = sorted(wanted.keys() - stored.keys() - counters), sorted(stored.keys() - wanted.keys())
    if missing or unknown:
        raise ValueError(f"weights {str(path)!r} are of another network: {_some('missing', missing)}; {_some('unknown', unknown)}")
    for name, value in stored.items():
        if value.shape != wanted[name].shape:
            raise ValueError(f"weights {str(path)!r}: {name} has shape {tuple(value.shape)}, the network's has {tuple(wanted[name].shape)}")
    module.load_state_dict(stored, strict=False)


def convert_weights(path: str | Path) -> Path:
    """From `.pth` to a `.safetensors` beside it, unless a newer one is there; code in the pickle is refused, not run."""
    path = Path(path)
    target = path.with_suffix(".safetensors")
    if target.is_file() and target.stat().st_mtime >= path.stat().st_mtime:
        return target
    try:
        loaded = torch.load(path, map_location="cpu", weights_only=True)
    except (pickle.UnpicklingError, RuntimeError, EOFError) as error:
        raise ValueError(f"weights {str(path)!r} holds more than tensors, or is damaged; ask its author for safetensors") from error
    tensors = _tensors(loaded, path)
    partial = target.with_name(f"{target.name}.{os.getpid()}.part")  # under its name only when whole
    try:
        save_file({name: value.detach().clone().contiguous() for name, value in tensors.items()}, partial)
        set_default_permissions(partial)
        partial.replace(target)
    finally:
        partial.unlink(missing_ok=True)
    return target


def _tensors(loaded: Any, path: Path) -> dict[str, Tensor]:
    """The state dict, dug out of what training scripts wrap it in, without the prefix of data-parallel training."""
    for wrapper in WRAPPERS:
        if isinstance(loaded, Mapping) and isinstance(loaded.get(wrapper), Mapping):
            loaded = loaded[wrapper]
    if not isinstance(loaded, Mapping) or not loaded or not all(isinstance(value, Tensor) for value in loaded.values()):
        raise ValueError(f"weights {str(path)!r} holds no dict of tensors, also not under {', '.join(WRAPPERS)}; save network.state_dict()")
    wrapped = all(str(name).startswith("module.") for name in loaded)
    return {str(name).removeprefix("module.") if wrapped else str(name): value for name, value in loaded.items()}


def _some(kind: str, names: Sequence[str]) -> str:
    shown = ", ".join(names[:3]) + (", ..." if len(names) > 3 else "")
    return f"{len(names)} {kind}" + (f" ({shown})" if names else "")
