"""Explore: look at an embedding, at what it gets wrong, and at what is wrong with the data."""

from nearkin.report.curves import Series, line, pr_roc, training_curves
from nearkin.report.drawing import PALETTE, as_bytes, save
from nearkin.report.figures import Panel, embedding_map, number_map, scatter
from nearkin.report.flow import neighbor_flow
from nearkin.report.grad_cam import grad_cam
from nearkin.report.pictures import Hit, attention, contact_sheet, filters, gallery

__all__ = [
    "PALETTE",
    "Hit",
    "Panel",
    "Series",
    "as_bytes",
    "attention",
    "contact_sheet",
    "embedding_map",
    "filters",
    "gallery",
    "grad_cam",
    "line",
    "neighbor_flow",
    "number_map",
    "pr_roc",
    "save",
    "scatter",
    "training_curves",
]
