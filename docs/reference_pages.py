"""The generated part of the reference: one page for each room's public names, one for the configuration, one for the command line.

`make docs` writes them into docs/reference/generated, which git ignores.
"""

import ast
import dataclasses
import inspect
import io
import os
from argparse import _SubParsersAction
from contextlib import redirect_stdout
from importlib import import_module
from pathlib import Path
from typing import Any, Literal, get_args, get_origin, get_type_hints

import nearkin
from nearkin.train import config

SOURCE = Path(nearkin.__file__).parent
ROOMS = (  # in the order of the work: what an objective is made of, how it is trained, what is done with the model
    "compose",
    "objectives",
    "kernels",
    "data",
    "models",
    "train",
    "estimators",
    "search",
    "evaluate",
    "report",
    "index",
    "serve",
    "cluster",
)


def write(folder: Path) -> None:
    """Write all pages; files that did not change keep their dates, so that a second build is short."""
    pages = {"python.md": overview(), "configuration.md": configuration(), "command-line.md": command_line(), "layout.md": layout()}
    pages |= {f"{room}.rst": room_page(room) for room in ROOMS} | {"top-level.md": top_level()}
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in pages.items():
        path = folder / name
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            path.write_text(text, encoding="utf-8")
    public = {f"nearkin.{room}.{name}" for room in ROOMS for name in getattr(import_module(f"nearkin.{room}"), "__all__", ())}
    for path in folder.glob("api/*.rst"):
        if path.stem not in public:  # of a name that is gone
            path.unlink()


def rooms() -> dict[str, str]:
    """Every room, in reading order, with the first sentence of its docstring; no room is imported."""
    names = [*ROOMS, *sorted({path.parent.name for path in SOURCE.glob("*/__init__.py")} - {*ROOMS})]
    docs = {name: ast.get_docstring(ast.parse((SOURCE / name / "__init__.py").read_text(encoding="utf-8"))) or "" for name in names}
    return {name: " ".join(doc.split("\n\n")[0].split()) for name, doc in docs.items()}


def layout() -> str:
    """What is where in the repository."""
    width = max(map(len, rooms())) + 2
    lines = "\n".join(f"  {name + '/':<{width}}{_wrapped(about, width + 2)}" for name, about in rooms().items())
    others = {
        "papers/": "tables of published papers, run again: `python -m papers`; not part of the wheel",
        "bench/": "benchmarks: time, memory and error next to other libraries",
        "docs/": "this site, and the measurements its tables are made from",
        "examples/": "the tutorials as scripts",
        "tests/": "a folder for each room",
        "web/": "the sources of the explorer page",
    }
    return "\n".join(
        [
            "# What is where",
            "",
            "The package has one folder for each stage of the work. The first sentence of each is that of its docstring.",
            "",
            f"```text\nsrc/nearkin/\n{lines}\n```",
            "",
            "Next to the package:",
            "",
            "| folder | what it holds |",
            "|---|---|",
            *(f"| `{name}` | {about} |" for name, about in others.items()),
            "",
        ]
    )


def _wrapped(text: str, indent: int, width: int = 110) -> str:
    lines = [""]
    for word in text.split():
        if len(lines[-1]) + len(word) + 1 > width - indent:
            lines.append("")
        lines[-1] = f"{lines[-1]} {word}".strip()
    return ("\n" + " " * indent).join(lines)


def overview() -> str:
    """The first page of the Python reference."""
    rows = [f"| [`nearkin.{name}`]({name}.rst) | {about} |" for name, about in rooms().items() if name in ROOMS]
    listed = "\n".join(["top-level", *ROOMS])
    return "\n".join(
        [
            "# Python",
            "",
            "The package has one subpackage for each stage of the work. `import nearkin` loads none of them:",
            "names are imported when they are first used. The names you need most are also",
            "[at the top level](top-level.md).",
            "",
            "| subpackage | what it holds |",
            "|---|---|",
            *rows,
            "",
            f"```{{toctree}}\n:hidden:\n\n{listed}\n```",
            "",
        ]
    )


def room_page(room: str) -> str:
    """A room: its docstring, and a table of its public names, each with a page of its own."""
    module = import_module(f"nearkin.{room}")
    title = f"nearkin.{room}"
    names = "\n".join(f"   {name}" for name in sorted(getattr(module, "__all__", ()), key=_kind_and_name(module)))
    table = f".. autosummary::\n   :toctree: api\n   :nosignatures:\n\n{names}\n" if names else ""
    return f"{title}\n{'=' * len(title)}\n\n.. automodule:: {title}\n   :no-members:\n\n.. currentmodule:: {title}\n\n{table}"


def _kind_and_name(module: Any) -> Any:
    """Classes, functions and data in this order, each by name."""

    def key(name: str) -> tuple[int, str]:
        value = getattr(module, name)
        return (0 if inspect.isclass(value) else 1 if callable(value) else 2, name.lower())

    return key


def top_level() -> str:
    """Names that `import nearkin` offers, and the room each has its page in."""
    lines = ["# Top-level names", "", "`from nearkin import ...` offers these; each is documented with its subpackage.", ""]
    rows = []
    for home, names in sorted(nearkin._HOMES.items()):
        room = home.split(".")[1]
        for name in sorted(names, key=str.lower):
            public = name in getattr(import_module(f"nearkin.{room}"), "__all__", ())
            shown = f"[`{name}`](api/nearkin.{room}.{name}.rst)" if public else f"`{name}`"
            about = (inspect.getdoc(getattr(nearkin, name)) or "").split("\n\n")[0]
            rows.append((room, f"| {shown} | {_cell(about)} |"))
    for room in dict.fromkeys(room for room, _ in rows):
        lines += [f"## From nearkin.{room}", "", "| name | what it is |", "|---|---|", *(row for home, row in rows if home == room), ""]
    return "\n".join(lines)


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|").replace("<", "&lt;").replace("[", "\\[")


def configuration() -> str:
    """Every leaf of a run: name, type, default and meaning, read from the dataclasses of `nearkin.train.config`."""
    source = Path(config.__file__).read_text(encoding="utf-8")
    lines = [
        "# Configuration",
        "",
        "Every setting of a training, as `nearkin train --set NAME=VALUE` takes it. A run is a tree of frozen",
        "dataclasses ([`Run`](api/nearkin.train.Run.rst)); `run.json` in the model folder holds it. A mistyped name is an",
        "error that names the nearest known one. `options` are the arguments of whatever the `name` next to them builds:",
        "`--set objective.options.temperature=0.1`.",
        "",
    ]
    plain, parts = [], []
    for item in dataclasses.fields(config.Run):
        hint = get_type_hints(config.Run)[item.name]
        (parts if dataclasses.is_dataclass(hint) else plain).append((item, hint))
    lines += ["## Top level", "", *_leaves(config.Run, "", [item for item, _ in plain], source)]
    for item, hint in parts:
        default = item.default_factory() if callable(item.default_factory) else item.default
        about = (inspect.getdoc(hint) or "").split("\n\n")[0]
        lines += [f"## {item.name}", "", _prose(about), "", *_leaves(hint, f"{item.name}.", dataclasses.fields(hint), source, default)]
    return "\n".join(lines)


def _prose(text: str) -> str:
    return " ".join(text.split())


def _leaves(kind: type, prefix: str, items: Any, source: str, values: Any = None) -> list[str]:
    notes = _comments(kind, source)
    rows = ["| setting | type | default | meaning |", "|---|---|---|---|"]
    for item in items:
        default = getattr(values, item.name) if values is not None else item.default
        rows.append(f"| `{prefix}{item.name}` | {_typed(item.type)} | `{_value(default)}` | {notes.get(item.name, '')} |")
    return [*rows, ""]


def _typed(hint: Any) -> str:
    """A type in words: the allowed values of a Literal, "int or none" for an optional one."""
    if get_origin(hint) is Literal:
        return ", ".join(f"`{value}`" for value in get_args(hint))
    text = inspect.formatannotation(hint).replace("collections.abc.", "").replace("Mapping[str, Any]", "options")
    return text.replace("typing.", "").replace("None", "none").replace(" | ", " or ")


def _value(default: Any) -> str:
    if default is None or isinstance(default, bool):
        return str(default).lower()
    return "{}" if isinstance(default, dict) else str(default)


def _comments(kind: type, source: str) -> dict[str, str]:
    """What is written about each field: numpydoc's Parameters or Attributes if there are any, or the comment behind it."""
    found = {}
    tree = next(node for node in ast.parse(source).body if isinstance(node, ast.ClassDef) and node.name == kind.__name__)
    lines = source.splitlines()
    for node in tree.body:
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and node.end_lineno:
            _, _, note = lines[node.end_lineno - 1].partition("  # ")
            found[node.target.id] = note.replace("|", "\\|")
    return found | _documented(inspect.getdoc(kind) or "")


def _documented(doc: str) -> dict[str, str]:
    """The entries of numpydoc's Parameters and Attributes."""
    from numpydoc.docscrape import NumpyDocString

    sections = NumpyDocString(doc)
    entries = [*sections["Parameters"], *sections["Attributes"]]
    return {
        name.strip(): " ".join(" ".join(entry.desc).split()).replace("|", "\\|")
        for entry in entries
        for name in entry.name.split(",")
        if entry.desc
    }


def command_line() -> str:
    """The help of every verb, as `nearkin VERB --help` prints it."""
    from nearkin.cli import _parser

    os.environ["COLUMNS"] = "100"
    parser = _parser()
    verbs = next(action for action in parser._actions if isinstance(action, _SubParsersAction)).choices
    lines = ["# Command line", "", "What `nearkin VERB --help` prints.", "", f"```text\n{_help(parser)}\n```", ""]
    for name, verb in verbs.items():
        lines += [f"## nearkin {name}", "", f"```text\n{_help(verb)}\n```", ""]
    return "\n".join(lines)


def _help(parser: Any) -> str:
    text = io.StringIO()
    with redirect_stdout(text):
        parser.print_help()
    return text.getvalue().rstrip()
