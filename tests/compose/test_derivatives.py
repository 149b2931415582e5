"""Functions with gradients of their own."""

import importlib
import inspect
import pkgutil
import re

import pytest
import torch

import nearkin.compose
import nearkin.objectives

IN_PLACE = re.compile(r"\.[a-z]\w*[a-z]_\(")


def functions() -> list[type[torch.autograd.Function]]:
    found = []
    for package in (nearkin.compose, nearkin.objectives):
        for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            for _, one in inspect.getmembers(importlib.import_module(module.name), inspect.isclass):
                if issubclass(one, torch.autograd.Function) and one.__module__ == module.name:
                    found.append(one)
    return found


@pytest.mark.parametrize("function", functions(), ids=lambda function: function.__name__)
def test_forward_changes_nothing_in_place(function: type[torch.autograd.Function]) -> None:
    """torch.compile of torch 2.11 silently gives a gradient of zero where an operation inside of `forward` works in place."""
    assert not IN_PLACE.search(inspect.getsource(function.forward))
