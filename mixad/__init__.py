"""mixad: reverse mode over the program, forward mode inside every broadcast."""

__version__ = "0.1.0.dev0"
