"""
Your own photos, from a folder to a search
==========================================

You have a folder of images with one subfolder for each class. This tutorial trains a model on it, measures whether
neighbors are right, indexes the images and searches them. Every step is one command; a script runs the same command
through ``nearkin.cli.main``.

The photos here are drawings, so that you need no data: squares, triangles, rings and crosses of any color and size.
To use your own, replace ``photos`` by the path of your folder.
"""

# %%
# A folder of images
# ------------------
#
# ``photos/cross/000.png`` is an image of the class *cross*, and so on. 60 images for each of four classes are enough
# here.
import random
import tempfile
from pathlib import Path

import matplotlib.pyplot as plt
from PIL import Image, ImageDraw

import nearkin
from nearkin.cli import main

here = Path(tempfile.mkdtemp())  # Path(".") keeps everything in your own folder
photos, model_folder = here / "photos", here / "runs" / "photos"
draw_at_random = random.Random(0)


def picture(shape):
    """One drawing of 32 x 32 pixels: the shape in a random color, size and place on a random background."""
    color, background = (tuple(draw_at_random.randint(*some) for _ in range(3)) for some in ((120, 255), (0, 110)))
    image = Image.new("RGB", (32, 32), background)
    pen, side = ImageDraw.Draw(image), draw_at_random.randint(12, 22)
    left, top = (draw_at_random.randint(1, 30 - side) for _ in range(2))
    box, middle = (left, top, left + side, top + side), (left + side / 2, top + side / 2)
    if shape == "square":
        pen.rectangle(box, fill=color)
    elif shape == "ring":
        pen.ellipse(box, outline=color, width=4)
    elif shape == "triangle":
        pen.polygon([(left, top + side), (left + side, top + side), (middle[0], top)], fill=color)
    else:
        pen.line((left, middle[1], left + side, middle[1]), fill=color, width=4)
        pen.line((middle[0], top, middle[0], top + side), fill=color, width=4)
    return image


for shape in ("cross", "ring", "square", "triangle"):
    (photos / shape).mkdir(parents=True)
    for number in range(60):
        picture(shape).save(photos / shape / f"{number:03}.png")

figure, axes = plt.subplots(4, 10, figsize=(10, 4.2), layout="constrained")
for row, shape in zip(axes, sorted(path.name for path in photos.iterdir()), strict=True):
    for axis, path in zip(row, sorted((photos / shape).iterdir())[:10], strict=True):
        axis.imshow(Image.open(path))
        axis.axis("off")
    row[0].set_title(shape, loc="left")
plt.show()

# %%
# Train
# -----
#
# .. code-block:: sh
#
#    nearkin train photos/ --out runs/photos --epochs 30
#
# nearkin finds the classes, holds out 20 % of the images for testing and 10 % of the rest for validation, picks an
# objective (NCA, because there are classes) and says so. The folder ``runs/photos`` then is the model, with the weights
# of the epoch that was best on the validation images.
#
# Photographs may differ in size: they are resized and cropped, and ``--size 128`` chooses another size.
main(["train", str(photos), "--out", str(model_folder), "--epochs", "30", "--device", "cpu"])

# %%
# Evaluate
# --------
#
# .. code-block:: sh
#
#    nearkin evaluate runs/photos
#
# The queries are the images that training never saw. Each figure comes with a 95 % interval and what chance would
# give. ``report.html`` in the model folder has the pictures, the confusions and the labels that are probably wrong;
# add ``--compare`` to see raw pixels, PCA and other baselines next to the model. (This run leaves the report's pictures out
# to be quick.)
main(["evaluate", str(model_folder), "--no-pictures", "--device", "cpu"])

# %%
# Index and search
# ----------------
#
# .. code-block:: sh
#
#    nearkin index runs/photos photos/
#    nearkin search runs/photos query.png
#
# An index keeps the embedding, the label and the path of every image.
main(["index", str(model_folder), str(photos), "--device", "cpu"])

# %%
# Now search with images that are in no folder. ``nearkin search`` prints the neighbors; from Python you get them as
# objects.
queries = []
for number, shape in enumerate(("ring", "triangle", "cross")):
    queries.append(here / f"query-{number}.png")
    picture(shape).save(queries[-1])
main(["search", str(model_folder), str(queries[0]), "-k", "3", "--device", "cpu"])

collection = nearkin.open_index(model_folder)
answers = [collection.search(query, k=6) for query in queries]
figure, axes = plt.subplots(3, 7, figsize=(10, 4.6), layout="constrained")
for row, query, answer in zip(axes, queries, answers, strict=True):
    row[0].imshow(Image.open(query))
    row[0].set_title("query", fontsize=9)
    for axis, hit in zip(row[1:], answer.hits, strict=True):
        axis.imshow(Image.open(photos / hit.source))
        axis.set_title(f"{hit.label}  {hit.affinity:.2f}", fontsize=9)
    for axis in row:
        axis.set(xticks=[], yticks=[])
figure.suptitle("queries and their six nearest images; a larger affinity is nearer")
plt.show()

# %%
# What next
# ---------
#
# ``nearkin serve runs/photos`` opens a page in your browser that shows every image on a map, its exact neighbors and
# which of them are wrong: :doc:`/how-to/explore`. :doc:`06_search_and_serve` uses the same index from a program.
# :doc:`/how-to/train` has every other option.
