"""Objectives: the losses by name, each with its equation and its papers.

An objective is a `torch.nn.Module`: call it with embeddings and labels, and call `update` after the optimizer's step. Most are
compositions of references, affinity, relation and criterion from `nearkin.compose`; `NeighborhoodObjective` makes new ones.
"""

from nearkin.objectives.angular_margin import LargeMarginSoftmax, SphereFace
from nearkin.objectives.class_vectors import Hinge, NearestClassMean, NormalizedSoftmax, ProxyNCA, Softmax
from nearkin.objectives.contrastive_softmax import InfoNCE, NTXent, SupCon
from nearkin.objectives.direct_regression import DirectRegression
from nearkin.objectives.instances import InstanceDiscrimination, NeighborhoodDiscovery
from nearkin.objectives.margin_softmax import AdaCos, ArcFace, CosFace, SoftTriple, SubCenterArcFace
from nearkin.objectives.matryoshka import Matryoshka
from nearkin.objectives.neighbor_targets import NeighborTargets
from nearkin.objectives.neighborhood import NeighborhoodObjective
from nearkin.objectives.objective import Last, Objective
from nearkin.objectives.pair_coupled import Angular, LiftedStructure
from nearkin.objectives.pair_weighting import (
    Circle,
    Histogram,
    MarginLoss,
    MultiSimilarity,
    ProxyAnchor,
    RankedList,
    SignalToNoiseContrastive,
    TupletMargin,
)
from nearkin.objectives.pairs_and_triplets import Contrastive, NPair, Triplet
from nearkin.objectives.papers import cite
from nearkin.objectives.pseudo_labels import DeepCluster, NoiseAsTargets
from nearkin.objectives.smooth_ranks import FastAP, RecallAtK, SmoothAP
from nearkin.objectives.soft_neighbors import NCA, NCARegression
from nearkin.objectives.top_k import PrecisionAtK
from nearkin.objectives.views import BarlowTwins, VICReg
from nearkin.objectives.weighted_sum import CenterLoss, CenterPull, WeightedSum

__all__ = [
    "NCA",
    "AdaCos",
    "Angular",
    "ArcFace",
    "BarlowTwins",
    "CenterLoss",
    "CenterPull",
    "Circle",
    "Contrastive",
    "CosFace",
    "DeepCluster",
    "DirectRegression",
    "FastAP",
    "Hinge",
    "Histogram",
    "InfoNCE",
    "InstanceDiscrimination",
    "LargeMarginSoftmax",
    "Last",
    "LiftedStructure",
    "MarginLoss",
    "Matryoshka",
    "MultiSimilarity",
    "NCARegression",
    "NPair",
    "NTXent",
    "NearestClassMean",
    "NeighborTargets",
    "NeighborhoodDiscovery",
    "NeighborhoodObjective",
    "NoiseAsTargets",
    "NormalizedSoftmax",
    "Objective",
    "PrecisionAtK",
    "ProxyAnchor",
    "ProxyNCA",
    "RankedList",
    "RecallAtK",
    "SignalToNoiseContrastive",
    "SmoothAP",
    "SoftTriple",
    "Softmax",
    "SphereFace",
    "SubCenterArcFace",
    "SupCon",
    "Triplet",
    "TupletMargin",
    "VICReg",
    "WeightedSum",
    "cite",
]
