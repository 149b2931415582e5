"""Every paper that is named exists in papers.bib, every entry there is named, and cite prints it."""

import ast
import inspect
import re
from functools import cache
from pathlib import Path

import pytest

import nearkin
from nearkin import objectives
from nearkin.objectives import NCA, Angular, CenterLoss, CenterPull, DirectRegression, NeighborhoodObjective, NPair, Objective, WeightedSum
from nearkin.objectives.papers import bibliography, cite

SOURCE = Path(inspect.getfile(nearkin)).parent
KEY = re.compile(r"\[([a-z]+\d{4}[a-z0-9]*)\]")
DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)


@cache
def docstrings() -> list[tuple[str, str]]:
    """(file, docstring) of everything in the package; reading it takes seconds, which no worker should spend to collect its tests."""
    found = []
    for path in sorted(SOURCE.rglob("*.py")):
        nodes = (node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, DOCUMENTED))
        found += [(str(path.relative_to(SOURCE)), ast.get_docstring(node) or "") for node in nodes]
    return found


def named() -> set[str]:
    return {key for _, text in docstrings() for key in KEY.findall(text)}


CLASSES = [
    c for c in vars(objectives).values() if isinstance(c, type) and issubclass(c, Objective | WeightedSum) and c.__name__ in nearkin.__all__
]


def test_every_named_paper_is_in_the_bibliography() -> None:
    known = bibliography()
    missing = {(file, key) for file, text in docstrings() for key in KEY.findall(text) if key not in known}
    assert not missing and len(named()) > 20


def test_every_entry_is_named_somewhere() -> None:
    assert not bibliography().keys() - named()


def test_entries_are_whole() -> None:
    text = (SOURCE / "objectives/papers.bib").read_text()
    entries = bibliography()
    assert len(entries) == text.count("\n@") + 1 == len(re.findall(r"^@\w+\{", text, re.MULTILINE)), "no key occurs twice"
    for key, entry in entries.items():
        assert entry.startswith("@") and f"{{{key}," in entry and entry.endswith("\n}") and entry.count("{") == entry.count("}")
        assert all(re.search(rf"^  {field} +=", entry, re.MULTILINE) for field in ("title", "author", "year")), key


@pytest.mark.parametrize("kind", CLASSES, ids=lambda c: c.__name__)
def test_an_objective_names_the_papers_of_its_docstring(kind: type[Objective | WeightedSum]) -> None:
    own = set(KEY.findall(kind.__doc__ or ""))  # which may mention others
    assert set(kind.keys) <= bibliography().keys()
    if kind in (Objective, NeighborhoodObjective, WeightedSum, DirectRegression):  # which have no paper of their own
        assert not kind.keys and not own
    else:
        assert kind.keys and set(kind.keys) <= own


def test_cite_takes_instances_classes_and_sums() -> None:
    known = bibliography()
    assert cite(NCA()) == cite(NCA) == "\n\n".join(known[key] for key in NCA.keys)
    assert "Neighbourhood Components Analysis" in cite(NCA)
    both = WeightedSum({"npair": (1.0, NPair()), "angular": (2.0, Angular()), "again": (1.0, NPair())})
    assert cite(both) == f"{cite(NPair)}\n\n{cite(Angular)}", "each once"
    assert cite(CenterLoss) == cite(CenterLoss(2, 3)) and cite(CenterPull) in cite(CenterLoss)
    assert nearkin.cite is cite


def test_every_departure_from_a_paper_is_documented() -> None:
    as_published = {"Softmax", "NormalizedSoftmax"}
    for kind in CLASSES:
        assert kind.__doc__ and ("Differs:" in kind.__doc__ or not kind.keys or kind.__name__ in as_published), kind.__name__
