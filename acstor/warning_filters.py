"""Warnings of libraries, and a library, that are nothing to the people who run ACStor."""

import sys
import warnings


def ignore_eventlet() -> None:
    """Ignore that futurist and oslo.messaging still import eventlet where it is installed.

    Nothing of ACStor uses it; the imports are gone when it is not installed.
    """
    warnings.filterwarnings("ignore", message=r"(?s).*[Ee]ventlet is deprecated")


def exclude_eventlet() -> None:
    """Have the libraries of this process use threads, and take eventlet for not installed.

    For programs whose process is theirs alone, before anything imports it: half of the processor
    time of the agent's start was the import.
    """
    ignore_eventlet()
    use_threads()
    if "eventlet" not in sys.modules:
        sys.modules["eventlet"] = None  # type: ignore[assignment]  # an import of it fails


def use_threads() -> None:
    """Have oslo.service, which oslo.messaging loads, use threads: without a word it is eventlet.

    Not in a process of Nova's or Cinder's, which chooses for itself. What was chosen before stays.
    """
    from oslo_service import backend

    backend.register_backend_default_hook(lambda: backend.BackendType.THREADING)
