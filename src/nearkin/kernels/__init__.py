"""Kernels: exact soft-neighbor losses and gradients over all pairs in O((n + m) d) memory, tiled on the CPU, Triton on CUDA."""
