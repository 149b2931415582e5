"""Where an objective comes from."""

import re
from importlib.resources import files

from nearkin.objectives import Objective, WeightedSum


def bibliography() -> dict[str, str]:
    """Every BibTeX entry of papers.bib by its key."""
    text = files("nearkin.objectives").joinpath("papers.bib").read_text(encoding="utf-8")
    entries = re.findall(r"^@\w+\{([^,]+),.*?^\}$", text, flags=re.MULTILINE | re.DOTALL)
    blocks = re.findall(r"^@\w+\{.*?^\}$", text, flags=re.MULTILINE | re.DOTALL)
    return dict(zip(entries, blocks, strict=True))


def cite(objective: Objective | WeightedSum | type[Objective | WeightedSum]) -> str:
    """The BibTeX of an objective's papers.

    >>> print(nearkin.cite(nearkin.NCA()))
    """
    known = bibliography()
    return "\n\n".join(known[key] for key in objective.keys)
