"""The commands of ``python -m mixad``: one module for each."""
