"""Warnings of libraries that say nothing to the people who run ACStor."""

import warnings


def ignore_eventlet() -> None:
    """Ignore that futurist and oslo.messaging still import eventlet where it is installed.

    Nothing of ACStor uses it; the imports are gone when it is not installed.
    """
    warnings.filterwarnings("ignore", message=r"(?s).*[Ee]ventlet is deprecated")
