"""What runs kernels: the hook that plugins implement, the registry, and the two built-in backends.

Write a plugin against `mixad.backends.hookspecs`; ask for a backend from `mixad.backends.registry`.
"""
