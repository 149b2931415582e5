"""
Search and serve
================

A trained model becomes useful when something can ask it. This tutorial trains on digits, indexes them, searches from
Python with filters, and then asks the HTTP service the same question.
"""

# %%
# A model with an index
# ---------------------
#
# ``digits`` is a set that nearkin knows by name. On the command line this is ``nearkin train digits`` and
# ``nearkin index runs/digits digits``; here are the same two steps from Python.
import io
import tempfile
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from PIL import Image
from starlette.testclient import TestClient

import nearkin
from nearkin.data import open as open_data
from nearkin.index import build_index
from nearkin.serve.app import make_app
from nearkin.train import Run, override, train

folder = Path(tempfile.mkdtemp()) / "digits"
run = override(Run(), {"data.source": "digits", "epochs": "3", "network.dimension": "16"})
figures = train(run, folder, device="cpu")
collection, added = build_index(folder, open_data("digits"), device="cpu")
print(f"{collection.index.count:,} points in the index")

# %%
# Search from Python
# ------------------
#
# A query is an image file, the id of a point in the index, or an embedding. A filter says which points may be neighbors;
# ``exact`` says that no nearer one was missed.
answer = collection.search(17, k=5)
print("exact:", answer.exact)
for hit in answer.hits:
    print(f"id {hit.id:>4}  label {hit.label}  affinity {hit.affinity:7.2f}  {hit.metadata}")

test_only = collection.search(17, k=5, where=nearkin.Where(metadata={"split": "test"}))
print("among test digits only:", [hit.label for hit in test_only.hits])

# %%
# The same over HTTP
# ------------------
#
# ``nearkin serve runs/digits`` starts the service on port 8000. A test client calls the same application in this
# process, so that nothing has to listen; with ``requests`` or ``curl`` the calls look the same.
client = TestClient(make_app(collection, method="pca"), base_url="http://127.0.0.1:8000")
print(client.get("/health").json()["status"])

answer = client.post("/search", params={"k": 5}, json={"id": 17}).json()
print([neighbor["label"] for neighbor in answer["neighbors"]])

# %%
# Post an image and you get its neighbors; ``/image/ID`` returns the thumbnails to show.
digit = np.kron(open_data("digits").inputs[3].squeeze(), np.ones((1, 1))).astype("uint8")
upload = io.BytesIO()
Image.fromarray(digit).save(upload, "PNG")
answer = client.post("/search", params={"k": 8}, content=upload.getvalue(), headers={"Content-Type": "image/png"}).json()

figure, axes = plt.subplots(1, 9, figsize=(10, 1.7), layout="constrained")
axes[0].imshow(digit, cmap="gray")
axes[0].set_title("query", fontsize=9)
for axis, neighbor in zip(axes[1:], answer["neighbors"], strict=True):
    axis.imshow(Image.open(io.BytesIO(client.get(f"/image/{neighbor['id']}").content)), cmap="gray")
    axis.set_title(f"{neighbor['label']}  {neighbor['affinity']:.1f}", fontsize=9)
for axis in axes:
    axis.axis("off")
plt.show()

# %%
# Other machines reach the service only if you say so, and then they need a token: :doc:`/how-to/index-and-search` has
# the details, backends for large sets, and limits.
