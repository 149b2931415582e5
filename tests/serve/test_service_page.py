"""The page in a real browser (Debian's chromium): upload, neighbors with pictures, click, filter, errors; and nothing in its console."""

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.serve.browsing import served, until
from tests.serve.small_model import encoded, make_collection, picture


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> str:
    return served(make_collection(tmp_path_factory.mktemp("page")))


@pytest.fixture
def page(browser: Any, address: str) -> Iterator[Any]:
    page = browser.new_page()
    said: list[str] = []
    page.on("console", lambda message: said.append(message.text))
    page.on("pageerror", lambda error: said.append(str(error)))
    page.on("request", lambda request: said.append(request.url) if not request.url.startswith((address, "data:", "blob:")) else None)
    page.goto(address)
    page.wait_for_selector("#few .card")
    yield page
    page.close()
    assert [line for line in said if "422" not in line] == []  # chromium itself notes refused requests


def labels(page: Any) -> list[str]:
    return page.locator("#neighbors .label").all_inner_texts()


def loaded(page: Any) -> bool:
    return page.evaluate("[...document.querySelectorAll('#neighbors img')].every((image) => image.complete && image.naturalWidth > 0)")


def test_an_uploaded_image_gets_its_neighbors(page: Any) -> None:
    assert page.inner_text("#about") == "60 points · 8 dimensions · exact search"
    page.set_input_files("#file", {"name": "mine.png", "mimeType": "image/png", "buffer": encoded(picture("red", 50))})
    page.wait_for_selector("#neighbors .card")
    assert labels(page) == ["red"] * 10 and page.inner_text("#title") == "mine.png"
    assert page.locator("#neighbors .badge.yes").count() == 10 and page.inner_text("#neighbors .badge.yes >> nth=0") == "likely same class"
    assert "10 exact neighbors" in page.inner_text("#took") and "encoding" in page.inner_text("#took")
    page.locator("#neighbors img").last.scroll_into_view_if_needed()
    until(page, "[...document.querySelectorAll('#neighbors img')].every((image) => image.complete)")
    assert loaded(page)


def test_a_click_continues_from_a_neighbor_also_by_keyboard(page: Any) -> None:
    page.locator("#few .card").first.focus()
    page.keyboard.press("Enter")
    page.wait_for_selector("#neighbors .card")
    assert page.inner_text("#title").startswith("Point 0")
    page.click("#neighbors .card >> nth=2")
    until(page, "!document.getElementById('title').textContent.startsWith('Point 0')")
    page.select_option("#k", "20")
    until(page, "document.querySelectorAll('#neighbors .card').length === 20")
    page.select_option("#label", "green")
    until(page, "[...document.querySelectorAll('#neighbors .label')].every((one) => one.textContent === 'green')")
    assert len(labels(page)) == 20 and page.locator("#neighbors .badge:not(.yes)").first.inner_text() == "unsure"


def test_a_file_that_is_no_image_is_reported(page: Any) -> None:
    page.set_input_files("#file", {"name": "bad.png", "mimeType": "image/png", "buffer": b"nothing like it"})
    page.wait_for_selector("#note.wrong")
    assert "cannot be decoded" in page.inner_text("#note")
    page.set_input_files("#file", {"name": "notes.txt", "mimeType": "text/plain", "buffer": b"words"})
    until(page, "document.getElementById('note').textContent.startsWith('That is not an image')")


def test_light_and_dark(browser: Any, address: str, tmp_path: Path) -> None:
    seen = []
    for scheme in ("light", "dark"):
        page = browser.new_page(color_scheme=scheme)
        page.goto(address)
        seen.append(page.evaluate("getComputedStyle(document.body).backgroundColor"))
        page.close()
    assert seen == ["rgb(251, 250, 247)", "rgb(20, 22, 26)"]


def test_it_is_quick_to_stand(browser: Any, address: str) -> None:
    page = browser.new_page()
    started = time.monotonic()
    page.goto(address)
    page.wait_for_selector("#few .card")
    assert time.monotonic() - started < 5
    page.close()
