import dataclasses
import pathlib
import tempfile
from collections.abc import Iterator

import pytest

from acstor.mounting import protocol

PATIENT_SECONDS = 240.0
"""Seconds in which both ends have their turn, on any machine."""


@pytest.fixture
def short_path() -> Iterator[pathlib.Path]:
    """A directory for sockets: their paths have at most 107 bytes."""
    with tempfile.TemporaryDirectory(prefix="acstor-") as path:
        yield pathlib.Path(path)


@pytest.fixture(autouse=True)
def _deadlines_that_nobody_misses() -> Iterator[None]:
    """Have the seconds of the protocol be none that a process stands still for.

    By a patch of its own: that of the test ends before the directories that it has patched.
    """
    with pytest.MonkeyPatch.context() as patched:
        for name in ("REQUEST_DEADLINE", "RESPONSE_DEADLINE"):
            patched.setattr(protocol, name, PATIENT_SECONDS)
        for operation, traits in protocol.OPERATIONS.items():
            patient = dataclasses.replace(traits, timeout=PATIENT_SECONDS)
            patched.setitem(protocol.OPERATIONS, operation, patient)
        yield
