"""The papers behind the objectives, as BibTeX."""

import re
from importlib.resources import files

from nearkin.objectives.objective import Objective
from nearkin.objectives.weighted_sum import WeightedSum


def bibliography() -> dict[str, str]:
    """Return every BibTeX entry of papers.bib by its key."""
    text = files("nearkin.objectives").joinpath("papers.bib").read_text(encoding="utf-8")
    entries = re.findall(r"^@\w+\{([^,]+),.*?^\}$", text, flags=re.MULTILINE | re.DOTALL)
    blocks = re.findall(r"^@\w+\{.*?^\}$", text, flags=re.MULTILINE | re.DOTALL)
    return dict(zip(entries, blocks, strict=True))


def cite(objective: Objective | WeightedSum | type[Objective | WeightedSum]) -> str:
    """Return the BibTeX entries of an objective's papers.

    Parameters
    ----------
    objective : Objective, WeightedSum, or the class of one
        For a sum, the papers of all its terms.

    Returns
    -------
    str
        The entries, with an empty line between two; empty if the objective has no paper.

    Examples
    --------
    >>> import nearkin
    >>> print(nearkin.cite(nearkin.NPair))
    @inproceedings{sohn2016npair,
      title     = {Improved Deep Metric Learning with Multi-class N-pair Loss Objective},
      author    = {Sohn, Kihyuk},
      booktitle = {Advances in Neural Information Processing Systems 29},
      year      = {2016}
    }
    """
    known = bibliography()
    return "\n\n".join(known[key] for key in objective.keys)
