"""Scalar programs: what a user's function becomes, and how it is differentiated. Knows no array."""
