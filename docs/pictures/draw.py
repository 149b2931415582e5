"""Take the pictures of the explorer: docs/pictures/explorer.png and explorer-compare.png.

nearkin demo && nearkin demo --quick --out runs/before
python docs/pictures/draw.py [MODEL [OTHER]]      default: runs/demo runs/before; needs chromium and playwright
"""

import shutil
import sys
import tempfile
from pathlib import Path

from playwright.sync_api import Page, sync_playwright

from nearkin.cli import main

HERE = Path(__file__).resolve().parent


def shoot(page: Page, folder: Path, picture: str) -> None:
    """The worst point of an exported explorer, with its wrong neighbors."""
    page.goto(f"file://{folder.resolve()}/index.html")
    page.wait_for_function("document.documentElement.dataset.drawn", timeout=60_000)
    page.click(".welcome .main")
    page.wait_for_selector(".tile.wrong")
    page.wait_for_timeout(1500)  # pictures are still being decoded
    page.screenshot(path=HERE / picture)


if __name__ == "__main__":
    model, other = [*sys.argv[1:], "runs/demo", "runs/before"][:2] if len(sys.argv) < 3 else sys.argv[1:3]
    with tempfile.TemporaryDirectory() as name, sync_playwright() as play:
        one, two = Path(name) / "one", Path(name) / "two"
        main(["export", model, "--page", str(one)])
        main(["export", model, "--page", str(two), "--compare", other])
        found = shutil.which("chromium")
        browser = play.chromium.launch(executable_path=found, args=["--no-sandbox", "--disable-gpu"])
        page = browser.new_page(viewport={"width": 1400, "height": 900})
        shoot(page, one, "explorer.png")
        shoot(page, two, "explorer-compare.png")
        browser.close()
