"""Gradients, tangents, Jacobians, rules of the user's, checkpoints, the view of a tape."""
