"""Reverse mode over the program: tracers, nodes, and the backward pass.

The function `mixad.tape` has the package's name, so ``mixad.tape`` is that function once mixad is
imported; modules in here are found by ``from mixad.tape.tracer import Tracer``.
"""
