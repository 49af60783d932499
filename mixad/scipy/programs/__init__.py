"""Scalar programs of `mixad.scipy`: functions of numbers, which are compiled."""
