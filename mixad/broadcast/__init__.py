"""The decorator: kernels as functions of arrays, their duals, and reports about them."""
