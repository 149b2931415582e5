"""The complete state of a training as named tensors and plain values, and back."""

import hashlib
from typing import Any

import torch
from torch import Tensor

from nearkin.data import Dataset
from nearkin.train.assemble import Parts

SAMPLED = 64  # rows of an array that enter its fingerprint


def capture_state(parts: Parts) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Network, teacher, objective, optimizer and random generators as tensors; schedule and sampler as plain values."""
    tensors = {f"network.{name}": value for name, value in parts.network.state_dict().items()}
    tensors |= {f"objective.{name}": value for name, value in parts.objective.state_dict().items()}
    if parts.step.teacher is not None:
        tensors |= {f"teacher.{name}": value for name, value in parts.step.teacher.state_dict().items()}
    moments, numbers = optimizer_state(parts.optimizer)
    tensors |= moments | {f"sampler.{name}": value for name, value in parts.sampler.tensors().items()}
    tensors |= random_state(parts.step.generator.device) | {"random.augment": parts.step.generator.get_state()}
    state = {"optimizer": numbers, "schedule": parts.schedule.state(), "sampler": parts.sampler.state_dict()}
    return tensors, state


def restore_state(parts: Parts, tensors: dict[str, Tensor], state: dict[str, Any]) -> None:
    """Restore what `capture_state` returned."""
    kept = under("objective.", tensors)
    for name, value in parts.objective.state_dict().items():
        if name in kept and kept[name].shape != value.shape:
            raise ValueError(
                f"{name} has shape {tuple(kept[name].shape)} in the checkpoint and {tuple(value.shape)} in this run; "
                "resume with the data and the settings that the training started with"
            )
    parts.network.load_state_dict(under("network.", tensors))
    parts.objective.load_state_dict(kept)
    if parts.step.teacher is not None:
        parts.step.teacher.load_state_dict(under("teacher.", tensors))
    restore_optimizer(parts.optimizer, tensors, state["optimizer"])
    parts.schedule.restore(state["schedule"])
    parts.sampler.load_state_dict(state["sampler"])
    parts.sampler.load_tensors(under("sampler.", tensors))
    restore_random(parts.step.generator.device, tensors)
    _restore_generator(parts.step.generator, tensors["random.augment"])


def optimizer_state(optimizer: torch.optim.Optimizer) -> tuple[dict[str, Tensor], dict[str, dict[str, Any]]]:
    """What the optimizer remembers of each parameter: tensors by name, and plain values by the number of the parameter."""
    tensors: dict[str, Tensor] = {}
    numbers: dict[str, dict[str, Any]] = {}
    for index, slots in optimizer.state_dict()["state"].items():
        for name, value in slots.items():
            if isinstance(value, Tensor):
                tensors[f"optimizer.{index}.{name}"] = value
            else:
                numbers.setdefault(str(index), {})[name] = value
    return tensors, numbers


def restore_optimizer(optimizer: torch.optim.Optimizer, tensors: dict[str, Tensor], numbers: dict[str, dict[str, Any]]) -> None:
    """Restore what `optimizer_state` returned; other tensors may be among these."""
    slots: dict[int, dict[str, Any]] = {int(index): dict(values) for index, values in numbers.items()}
    for name, value in under("optimizer.", tensors).items():
        index, slot = name.split(".", 1)
        slots.setdefault(int(index), {})[slot] = value
    optimizer.load_state_dict({"state": slots, "param_groups": optimizer.state_dict()["param_groups"]})
    for parameter, moments in optimizer.state.items():
        for name, value in moments.items():
            if isinstance(value, Tensor) and value.shape == parameter.shape:
                moments[name] = torch.empty_like(parameter).copy_(value)  # fused steps need the memory layout of the parameter


def random_state(device: torch.device) -> dict[str, Tensor]:
    """The random generators of torch that a training on this device draws from."""
    of_cuda = {"random.cuda": torch.cuda.get_rng_state()} if device.type == "cuda" else {}
    return {"random.torch": torch.get_rng_state(), **of_cuda}


def restore_random(device: torch.device, tensors: dict[str, Tensor]) -> None:
    """Restore what `random_state` returned; that of a GPU only on a GPU."""
    torch.set_rng_state(tensors["random.torch"])
    if "random.cuda" in tensors and device.type == "cuda":
        torch.cuda.set_rng_state(tensors["random.cuda"])


def _restore_generator(generator: torch.Generator, kept: Tensor) -> None:
    """Set the generator; if the checkpoint comes from another kind of device, derive a new seed from its state."""
    if len(kept) == len(generator.get_state()):
        generator.set_state(kept)
    else:
        generator.manual_seed(int.from_bytes(hashlib.sha256(kept.numpy().tobytes()).digest()[:6]))


def mark_of(train: Dataset) -> str:
    """A fingerprint of a training part: the names of its files, or some rows of its array, and all labels."""
    if isinstance(train.inputs, Tensor):
        rows = torch.linspace(0, len(train) - 1, min(len(train), SAMPLED)).long()
        digest = hashlib.sha256(train.inputs[rows].numpy().tobytes())
    else:
        digest = hashlib.sha256("\n".join(source.rpartition("/")[2] for source in train.sources).encode())  # folders may move
    for answers in (train.labels, train.targets, train.sets):
        digest.update(b"" if answers is None else answers.numpy().tobytes())
    return digest.hexdigest()[:16]


def under(prefix: str, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """The tensors whose names begin so, by the rest of their names."""
    return {name.removeprefix(prefix): value for name, value in tensors.items() if name.startswith(prefix)}
