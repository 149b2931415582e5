"""The service and its pages for texts: search by a sentence, texts shown instead of images."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient

import nearkin
from nearkin.data import Dataset, Texts
from nearkin.index.collection import Collection, build_index
from nearkin.models.text_encoders import fit_words
from nearkin.serve.app import make_app
from nearkin.train import Run, override
from nearkin.train.training import train
from tests.serve.browsing import served
from tests.train.test_texts import sentences

ASKED = "the sail near the harbor"


@pytest.fixture(scope="module")
def collection(tmp_path_factory: pytest.TempPathFactory) -> Collection:
    folder = tmp_path_factory.mktemp("texts") / "m"
    texts, kinds = sentences(8)
    names = tuple(dict.fromkeys(kinds))
    data = Dataset("notes", Texts(texts), labels=nearkin.compose.encode_labels([names.index(kind) for kind in kinds])[0], classes=names)
    train(override(Run(), {"network.scratch": "true", "network.dimension": "4", "epochs": "1"}), folder, data=data, device="cpu")
    held = nearkin.load(folder, device="cpu").tokenized(texts)
    return build_index(folder, Dataset(data.name, held, labels=data.labels, classes=names), device="cpu")[0]


@pytest.fixture(scope="module")
def client(collection: Collection) -> Iterator[TestClient]:
    with TestClient(make_app(collection), base_url="http://127.0.0.1") as client:
        yield client


def test_a_sentence_finds_its_neighbors(client: TestClient) -> None:
    assert client.get("/health").json()["reads"] == "texts"
    found = client.post("/search?k=3", json={"text": ASKED}).json()
    assert [one["label"] for one in found["neighbors"]] == ["boat"] * 3
    assert found["neighbors"][0]["metadata"]["text"] and found["neighbors"][0]["image"] is None


@pytest.mark.parametrize(
    ("body", "status", "words"),
    [
        ({"text": "  "}, 422, "text is empty; send a sentence"),
        ({"text": "a", "id": 1}, 422, "exactly one of id, vector and text"),
        ({"text": "x" * 20_001}, 422, "20000 characters"),
        ({"text": "x" * 300_000}, 413, "an id, a vector, a row or a text"),
        ({}, 422, "exactly one of id, vector and text"),
    ],
)
def test_bad_texts_are_refused(client: TestClient, body: Any, status: int, words: str) -> None:
    answer = client.post("/search", json=body)
    assert answer.status_code == status and words in answer.json()["error"]["message"]


def test_images_are_refused(client: TestClient) -> None:
    answer = client.post("/search", content=b"no image", headers={"Content-Type": "image/png"})
    assert (
        answer.status_code == 422 and "this model reads texts, not images; search by id or by a text" in answer.json()["error"]["message"]
    )
    schema = client.get("/openapi.json").json()["paths"]["/search"]["post"]["requestBody"]["content"]
    assert list(schema) == ["application/json"] and "text" in json.dumps(schema)


def test_the_page_and_the_explorer_show_texts(browser: Any, collection: Collection) -> None:
    address = served(collection, method="pca")
    page = browser.new_page()
    said: list[str] = []
    page.on("pageerror", lambda error: said.append(str(error)))
    page.goto(address)
    page.wait_for_selector("#few .card .text")
    page.fill("#text", ASKED)
    page.press("#text", "Enter")
    page.wait_for_selector("#neighbors .card .text")
    assert page.locator("#neighbors .label").first.inner_text() == "boat" and ASKED in page.inner_text("#title")
    page.goto(f"{address}/explore")
    page.wait_for_selector("#right .welcome")
    page.fill("#id", ASKED)
    page.press("#id", "Enter")
    page.wait_for_selector("#right .tile .text")
    assert page.inner_text("#right h2") == "Your text" and ASKED in page.inner_text("#right .words .text")
    page.click("#right .tile >> nth=0")
    page.wait_for_selector("#right .query .text:has-text('number')")
    page.close()
    assert said == []


def test_word_vectors_need_words(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="nothing can be learned from words"):
        fit_words(["!", "?"], tmp_path)
