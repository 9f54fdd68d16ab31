"""Warnings of libraries, and a library, that are nothing to the people who run ACStor."""

import sys
import warnings


def ignore_eventlet() -> None:
    """Ignore that futurist and oslo.messaging still import eventlet where it is installed.

    Nothing of ACStor uses it; the imports are gone when it is not installed.
    """
    warnings.filterwarnings("ignore", message=r"(?s).*[Ee]ventlet is deprecated")


def exclude_eventlet() -> None:
    """Have the libraries of this process take eventlet for not installed.

    For programs whose process is theirs alone, before anything imports it: half of the processor
    time of the agent's start was the import.
    """
    ignore_eventlet()
    if "eventlet" not in sys.modules:
        sys.modules["eventlet"] = None  # type: ignore[assignment]  # an import of it fails
