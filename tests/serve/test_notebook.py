"""The explorer in a notebook: page and Python tell each other the selection; a real kernel runs the notebook of the docs."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from nearkin.evaluate import Score
from nearkin.serve.notebook import FRAME, show
from tests.serve.browsing import until

ROOT = Path(__file__).resolve().parents[2]
HOST = """<!doctype html><body><div id="cell"></div><script type="module">
const page = PAGE;
const held = { page, height: 700, selection: [], shown: [] }, heard = {};
window.model = {
  get: (name) => held[name], set: (name, value) => { held[name] = value; }, save_changes() { window.saved = held.selection; },
  on: (name, act) => { heard[name] = act; }, off() {}, say(rows) { held.shown = rows; heard["change:shown"](); },
};
const code = URL.createObjectURL(new Blob([FRAME], { type: "text/javascript" }));
(await import(code)).default.render({ model: window.model, el: document.getElementById("cell") });
</script></body>"""


def test_the_page_and_python_tell_each_other_what_is_selected(browser: Any, tmp_path: Path) -> None:
    pytest.importorskip("anywidget")
    x = np.random.default_rng(0).normal(size=(30, 4)) + 8 * np.eye(4)[np.arange(30) % 2]
    images = np.arange(30 * 64, dtype=np.uint8).reshape(30, 8, 8)
    widget = show(x, labels=["</script><b>cat", "dog"] * 15, images=images, method="pca")
    assert widget.selection == []
    text = HOST.replace("PAGE", json.dumps(widget.page).replace("</", "<\\/")).replace("FRAME", json.dumps(FRAME))
    (tmp_path / "host.html").write_text(text, encoding="utf-8")
    page = browser.new_page(viewport={"width": 1300, "height": 800})
    problems: list[str] = []
    page.on("console", lambda one: problems.append(one.text) if one.type == "error" else None)
    page.on("pageerror", lambda error: problems.append(str(error)))
    page.goto((tmp_path / "host.html").as_uri())
    page.wait_for_selector("iframe")
    frame = page.frames[1]
    for _ in range(200):
        if frame.evaluate("document.documentElement.dataset.drawn || ''") and frame.evaluate("document.getElementById('cover').hidden"):
            break
        page.wait_for_timeout(50)
    assert frame.locator("#legend .name").all_inner_texts() == ["</script><b>cat", "dog"]
    frame.fill("#id", "7")
    frame.press("#id", "Enter")
    until(page, "JSON.stringify(window.saved) === '[7]'")
    assert frame.locator(".visit .tile .picture").count() == 10
    page.evaluate("model.say([1, 3, 5])")
    until(page, "JSON.stringify(window.saved) === '[1,3,5]'")
    assert frame.inner_text(".selection .source") == "3 points"
    page.close()
    assert problems == []


def test_images_may_be_files_arrays_or_pillow_images(tmp_path: Path) -> None:
    pytest.importorskip("anywidget")
    x = np.eye(6)
    Image.new("RGB", (9, 9)).save(tmp_path / "a.png")
    color = np.zeros((6, 3, 12, 10), dtype=np.uint8)
    for images in ([str(tmp_path / "a.png")] * 6, [Image.new("L", (5, 5))] * 6, color):
        assert "data:image/" in show(x, images=images, method="pca").page
    with pytest.raises(ValueError, match=r"images: image 0 is float64 \(4,\); give uint8 pixels"):
        show(x, images=np.zeros((6, 4)), method="pca")
    with pytest.raises(ValueError, match="method 'umap' is unknown"):
        show(x, method="umap")


def test_scores_render_as_tables() -> None:
    text = Score("map", 0.75, 0.7, 0.8, chance=0.1, counted=200, left_out={"no <positive>": 3})._repr_html_()
    assert "<td" in text and "0.7 to 0.8" in text and "3 no &lt;positive&gt;" in text


RUN = """
import sys, nbformat
from nbclient import NotebookClient
book = nbformat.read(sys.argv[1], as_version=4)
book.cells.append(nbformat.v4.new_code_cell(
    "from nearkin.train import NotebookProgress; bar = NotebookProgress(); bar.started(10, 0); bar.step(1, {'loss': 1.0}); "
    "bar.epoch({'epoch': 1, 'loss': 0.5}); bar.words.value"))
NotebookClient(book, timeout=240, kernel_name="python3").execute()
nbformat.write(book, sys.argv[2])
"""


def test_a_real_kernel_runs_the_notebook_of_the_docs(tmp_path: Path) -> None:
    for name in ("nbclient", "ipykernel", "anywidget"):
        pytest.importorskip(name)
    command = [sys.executable, "-c", RUN, str(ROOT / "docs/notebooks/clean_and_pick.ipynb"), str(tmp_path / "run.ipynb")]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), os.environ.get("PYTHONPATH", "")])}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    cells = [cell for cell in json.loads((tmp_path / "run.ipynb").read_text())["cells"] if cell["cell_type"] == "code"]
    shown = ["".join(str(one.get("data", "")) for one in cell["outputs"]) for cell in cells]
    assert "other points say 0, not 4" in shown[1] and "<table>" in shown[1]
    assert "points to label next" in shown[2]
    assert "application/vnd.jupyter.widget-view+json" in shown[3] and "(0, 64)" in shown[4]
    assert "epoch 1: loss 0.5" in shown[5]
