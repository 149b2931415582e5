"""Optimizers and learning rate schedules."""

import math
from collections.abc import Callable, Iterable
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor, nn

from nearkin.train.config import OptimizerChoice, ScheduleChoice


def make_optimizer(choice: OptimizerChoice, groups: Iterable[dict[str, Any]], device: torch.device) -> torch.optim.Optimizer:
    """SGD, Adam or conjugate gradient over parameter groups, each with a `rate` relative to the run's learning rate.

    On CUDA the learning rate is a tensor and the update is fused, so that a recorded graph can follow a schedule.
    """
    cuda = device.type == "cuda"
    rate: Any = torch.tensor(choice.learning_rate, device=device) if cuda else choice.learning_rate
    decay = choice.weight_decay
    listed = [{**group, "lr": rate.clone() if cuda else rate} for group in groups]
    if choice.name == "sgd":
        nesterov = choice.nesterov and choice.momentum > 0
        return torch.optim.SGD(listed, lr=rate, momentum=choice.momentum, nesterov=nesterov, weight_decay=decay, fused=cuda or None)
    if choice.name == "adam":
        return torch.optim.Adam(listed, lr=rate, weight_decay=decay, eps=choice.epsilon, fused=cuda or None, capturable=cuda)
    return ConjugateGradient(listed, choice.iterations)


def set_rate(optimizer: torch.optim.Optimizer, rate: float) -> None:
    """Set the learning rate of every group, in place if it is a tensor: a recorded graph reads that tensor."""
    for group in optimizer.param_groups:
        value = rate * group.get("rate", 1.0)
        if isinstance(group["lr"], Tensor):
            group["lr"].fill_(value)
        else:
            group["lr"] = value


class Schedule(Protocol):
    """The learning rate as a multiple of the run's."""

    def factor(self, step: int, steps: int | None = None) -> float:
        """The factor for a step; `steps` is the total, if it differs from the one the schedule was made for."""
        ...

    def epoch_ended(self, objective: float) -> None:
        """Receive the mean loss of the epoch that has ended."""
        ...

    def state(self) -> dict[str, float]:
        """What a checkpoint must store."""
        ...

    def restore(self, state: dict[str, float]) -> None:
        """Resume from a stored state."""
        ...


class Planned:
    """A schedule that depends on the step alone: constant, cosine, one-cycle or milestones, after a linear warm-up."""

    def __init__(self, choice: ScheduleChoice, steps: int, steps_an_epoch: int) -> None:
        self.choice, self.steps, self.steps_an_epoch = choice, max(steps, 1), max(steps_an_epoch, 1)

    def factor(self, step: int, steps: int | None = None) -> float:
        choice, steps = self.choice, steps or self.steps
        warm = choice.warmup * steps
        if choice.name == "one_cycle":
            peak = max(warm, 0.3 * steps)
            return (step + 1) / peak if step + 1 < peak else max(0.0, (steps - step) / (steps - peak + 1))
        grown = min(1.0, (step + 1) / warm) if warm > 0 else 1.0
        if choice.name == "cosine":
            return grown * 0.5 * (1 + math.cos(math.pi * min(step, steps) / steps))
        if choice.name == "milestones":
            epochs = steps / self.steps_an_epoch
            passed = sum(step // self.steps_an_epoch >= round(m * epochs) for m in choice.milestones)
            return grown * choice.factor**passed
        return grown

    def epoch_ended(self, objective: float) -> None:
        return None

    def state(self) -> dict[str, float]:
        return {}

    def restore(self, state: dict[str, float]) -> None:
        return None


class Plateau:
    """The rule of [ren2014convolutional]: after `patience` epochs without a lower loss, multiply the rate by `factor`."""

    def __init__(self, choice: ScheduleChoice, steps: int) -> None:
        self.choice, self.steps = choice, steps
        self.best, self.waited, self.scale = math.inf, 0, 1.0

    def factor(self, step: int, steps: int | None = None) -> float:
        warm = self.choice.warmup * (steps or self.steps)
        return self.scale * (min(1.0, (step + 1) / warm) if warm > 0 else 1.0)

    def epoch_ended(self, objective: float) -> None:
        if objective < self.best:
            self.best, self.waited = objective, 0
            return
        self.waited += 1
        if self.waited >= self.choice.patience:
            self.scale, self.waited = self.scale * self.choice.factor, 0

    def state(self) -> dict[str, float]:
        return {"best": self.best, "waited": self.waited, "scale": self.scale}

    def restore(self, state: dict[str, float]) -> None:
        self.best, self.waited, self.scale = state["best"], int(state["waited"]), state["scale"]


def make_schedule(choice: ScheduleChoice, epochs: int, steps_an_epoch: int) -> Schedule:
    """The schedule a run names."""
    steps = epochs * steps_an_epoch
    return Plateau(choice, steps) if choice.name == "plateau" else Planned(choice, steps, steps_an_epoch)


def conjugate_gradient(
    function: Callable[[np.ndarray], tuple[float, np.ndarray]], start: np.ndarray, iterations: int
) -> tuple[np.ndarray, list[float]]:
    """Nonlinear conjugate gradient (Polak-Ribiere, strong Wolfe line search) on a flat vector, the optimizer of [taylor2010pose].

    Values and gradients are divided by the length of the first gradient. SciPy's first step and tolerance are absolute: without that, a
    start with a small gradient, such as the published one of that paper, would count as a minimum.

    Returns the point and the value after every iteration, which never rises.
    """
    from scipy.optimize import minimize

    trace: list[float] = []
    unit = float(np.linalg.norm(function(start)[1])) or 1.0

    def scaled(point: np.ndarray) -> tuple[float, np.ndarray]:
        value, slope = function(point)
        return value / unit, slope / unit

    def remember(intermediate_result: Any) -> None:
        trace.append(unit * float(intermediate_result.fun))

    found = minimize(scaled, start, jac=True, method="CG", callback=remember, options={"maxiter": iterations})
    return found.x, trace


class ConjugateGradient(torch.optim.Optimizer):
    """`conjugate_gradient` as a torch optimizer: one step is `iterations` line searches, without memory of earlier steps.

    The closure must clear the gradients, compute them, and return the same loss for the same parameters.
    """

    def __init__(self, params: Any, iterations: int = 10) -> None:
        if iterations < 1:
            raise ValueError(f"optimizer.iterations ({iterations}) must be at least 1")
        super().__init__(params, {"lr": 0.0})
        self.iterations = iterations

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """The loss after the last line search."""
        if closure is None:
            raise ValueError("conjugate gradient evaluates the loss several times per step; pass a closure")
        parameters = [p for group in self.param_groups for p in group["params"]]

        def evaluate(vector: np.ndarray) -> tuple[float, np.ndarray]:
            unflat(vector, parameters)
            loss = float(closure())
            return loss, np.concatenate([_slope(p) for p in parameters])

        found, trace = conjugate_gradient(evaluate, flat(parameters), self.iterations)
        last = trace[-1] if trace else evaluate(found)[0]
        unflat(found, parameters)
        return torch.tensor(last)


def _slope(parameter: nn.Parameter) -> np.ndarray:
    if parameter.grad is None:
        return np.zeros(parameter.numel())
    return np.asarray(parameter.grad.detach().cpu().double().reshape(-1).numpy())


def flat(parameters: Iterable[nn.Parameter]) -> np.ndarray:
    """All parameters as one float64 vector."""
    return np.concatenate([p.detach().cpu().double().reshape(-1).numpy() for p in parameters])


@torch.no_grad()
def unflat(vector: np.ndarray, parameters: Iterable[nn.Parameter]) -> None:
    """Write one vector back into the parameters."""
    start = 0
    for p in parameters:
        piece = torch.from_numpy(vector[start : start + p.numel()]).reshape(p.shape)
        p.copy_(piece.to(p.dtype))
        start += p.numel()


def steady_rate(rates: list[float], objectives: list[float]) -> float:
    """The rule of [ren2014convolutional] on a learning-rate sweep: the largest rate at which the loss still falls steadily.

    The losses are smoothed. The result is half the rate at their minimum, for safety.
    """
    values = np.asarray(objectives, dtype=np.float64)
    finite = np.isfinite(values)
    values = np.where(finite, values, np.nanmax(values[finite]) * 10 if finite.any() else 0.0)
    window = max(3, len(values) // 20)
    smooth = np.convolve(np.pad(values, (window - 1, 0), mode="edge"), np.ones(window) / window, mode="valid")
    lowest = int(smooth.argmin())
    return rates[lowest] / 2
