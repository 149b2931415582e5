"""Objectives: each is a composition with its equation and source, and a class that takes (embeddings, labels)."""

from nearkin.objectives.angular_margin import LargeMarginSoftmax
from nearkin.objectives.class_vectors import Hinge, NearestClassMean, NormalizedSoftmax, ProxyNCA, Softmax
from nearkin.objectives.instances import InstanceDiscrimination, NeighborhoodDiscovery
from nearkin.objectives.neighborhood import NeighborhoodObjective
from nearkin.objectives.objective import Last, Objective
from nearkin.objectives.pair_coupled import Angular, LiftedStructure
from nearkin.objectives.pairs_and_triplets import Contrastive, NPair, Triplet
from nearkin.objectives.pseudo_labels import DeepCluster, NoiseAsTargets
from nearkin.objectives.soft_neighbors import NCA, NCARegression
from nearkin.objectives.top_k import PrecisionAtK
from nearkin.objectives.weighted_sum import CenterLoss, CenterPull, WeightedSum

__all__ = [
    "NCA",
    "Angular",
    "CenterLoss",
    "CenterPull",
    "Contrastive",
    "DeepCluster",
    "Hinge",
    "InstanceDiscrimination",
    "LargeMarginSoftmax",
    "Last",
    "LiftedStructure",
    "NCARegression",
    "NPair",
    "NearestClassMean",
    "NeighborhoodDiscovery",
    "NeighborhoodObjective",
    "NoiseAsTargets",
    "NormalizedSoftmax",
    "Objective",
    "PrecisionAtK",
    "ProxyNCA",
    "Softmax",
    "Triplet",
    "WeightedSum",
]
