"""Metrics: the affinities that an index can be searched with, by name. What an objective was trained with is deployed under one of these."""

from nearkin.compose.affinity import Affinity, Hamming, SquaredEuclidean, cosine

METRICS: dict[str, Affinity] = {"squared_euclidean": SquaredEuclidean(), "cosine": cosine(), "hamming": Hamming()}
