"""Arguments of a call of a decorated function: taken apart, made a program and values."""
