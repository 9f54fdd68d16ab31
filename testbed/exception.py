"""Errors of the testbed; every message says what to do about it."""

from collections.abc import Sequence

from acstor import exception


class TestbedError(exception.AcstorError):
    """A step of the testbed failed; the message names the step."""

    __test__ = False  # the name starts with "Test": pytest must not collect it
    kind = exception.ErrorKind.UNAVAILABLE
    default_hint = "look at the logs of the run (--keep keeps them), then try again"


class ToolMissingError(TestbedError):
    """A program that the testbed runs is not installed."""

    kind = exception.ErrorKind.NOT_FOUND
    default_hint = "bindep.txt names the Debian packages; tools/quickstart installs them"

    def __init__(self, program: str) -> None:
        super().__init__(f"{program} is not installed")
        self.program = program


class ToolFailedError(TestbedError):
    """A program that the testbed ran to its end failed or took too long."""

    def __init__(self, argv: Sequence[str], outcome: str, output: str) -> None:
        tail = "\n".join(output.strip().splitlines()[-10:])
        super().__init__(f"{argv[0]} {outcome}: {' '.join(argv)}\n{tail}".rstrip())
        self.argv = tuple(argv)
        self.outcome = outcome


class NotReadyError(TestbedError):
    """A process did not become ready in time, or ended before it did."""


class GuestFailedError(TestbedError):
    """A guest did not reach its login prompt, or read something else than the image holds."""


class TraceFormatError(TestbedError):
    """A boot trace is not of the format, or of a version that this release does not read."""

    kind = exception.ErrorKind.INVALID
    default_hint = "record the trace anew with 'tools/testbed trace record'"


class ContentMismatchError(TestbedError):
    """Bytes that were read differ from the ones that the image holds."""

    kind = exception.ErrorKind.CORRUPT
