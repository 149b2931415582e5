"""Pictures of an embedding and its neighbors, checks of the data, and the HTML report of `nearkin evaluate`.

Every plot function returns a matplotlib figure, which `save` writes as .png or .svg. matplotlib is imported when you draw the
first figure (`pip install 'nearkin[plot]'`). The functions `plot_...` take embeddings and labels, and compute what they show.
"""

from nearkin.report.curves import PairCurves, Series, line, pr_roc, predicted_against_true, training_curves
from nearkin.report.drawing import PALETTE, as_bytes, save
from nearkin.report.flow import neighbor_flow
from nearkin.report.grad_cam import grad_cam
from nearkin.report.image_grids import Hit, attention, attention_by_stage, contact_sheet, filters, gallery
from nearkin.report.maps import Panel, embedding_map, number_map, scatter
from nearkin.report.plots import plot_accuracy_by_k, plot_confusions, plot_map, plot_neighbors, plot_pairs

__all__ = [
    "PALETTE",
    "Hit",
    "PairCurves",
    "Panel",
    "Series",
    "as_bytes",
    "attention",
    "attention_by_stage",
    "contact_sheet",
    "embedding_map",
    "filters",
    "gallery",
    "grad_cam",
    "line",
    "neighbor_flow",
    "number_map",
    "plot_accuracy_by_k",
    "plot_confusions",
    "plot_map",
    "plot_neighbors",
    "plot_pairs",
    "pr_roc",
    "predicted_against_true",
    "save",
    "scatter",
    "training_curves",
]
