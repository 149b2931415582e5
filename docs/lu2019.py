"""Draw figures 4, 5 and 6 of Lu et al. from the runs in docs/results; `python docs/generate.py` then shows them below their table.

python docs/lu2019.py --data-root FOLDER [--data cub omniglot]
"""

import argparse
from pathlib import Path

from nearkin.reproduce.lu2019_figures import draw

RESULTS = Path(__file__).resolve().parent / "results"

if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", nargs="+", default=["cub"], choices=("cub", "omniglot", "cifar"), help="which sets (default: cub)")
    parser.add_argument("--data-root", type=Path, default=Path("data"), help="where the images are, for the gallery (default: %(default)s)")
    given = parser.parse_args()
    for name in given.data:
        print(*draw(name, RESULTS, RESULTS, given.data_root), sep="\n")
