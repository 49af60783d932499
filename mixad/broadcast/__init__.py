"""The decorator: kernels as functions of arrays, their duals, and what is told of them."""
