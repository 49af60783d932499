"""``python -m mixad demo``, ``doctor``, ``cache``, ``export`` and ``--version``."""

from __future__ import annotations

import argparse
import io
import os
import sys

from mixad.cli import cache, demo, doctor, export
from mixad.errors import MixadError
from mixad.version import __version__

__all__ = ["main"]


def main(arguments: list[str] | None = None) -> int:
    """Run one command, by default that of the command line; return the exit status."""
    options = _parser().parse_args(arguments)
    try:
        return _run(options)
    except MixadError as error:  # the user's to set right: where it was met tells nothing
        print(error, file=sys.stderr)
        return 1


def _run(options: argparse.Namespace) -> int:
    if options.command == "demo":
        return demo.main()
    if options.command == "doctor":
        return doctor.main()
    if options.command == "export":
        return export.main(options)
    return cache.main(clear=options.action == "clear")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m mixad")
    parser.add_argument("--version", action="version", version=f"mixad {__version__}")
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("demo", help="check and time the gradient of an HM-LSTM cell")
    commands.add_parser("doctor", help="what is installed, what is missing and why, a self-test")
    export.add_options(commands.add_parser("export", help="write a kernel for C or CUDA"))
    cached = commands.add_parser("cache", help="show or clear the folder of compiled kernels")
    cached.add_argument("action", nargs="?", choices=["show", "clear"], default="show")
    return parser


def _main_of_a_program() -> int:
    """Run one command, whatever is at the other end of the output."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # paths may have any characters
    try:
        status = main()
        print(end="", flush=True)
    except BrokenPipeError:  # a reader such as `head` has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    return status


if __name__ == "__main__":
    sys.exit(_main_of_a_program())
