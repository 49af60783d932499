"""Emitters: one kernel spec becomes text for one kind of machine."""
