"""LLVM IR for the CPU: explicit SPMD vectors, one gang of `GANG` elements at a time."""
