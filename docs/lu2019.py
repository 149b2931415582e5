"""Draw figures 4, 5 and 6 of Lu et al. (2019) from the runs in docs/results, or write the recipe for retrieval from them.

python docs/lu2019.py --data-root FOLDER [--data cub omniglot]
python docs/lu2019.py --recipe

`python docs/generate.py` then shows the pictures in docs/papers/lu2019.md, and names the recipe.
"""

import argparse
from pathlib import Path

from papers.lu2019_pictures import draw
from papers.retrieval_recipe import write

ROOT = Path(__file__).resolve().parent.parent
RESULTS, RECIPE = ROOT / "docs/results", ROOT / "src/nearkin/train/retrieval.json"

if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", nargs="+", default=["cub"], choices=("cub", "omniglot", "cifar"), help="data sets (default: cub)")
    parser.add_argument("--data-root", type=Path, default=Path("data"), help="folder of the images, for the gallery (default: %(default)s)")
    parser.add_argument("--recipe", action="store_true", help="write the recipe of `nearkin train --for retrieval`, and draw nothing")
    arguments = parser.parse_args()
    if arguments.recipe:
        print(write(RESULTS, RECIPE))
    else:
        for name in arguments.data:
            print(*draw(name, RESULTS, RESULTS, arguments.data_root), sep="\n")
