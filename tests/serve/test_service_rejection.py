"""The service says whether a query is of no known class, at the rate that the client asks for."""

import numpy as np
from starlette.testclient import TestClient

import nearkin
from nearkin.serve.app import make_app

HERE = "http://127.0.0.1"


def test_queries_of_no_known_class_are_rejected_on_request(tmp_path):
    vectors = np.random.default_rng(0).normal(size=(60, 3)).astype(np.float32)
    collection = nearkin.index_vectors(vectors, tmp_path / "v", labels=["a", "b"] * 30)
    with TestClient(make_app(collection, method="pca"), base_url=HERE) as client:
        plain = client.post("/search", json={"vector": [30, 30, 30]}).json()
        assert "none_of_these" not in plain
        far = client.post("/search?reject=0.05", json={"vector": [30, 30, 30]}).json()
        assert far["none_of_these"] is True and far["p_value"] == 1 / 61 and far["neighbors"] == plain["neighbors"]
        assert client.post("/search?reject=0.05", json={"vector": [0, 0, 0]}).json()["none_of_these"] is False
        assert client.post("/search?reject=2", json={"id": 3}).status_code == 422


def test_a_small_index_says_that_it_cannot_reject(tmp_path):
    collection = nearkin.index_vectors(np.eye(3), tmp_path / "v", labels=["a", "b", "c"])
    with TestClient(make_app(collection, method="pca"), base_url=HERE) as client:
        refused = client.post("/search?reject=0.05", json={"id": 1})
        assert refused.status_code == 422 and "at least 20 held-out points" in refused.json()["error"]["message"]
