"""``acstor``: the command line."""

from acstor.cli.app import main

__all__ = ["main"]
