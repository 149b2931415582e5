"""Run the example of every page here; each writes its picture next to it.

python docs/how-to/estimators/draw.py [PAGE ...]
"""

import os
import re
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent


def example(page: Path) -> str:
    """The one block of Python on a page."""
    (code,) = re.findall(r"^```python\n(.*?)^```", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    return str(code)


if __name__ == "__main__":
    os.chdir(HERE)
    for name in sys.argv[1:] or sorted(page.name for page in HERE.glob("*.md") if page.name != "index.md"):
        print(name)
        exec(compile(example(HERE / name), name, "exec"), {"__name__": "__main__"})
