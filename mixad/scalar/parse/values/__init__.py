"""What names stand for while a function is compiled: one file for each kind of value."""
