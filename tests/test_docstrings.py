"""Every public name is documented: a summary, every parameter, what it returns, and examples that run."""

import doctest
import importlib
import inspect
import pkgutil
import re
from functools import cache
from pathlib import Path
from typing import Any

import pytest

import nearkin

SOURCE = Path(inspect.getfile(nearkin)).parent
ROOMS = sorted(path.parent.name for path in SOURCE.glob("*/__init__.py") if path.parent.name != "cli")
FLAGS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE


def sections(text: str) -> dict[str, str]:
    """The sections of a numpydoc docstring by title; the text before them under ""."""
    parts = re.split(r"^([A-Z][A-Za-z ]+)\n-{3,}\n", inspect.cleandoc(text or ""), flags=re.MULTILINE)
    return {"": parts[0], **dict(zip(parts[1::2], parts[2::2], strict=True))}


def documented(text: str) -> set[str]:
    """The parameters that a docstring documents."""
    found = sections(text)
    lines = "\n".join(found.get(title, "") for title in ("Parameters", "Other Parameters", "Attributes"))
    return {name.strip(" *") for line in re.findall(r"^(\*{0,2}\w[\w, *]*?)\s*(?::|$)", lines, re.MULTILINE) for name in line.split(",")}


def parameters(function: Any) -> list[str]:
    try:
        found = inspect.signature(function).parameters
    except (TypeError, ValueError):
        return []
    return [name for name in found if name not in ("self", "cls", "args", "kwargs", "kwds") and not name.startswith("_")]


@cache
def public() -> dict[str, Any]:
    """Every public function and class, by its shortest name."""
    found: dict[str, Any] = {}
    for room in ROOMS:
        module = importlib.import_module(f"nearkin.{room}")
        for name in getattr(module, "__all__", ()):
            thing = getattr(module, name)
            if (inspect.isclass(thing) or callable(thing)) and str(getattr(thing, "__module__", "")).startswith("nearkin"):
                found[f"nearkin.{room}.{name}"] = thing
    for name in nearkin.__all__:
        thing = getattr(nearkin, name)
        if callable(thing) and not any(thing is other for other in found.values()):
            found[f"nearkin.{name}"] = thing
    return found


def methods(kind: type) -> dict[str, Any]:
    """What a class of ours defines for its users; what scikit-learn or torch define is documented there."""
    return {
        name: thing
        for name, thing in vars(kind).items()
        if not name.startswith("_") and inspect.isfunction(inspect.unwrap(getattr(thing, "__func__", thing)))
    }


def inherited(kind: type, name: str) -> bool:
    """Whether a method of that name is documented further up, by us or by a library whose protocol it is."""
    return any(inspect.getdoc(vars(base)[name]) for base in kind.__mro__[1:] if name in vars(base) and base is not object)


@pytest.mark.parametrize("name", sorted(public()))
def test_a_public_name_is_documented(name: str) -> None:
    thing = public()[name]
    text = inspect.getdoc(thing) or ""
    missing = []
    if not sections(text)[""].strip():
        missing.append("a summary")
    constructor = vars(thing).get("__init__") if inspect.isclass(thing) else None
    fields = list(getattr(thing, "_fields", ())) or (
        parameters(thing) if inspect.isclass(thing) and hasattr(thing, "__dataclass_fields__") else []
    )
    if fields:
        asked = fields
    elif inspect.isclass(thing):
        asked = parameters(constructor) if inspect.isfunction(constructor) else []
    else:
        asked = parameters(thing)
    if getattr(thing, "_is_protocol", False):
        asked = []
    missing += [f"parameter {each}" for each in asked if each not in documented(text)]
    if not inspect.isclass(thing) and inspect.signature(thing).return_annotation not in (None, "None", inspect.Signature.empty):
        missing += [] if {"Returns", "Yields"} & set(sections(text)) else ["Returns"]
    if not getattr(thing, "_is_protocol", False) and not (inspect.isclass(thing) and issubclass(thing, Exception)):
        missing += [] if "Examples" in sections(text) else ["Examples"]
    if inspect.isclass(thing):
        for each, method in methods(thing).items():
            said = inspect.getdoc(method) or ""
            if not said:
                missing.append(f"{each}: a summary")
            elif not inherited(thing, each):
                missing += [f"{each}: parameter {one}" for one in parameters(method) if one not in documented(said)]
    assert not missing, f"{name} lacks " + ", ".join(missing)


def modules() -> list[str]:
    named = ["nearkin", *(info.name for info in pkgutil.walk_packages([str(SOURCE)], "nearkin."))]
    paths = {name: SOURCE.joinpath(*name.split(".")[1:]) for name in named}
    texts = {name: path.with_suffix(".py") if path.with_suffix(".py").exists() else path / "__init__.py" for name, path in paths.items()}
    return [name for name, path in texts.items() if path.exists() and ">>> " in path.read_text(encoding="utf-8")]


@pytest.mark.parametrize("name", modules())
def test_the_examples_of_docstrings_run(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    failed, _ = doctest.testmod(importlib.import_module(name), optionflags=FLAGS)
    assert not failed
