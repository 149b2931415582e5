"""Who may import whom, read from the imports themselves (design/architecture.md)."""

import ast
import inspect
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

import nearkin

SOURCE = Path(inspect.getfile(nearkin)).parent

# The rooms from the ground up. A room may import its own line and what stands below; circles are refused.
LINES = (
    ("compose",),
    ("data", "kernels"),
    ("objectives", "search"),
    ("models",),
    ("evaluate", "index"),
    ("train",),
    ("estimators",),
    ("report",),
    ("serve", "cluster"),
    ("cli", "__main__"),
)
HEIGHT = {name: height for height, line in enumerate(LINES) for name in line}

NEVER = {"search": {"objectives"}, "evaluate": {"objectives"}, "kernels": set(HEIGHT) - {"kernels", "compose"}}


def home(path: Path) -> str:
    """The package or module right under nearkin that a file belongs to."""
    return path.relative_to(SOURCE).parts[0].removesuffix(".py")


@cache
def files() -> list[Path]:
    return [path for path in sorted(SOURCE.rglob("*.py")) if path != SOURCE / "__init__.py"]  # the lazy door is exempt


@cache
def tree(path: Path) -> list[ast.AST]:
    return list(ast.walk(ast.parse(path.read_text())))


@cache
def imported(path: Path) -> set[str]:
    """Everything of ours that a file imports, as nearkin.x.y; imports inside functions and TYPE_CHECKING count too."""
    found: set[str] = set()
    for node in tree(path):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names if alias.name.split(".")[0] == "nearkin"}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path} imports relatively; say nearkin.…"
            if node.module == "nearkin":
                found |= {f"nearkin.{alias.name}" for alias in node.names if not alias.name.startswith("_")}
            elif node.module and node.module.startswith("nearkin."):
                found.add(node.module)
    return found


@cache
def uses() -> dict[str, set[str]]:
    """Which homes each home imports, itself left out."""
    graph: dict[str, set[str]] = {}
    for path in files():
        graph.setdefault(home(path), set()).update(name.split(".")[1] for name in imported(path) if "." in name)
    return {name: others - {name} for name, others in graph.items()}


def test_every_module_has_its_place() -> None:
    assert not {home(path) for path in files()} - set(HEIGHT), "give the new module a line in LINES"
    assert not {other for others in uses().values() for other in others} - set(HEIGHT), "import it from its own module, not from nearkin"


@pytest.mark.parametrize("name", sorted({home(path) for path in files()}))
def test_imports_go_down(name: str) -> None:
    up = {other for other in uses()[name] if HEIGHT[other] > HEIGHT[name]}
    assert not up, f"{name} stands below {sorted(up)}"
    assert not uses()[name] & NEVER.get(name, set())


def test_there_are_no_circles() -> None:
    graph, done, path = uses(), set[str](), list[str]()

    def visit(name: str) -> None:
        assert name not in path, f"circle: {' -> '.join([*path, name])}"
        if name not in done:
            path.append(name)
            for other in sorted(graph.get(name, ())):
                visit(other)
            path.pop()
            done.add(name)

    for name in sorted(graph):
        visit(name)


def test_nobody_below_the_command_line_imports_the_lazy_door() -> None:
    lazy = [str(path) for path in files() if "nearkin" in imported(path) and home(path) not in LINES[-1]]
    assert not lazy


def test_nothing_below_the_command_line_prints_or_parses_arguments() -> None:
    loud = []
    for path in files():
        if home(path) in LINES[-1]:
            continue
        for node in tree(path):
            prints = isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "print"
            parses = isinstance(node, ast.Import) and any(alias.name in ("argparse", "click") for alias in node.names)
            loud += [f"{path}:{node.lineno}"] if prints or parses else []
    assert not loud


def test_no_room_has_a_vague_name() -> None:
    vague = {"utils", "util", "common", "misc", "helpers", "base", "core", "tools"}
    assert not [path for path in files() if {part.removesuffix(".py") for part in path.relative_to(SOURCE).parts} & vague]


@pytest.mark.parametrize("statement", ["import nearkin", "import nearkin; dir(nearkin); nearkin.__version__"])
def test_importing_the_package_imports_no_torch(statement: str) -> None:
    code = f"import sys; {statement}; print(sorted({{'torch', 'numpy', 'sklearn'}} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env={"PYTHONPATH": str(SOURCE.parent)})
    assert done.stdout.strip() == "[]"


def test_parts_of_the_composition_are_found_where_people_look_for_them() -> None:
    names = "nearkin.affinity.cosine, nearkin.relation.SameLabel, nearkin.criterion.any_positive, nearkin.references.InBatch"
    code = f"import nearkin; print({names})"
    subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, env={"PYTHONPATH": str(SOURCE.parent)})


def test_every_public_name_is_there_and_no_other() -> None:
    assert all(getattr(nearkin, name) is not None for name in nearkin.__all__) and dir(nearkin) == sorted(nearkin.__all__)
    for name, where in {"CrossBatchMemory": "compose.CrossBatchMemory", "SupConLoss": "SupCon", "PerClass": "data.PerClass"}.items():
        with pytest.raises(AttributeError, match=f"module 'nearkin' has no attribute '{name}'; it is nearkin.{where}$"):
            getattr(nearkin, name)
    with pytest.raises(AttributeError, match="module 'nearkin' has no attribute 'Magic'$"):
        nearkin.Magic  # noqa: B018
