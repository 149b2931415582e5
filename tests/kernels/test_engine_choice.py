"""Which engine is chosen, and the errors where one cannot be."""

from types import SimpleNamespace
from typing import Any, cast

import pytest
import torch
from torch import Tensor

from nearkin.kernels import engines, numba_loops
from nearkin.kernels.numba_tiles import NumbaTiles
from nearkin.kernels.torch_tiles import TorchTiles


def on(device: str) -> Tensor:
    return cast(Tensor, SimpleNamespace(device=SimpleNamespace(type=device)))


def test_auto_takes_the_fastest_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    assert isinstance(engines.choose("auto", torch.zeros(1, 1), "highest"), NumbaTiles)
    assert isinstance(engines.choose("auto", on("mps"), "highest"), TorchTiles)
    monkeypatch.setattr(engines, "find_spec", lambda _: None)
    assert isinstance(engines.choose("auto", torch.zeros(1, 1), "highest"), TorchTiles)


def test_cuda_without_triton_warns_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engines, "find_spec", lambda _: None)
    engines.has_triton.cache_clear()
    with pytest.warns(UserWarning, match="Triton is not installed: CUDA tensors go through the slower torch tiles") as caught:
        chosen = [engines.choose("auto", on("cuda"), "highest") for _ in range(3)]
    assert all(isinstance(engine, TorchTiles) for engine in chosen)
    engines.has_triton.cache_clear()
    assert len(caught) == 1


def test_a_triton_engine_is_made_once() -> None:
    pytest.importorskip("triton")
    fast = engines.choose("triton", on("cuda"), "fast")
    assert engines.choose("auto", on("cuda"), "fast") is fast and engines.choose("triton", on("cuda"), "highest") is not fast


@pytest.mark.parametrize(
    ("engine", "device", "precision", "error", "words"),
    [
        ("best", "cpu", "highest", ValueError, "engine 'best' is unknown; choose one of auto, dense, torch, numba, triton"),
        ("torch", "cpu", "double", ValueError, "precision 'double' is unknown; choose one of highest, high, fast"),
        ("dense", "cpu", "highest", ValueError, "engine 'dense' is the objective itself and never streams"),
        (
            "numba",
            "cuda",
            "highest",
            ValueError,
            "engine 'numba' runs on the CPU and the queries are on cuda; use engine='auto' or move them",
        ),
        ("triton", "cpu", "highest", ValueError, "engine 'triton' runs on CUDA and the queries are on cpu; use engine='auto', move them"),
    ],
)
def test_an_impossible_engine_is_refused_with_the_fix(
    engine: str, device: str, precision: str, error: type[Exception], words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("TRITON_INTERPRET", raising=False)
    with pytest.raises(error, match=words):
        engines.choose(engine, on(device), precision)


@pytest.mark.parametrize(
    ("engine", "device", "words"), [("numba", "cpu", r"pip install 'nearkin\[fast\]'"), ("triton", "cuda", "pip install triton")]
)
def test_a_missing_engine_names_what_to_install(engine: str, device: str, words: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engines, "find_spec", lambda _: None)
    engines._triton_engine.cache_clear()
    with pytest.raises(ImportError, match=words):
        engines.choose(engine, on(device), "highest")


def test_a_read_only_install_compiles_without_a_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    def njit(cache: bool = False, **options: Any) -> Any:
        if cache:
            raise RuntimeError("cannot cache function: no locator available")
        return lambda function: ("compiled", function)

    monkeypatch.setattr("numba.njit", njit)
    compiled: Any = numba_loops.outer(on)
    assert compiled == ("compiled", on)
