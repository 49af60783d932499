"""Kernels of real programs, each once: for tests, benchmarks and documentation alike.

They are plain functions of numbers; `mixad.broadcast` makes kernels of them, and other compilers of
Python functions, such as Numba, take them as well.
"""
