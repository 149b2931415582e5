"""Draw figures 4, 5 and 6 of Lu et al. from the runs in docs/results: `python docs/lu2019.py --data-root FOLDER [--data cub]`."""

import argparse
from pathlib import Path

from nearkin.reproduce.lu2019_figures import draw

HERE = Path(__file__).resolve().parent

if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", default="cub", choices=("cub", "omniglot", "cifar"), help="which set (default: %(default)s)")
    parser.add_argument("--data-root", type=Path, default=Path("data"), help="where the images are, for the gallery (default: %(default)s)")
    parser.add_argument("--results", type=Path, default=HERE / "results", help="where the runs are (default: %(default)s)")
    parser.add_argument("--out", type=Path, default=HERE / "figures", help="where the pictures go (default: %(default)s)")
    given = parser.parse_args()
    for path in draw(given.data, given.results, given.out, given.data_root):
        print(path)
