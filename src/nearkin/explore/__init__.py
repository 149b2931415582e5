"""Explore: look at an embedding."""

from nearkin.explore.figures import PALETTE, Panel, scatter

__all__ = ["PALETTE", "Panel", "scatter"]
