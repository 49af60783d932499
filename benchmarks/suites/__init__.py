"""Suites for asv, each parametrised by backend and size."""
