"""The explorer measured in headless chromium: `python -m bench.explorer [--quick] [--out FILE.json]`.

60,000 points (targets: all drawn 3 s after navigation, neighbors 300 ms after a click, a bundle below 1 MB, no console errors) and
100,000, from the service and from disk. The points are ten Gaussian clusters in 64 dimensions with pictures of 28 x 28, the map is
from PCA; building it once, before, is timed separately. Every page is opened by a fresh browser context, so nothing is cached.
"""

import argparse
import io
import json
import os
import platform
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image
from playwright.sync_api import Browser, Page, sync_playwright

from bench.measure import threads
from bench.service import serving
from nearkin.index.collection import Collection, model_version
from nearkin.index.contract import Entries
from nearkin.index.local import LocalIndex
from nearkin.models.folder import build_network, load
from nearkin.serve.atlas.export import asset, write_page
from nearkin.serve.atlas.model_maps import Indexed, ModelMap, build_maps
from nearkin.train.loop import save

D, CLASSES, CLICKS, VISITS = 64, 10, 12, 3
Figures = dict[str, Any]
# Resolves with the time from the next click to the frame in which the point's neighbors are in the page.
WAIT = """(row) => new Promise((done) => {
  let clicked = 0;
  window.addEventListener("mouseup", () => { clicked = clicked || performance.now(); }, { capture: true, once: true });
  const look = () => (clicked && explorer.row() !== null && explorer.row() !== window.seen && document.querySelector(".visit .tile")
    ? requestAnimationFrame(() => { window.seen = explorer.row(); done(performance.now() - clicked); }) : requestAnimationFrame(look));
  look();
})"""


def made(folder: Path, n: int) -> Collection:
    """A model folder whose index holds n points in ten clusters, one in a hundred with a wrong label."""
    about = {
        "format": 1,
        "kind": "images",
        "shape": [1, 28, 28],
        "classes": [str(i) for i in range(CLASSES)],
        "targets": [],
        "supervision": "classes",
        "objective": "nca",
        "why": "a benchmark",
        "network": {"name": "convnet", "dimension": D, "normalize": False, "options": {}},
        "prepare": [],
        "metric": "squared_euclidean",
    }
    save(folder, build_network(about), about)
    random = np.random.default_rng(0)
    labels = random.integers(0, CLASSES, n)
    vectors = (2 * random.normal(size=(CLASSES, D))[labels] + random.normal(size=(n, D))).astype(np.float32)
    labels[random.random(n) < 0.01] = 0
    pictures = [_picture(random) for _ in range(500)]
    index = LocalIndex.create(folder / "index", model=model_version(folder), metric="squared_euclidean", dimension=D)
    index.add(
        Entries(
            vectors,
            labels=[str(label) for label in labels],
            sources=[f"/data/photos/{i:06d}.png" for i in range(n)],
            metadata=[{"data": "photos", "split": "test" if i % 6 == 0 else "train"} for i in range(n)],
            thumbnails=[pictures[i % len(pictures)] for i in range(n)],
        )
    )
    return Collection(folder, load(folder, device="cpu"), index)


def _picture(random: np.random.Generator) -> bytes:
    out = io.BytesIO()
    Image.fromarray(random.integers(0, 255, (28, 28), dtype=np.uint8)).save(out, "PNG")
    return out.getvalue()


@contextmanager
def visiting(browser: Browser, address: str, errors: list[str]) -> Iterator[Page]:
    context = browser.new_context(viewport={"width": 1280, "height": 800})
    page = context.new_page()
    page.on("console", lambda one: errors.append(one.text) if one.type == "error" else None)
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.goto(address)
    page.wait_for_function("document.documentElement.dataset.drawn", timeout=60_000)
    yield page
    context.close()


def visits(browser: Browser, address: str, n: int) -> Figures:
    """Seconds from navigation until all points are drawn, visit by visit, and milliseconds from click to neighbors."""
    drawn, clicks, errors = list[float](), list[float](), list[str]()
    for visit in range(VISITS):
        with visiting(browser, address, errors) as page:
            drawn.append(page.evaluate("performance.getEntriesByName('drawn')[0].startTime") / 1000)
            clicks += [clicked(page, row) for row in np.linspace(7, n - 7, CLICKS).astype(int).tolist()] if visit == VISITS - 1 else []
    return {
        "drawn_s": drawn,
        "first_drawn_s": drawn[0],
        "slowest_drawn_s": max(drawn),
        "click_ms": statistics.median(clicks),
        "slowest_click_ms": max(clicks),
        "clicks": len(clicks),
        "console_errors": len(errors),
    }


def clicked(page: Page, row: int) -> float:
    """A click where the point is; in a dense map a neighbor on the screen may be hit, which is as good."""
    page.keyboard.press("Escape")
    x, y = page.evaluate(f"explorer.screen({row})")
    page.mouse.move(x + 3, y + 3)
    page.mouse.move(x, y)
    page.wait_for_timeout(150)  # a hand rests before it clicks
    waiting = page.evaluate_handle(f"({{ found: ({WAIT})({row}) }})")
    page.mouse.click(x, y)
    return float(page.evaluate("async (one) => await one.found", waiting))


def drawing(collection: Collection) -> tuple[list[ModelMap], float]:
    """The atlas, which is left in the model folder, and the seconds it took."""
    started = time.perf_counter()
    drawn = list(build_maps([Indexed(collection.folder, collection.index)], "pca"))[-1]
    return drawn, time.perf_counter() - started


def measured(browser: Browser, n: int) -> Figures:
    with tempfile.TemporaryDirectory() as place:
        collection = made(Path(place) / "model", n)
        drawn, seconds = drawing(collection)
        with serving(collection.folder, "--map", "pca") as connection:
            served = visits(browser, f"http://{connection.host}:{connection.port}/explore", n)
        page = write_page(drawn, Path(place) / "out")
        size = sum(file.stat().st_size for file in page.parent.rglob("*") if file.is_file())
        return {"points": n, "drawing_s": seconds, "service": served, "disk": visits(browser, page.as_uri(), n), "folder_mb": size / 1e6}


def first_wrong(browser: Browser) -> float:
    """Seconds from the start of `nearkin serve` on the demo's model to the first wrong neighbor on the screen."""
    with tempfile.TemporaryDirectory() as place:
        subprocess.run([sys.executable, "-m", "nearkin", "demo", "--quick", "--out", place], check=True, capture_output=True)
        started = time.perf_counter()
        with serving(Path(place)) as connection, visiting(browser, f"http://{connection.host}:{connection.port}/explore", []) as page:
            page.click(".welcome .main")
            page.wait_for_selector(".tile.wrong")
            return time.perf_counter() - started


def print_summary(found: Figures) -> None:
    for one in found["sizes"]:
        print(f"{one['points']:,} points, atlas drawn once in {one['drawing_s']:.0f} s (PCA), folder {one['folder_mb']:.0f} MB")
        for where in ("service", "disk"):
            row = one[where]
            print(
                f"  {where}: all drawn {row['first_drawn_s']:.2f} s after the first navigation, at most {row['slowest_drawn_s']:.2f} s; "
                f"neighbors {row['click_ms']:.0f} ms after a click, at most {row['slowest_click_ms']:.0f} ms; "
                f"{row['console_errors']} console errors"
            )
    print(
        f"bundle {found['bundle_kb']:.0f} kB; from `nearkin serve` on the demo's model to a wrong neighbor {found['first_wrong_s']:.1f} s"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="a twentieth of the points: does it run?")
    parser.add_argument("--out", type=Path, metavar="FILE.json")
    arguments = parser.parse_args()
    sizes = [3_000] if arguments.quick else [60_000, 100_000]
    bundle = sum(len(asset(name)) for name in ("index.html", "explorer.js", "explorer.css")) / 1000
    load = os.getloadavg()[0]  # what else the machine has to do: a browser without a GPU needs both cores
    with threads(1), sync_playwright() as running:
        browser = running.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        version = browser.version
        first = first_wrong(browser)
        found = [measured(browser, n) for n in sizes]
        browser.close()
    about = {"command": "python -m bench.explorer", "date": datetime.now(UTC).isoformat(timespec="seconds"), "chromium": version}
    page = {
        **about,
        "machine": platform.machine(),
        "cores": os.cpu_count(),
        "load": load,
        "bundle_kb": bundle,
        "first_wrong_s": first,
        "visits": VISITS,
        "sizes": found,
    }
    print_summary(page)
    if arguments.out:
        arguments.out.write_text(json.dumps(page, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
