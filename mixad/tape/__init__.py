"""Reverse mode over the program: tracers, nodes, and the backward pass."""
