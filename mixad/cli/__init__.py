"""What ``python -m mixad`` runs: one module for each command."""
