"""Codes: embeddings of one bit a dimension, learnt or made afterwards, d / 8 bytes a point."""

from nearkin.codes.iterative_quantisation import IterativeQuantisation
from nearkin.codes.packing import pack, signs, unpack
from nearkin.codes.relaxation import quantisation_gap, relaxed

__all__ = ["IterativeQuantisation", "pack", "quantisation_gap", "relaxed", "signs", "unpack"]
