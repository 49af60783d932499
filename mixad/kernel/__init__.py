"""Kernels: what one launch computes over which loop nest. Knows shapes, no arrays."""
