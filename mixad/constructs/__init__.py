"""Loops of steps, with gradients: the body is recorded once and run again and again."""
