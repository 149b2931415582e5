"""The documentation site: `make docs` builds it into docs/_build/html, without a network."""

import re
import sys
from pathlib import Path
from typing import Any

from docutils import nodes
from docutils.utils.math import MathError
from docutils.utils.math.latex2mathml import tex2mathml
from sphinx.application import Sphinx
from sphinx_gallery.sorting import FileNameSortKey

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent / "src"), str(HERE.parent), str(HERE)]

import reference_pages  # noqa: E402

import nearkin  # noqa: E402

project, author, version = "nearkin", "the nearkin contributors", nearkin.__version__
release, project_copyright = version, "the nearkin contributors, Apache-2.0"
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.autosummary", "numpydoc", "sphinx_gallery.gen_gallery"]
exclude_patterns = ["_build", "results/**/*.md", "**/README.md", "tutorials/**/GALLERY_HEADER.rst"]
templates_path = ["_templates"]
nitpicky = True
nitpick_ignore_regex = [(r"py:.*", r".*")]  # types of torch and numpy have no page here; links between pages are still checked
suppress_warnings = ["config.cache"]  # the gallery's settings hold classes

myst_enable_extensions = ["attrs_inline", "deflist", "dollarmath"]
myst_heading_anchors = 4

default_role = "literal"  # docstrings write `name` as Markdown does
autodoc_typehints = "none"  # numpydoc's Parameters have the types
autodoc_member_order = "bysource"
autosummary_generate = True
autosummary_ignore_module_all = False
maximum_signature_line_length = 88
numpydoc_show_class_members = False
numpydoc_use_plots = False
numpydoc_citation_re = r"^$"  # [key] names an entry of papers.bib, no footnote

sphinx_gallery_conf = {
    "examples_dirs": str(HERE.parent / "examples"),
    "gallery_dirs": "tutorials",
    "filename_pattern": r"/\d\d_",  # the numbered ones run; longer studies are only shown
    "within_subsection_order": FileNameSortKey,
    "download_all_examples": False,
    "show_memory": False,
    "show_signature": False,
    "remove_config_comments": True,
    "min_reported_time": 60,
    "plot_gallery": "True",
    "abort_on_example_error": True,
}

html_theme = "pydata_sphinx_theme"
html_title = f"nearkin {version}"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_math_renderer = "mathml"
html_show_sourcelink = False
html_copy_source = False
html_context = {"default_mode": "auto"}
html_sidebars = {"start": [], "decisions": []}
html_theme_options = {
    "logo": {"text": "nearkin"},
    "navbar_align": "left",
    "header_links_before_dropdown": 8,
    "navbar_end": ["theme-switcher"],
    "navbar_persistent": ["search-button"],
    "show_prev_next": False,
    "footer_start": ["copyright"],
    "footer_end": [],
    "secondary_sidebar_items": ["page-toc"],
    "navigation_with_keys": False,
    "show_toc_level": 2,
}

_CODE = re.compile(r"(`[^`]*`)")
_FIELDS = ("Parameters", "Other Parameters", "Returns", "Yields", "Raises", "Warns", "Attributes")
_AS_IT_IS = ("Examples", "See Also", "Methods")


def plain_docstring(_app: Sphinx, _what: str, _name: str, _obj: Any, _options: Any, lines: list[str]) -> None:
    """Docstrings are plain text: show indented equations as they stand, and let |x|, x_ and * mean themselves."""
    starts = [at - 1 for at, line in enumerate(lines) if at and re.fullmatch(r"-{3,}", line.strip())]
    parts = [lines[start:end] for start, end in zip([0, *starts], [*starts, len(lines)], strict=True)]
    shown = _prose(parts[0])
    for part in parts[1:]:
        if part[0] in _FIELDS:
            shown += [_escaped(line) if line.startswith(" ") else re.sub(r"_,", r"\\_,", line) for line in part]
        else:
            shown += part if part[0] in _AS_IT_IS else [*part[:2], *_prose(part[2:])]
    lines[:] = shown


def _prose(lines: list[str]) -> list[str]:
    """Paragraphs; what is indented below a blank line is shown letter by letter."""
    shown: list[str] = []
    block = directive = item = False
    for line in lines:
        indented = line.startswith(" ")
        if line.startswith("Differs:") and shown and shown[-1].strip():
            shown.append("")
        if line and not indented:
            block, directive, item = False, line.startswith(".."), line.startswith(("* ", "- "))
        if indented and not (block or directive or item) and (not shown or not shown[-1].strip()):
            block = True
            shown += [".. code-block:: text", ""]
        shown.append(line if block or directive else _escaped(line))
    return shown


def _escaped(line: str) -> str:
    """The line with marks of reStructuredText taken literally outside of `code`."""
    start = len(line) - len(line.lstrip(" "))
    bullet = start + 2 if line[start:].startswith("* ") else 0
    parts = _CODE.split(line[bullet:])
    parts[::2] = [re.sub(r"([|*]|(?<=\w)_(?!\w))", r"\\\1", part) for part in parts[::2]]
    parts[2::2] = [rf"\ {part}" if re.match(r"\w", part) else part for part in parts[2::2]]  # the s of `Hit`s
    return line[:bullet] + "".join(parts)


def _inside(_app: Sphinx, _name: str, source: list[str]) -> None:
    """Files of the repository's root that have a page on the site."""
    source[0] = re.sub(r"\]\((?:\.\./)+CONTRIBUTING\.md", "](/contributing.md", source[0])


def _mathml(self: Any, node: nodes.math | nodes.math_block) -> None:
    """Equations as MathML, which browsers draw themselves: no script is loaded from anywhere."""
    source = node.astext()
    try:
        self.body.append(tex2mathml(source, as_block=isinstance(node, nodes.math_block)))
    except MathError:
        self.body.append(f"<code>{self.encode(source)}</code>")
    raise nodes.SkipNode


def setup(app: Sphinx) -> None:
    """Write the generated part of the reference before anything is read."""
    app.add_html_math_renderer("mathml", inline_renderers=(_mathml, None), block_renderers=(_mathml, None))
    app.connect("autodoc-process-docstring", plain_docstring, priority=100)  # numpydoc reads the rest
    app.connect("source-read", _inside)
    reference_pages.write(HERE / "reference/generated")
