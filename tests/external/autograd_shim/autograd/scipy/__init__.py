"""SciPy, whose special functions ask traced arrays what they are."""
