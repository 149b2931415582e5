"""Search: the one k-nearest function everything else asks."""

from nearkin.search.exact import Neighbours, nearest

__all__ = ["Neighbours", "nearest"]
