"""Metrics: the affinities an index can be searched with, by name. An objective is deployed under one of them."""

from nearkin.compose.affinity import Affinity, Hamming, SquaredEuclidean, cosine

METRICS: dict[str, Affinity] = {"squared_euclidean": SquaredEuclidean(), "cosine": cosine(), "hamming": Hamming()}
