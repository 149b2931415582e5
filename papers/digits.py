"""A small table of our own that runs anywhere in seconds: the same protocol on scikit-learn's digits."""

from papers.cell import Cell, Trial

_SMALL = {"network.dimension": "16", "epochs": "6", "batch_size": "200"}
TRIALS = (
    Trial(
        "digits-nca", "digits", {**_SMALL, "objective.name": "nca"}, {"optimizer.learning_rate": ("0.05", "0.2")}, tuning_epochs=3, seeds=2
    ),
    Trial(
        "digits-softmax",
        "digits",
        {**_SMALL, "objective.name": "softmax"},
        {"optimizer.learning_rate": ("0.05", "0.2")},
        tuning_epochs=3,
        seeds=2,
    ),
)
_TABLE = "Digits (ours, a small check)"
CELLS = (
    Cell(_TABLE, "softmax features, 1-NN", None, "error %", "digits-softmax"),
    Cell(_TABLE, "NCA, 1-NN", None, "error %", "digits-nca"),
)
