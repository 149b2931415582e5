"""Search: the one k-nearest function everything else asks."""

from nearkin.search.exact import Neighbors, nearest

__all__ = ["Neighbors", "nearest"]
