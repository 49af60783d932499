"""Loops of steps, reductions, scans and histograms with operators of the user, with gradients."""
