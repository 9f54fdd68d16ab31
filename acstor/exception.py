"""The errors of the control plane: one root, one class per kind, each with what to do about it.

The kinds are those of the data plane (``acstor_types::ErrorKind``), so that an error keeps its
meaning across the extension module. Callers act on :attr:`AcstorError.kind` or on the class, never
on the text.
"""

import enum


class ErrorKind(enum.StrEnum):
    """Kind of an error: the reaction that it allows a caller."""

    NOT_FOUND = "not_found"
    """The thing asked for does not exist."""
    INVALID = "invalid"
    """The caller's input is wrong; repeating it cannot help."""
    UNAVAILABLE = "unavailable"
    """A dependency cannot be reached or did not answer in time; later may help."""
    OVERLOADED = "overloaded"
    """A dependency refuses because of load; later may help."""
    CORRUPT = "corrupt"
    """Content does not match its digest or checksum; use another source."""
    FENCED = "fenced"
    """Someone else was first or is newer; look again before going on."""
    UNSUPPORTED = "unsupported"
    """A version or option that this build does not know."""
    EXHAUSTED = "exhausted"
    """No space, no slot or no quota left."""
    INTERNAL = "internal"
    """A fault of this program."""


EXIT_STATUS: dict[ErrorKind, int] = {
    ErrorKind.INTERNAL: 1,
    # 2 is argparse's: the command line itself is wrong.
    ErrorKind.INVALID: 3,
    ErrorKind.NOT_FOUND: 4,
    ErrorKind.UNAVAILABLE: 5,
    ErrorKind.OVERLOADED: 6,
    ErrorKind.CORRUPT: 7,
    ErrorKind.FENCED: 8,
    ErrorKind.UNSUPPORTED: 9,
    ErrorKind.EXHAUSTED: 10,
}
"""Exit status of a command that ends with an error of that kind."""


class AcstorError(Exception):
    """Root of every error that ACStor raises on purpose.

    :param message: what failed, and on what; one line, no full stop.
    :param hint: what the operator can do; one line. Without it the class's own hint is used.
    """

    kind: ErrorKind = ErrorKind.INTERNAL
    default_hint: str = "this is a fault of ACStor: report it with the log of the process"

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        """Keep the message and the hint."""
        super().__init__(message)
        self.message = message
        self.hint = hint or self.default_hint

    @property
    def exit_status(self) -> int:
        """Exit status of a command that ends with this error."""
        return EXIT_STATUS[self.kind]

    @property
    def is_transient(self) -> bool:
        """True if the same call may succeed later without anyone doing anything."""
        return self.kind in (ErrorKind.UNAVAILABLE, ErrorKind.OVERLOADED)


class InternalError(AcstorError):
    """A fault of this program."""


class NotFoundError(AcstorError):
    """The thing asked for does not exist."""

    kind = ErrorKind.NOT_FOUND
    default_hint = "check the name"


class InvalidError(AcstorError):
    """The caller's input is wrong."""

    kind = ErrorKind.INVALID
    default_hint = "correct the input and try again"


class ImageRefusedError(InvalidError):
    """An image file must not be registered: its content is unsafe or not what was declared."""

    default_hint = "provide an image file that is what it is declared to be"


class ContentMismatchError(ImageRefusedError):
    """An image file is of another format than was declared."""


class ChecksumMismatchError(ImageRefusedError):
    """An image file has another checksum than was declared."""


class DiskTooLargeError(ImageRefusedError):
    """The disk in an image file has more bytes, or is in more pieces, than is allowed."""

    default_hint = "provide an image of a smaller disk"


class ConfigurationError(InvalidError):
    """A configuration value is missing, malformed or out of range."""

    default_hint = "correct the value in the configuration file and start again"


class UnavailableError(AcstorError):
    """A dependency cannot be reached or did not answer in time."""

    kind = ErrorKind.UNAVAILABLE
    default_hint = "check that the other side is up and reachable, then try again"


class DeadlineError(UnavailableError):
    """The time allowed for an operation is over."""


class OverloadedError(AcstorError):
    """A dependency refuses because of load."""

    kind = ErrorKind.OVERLOADED
    default_hint = "try again later"


class CorruptError(AcstorError):
    """Stored content does not match its digest or checksum."""

    kind = ErrorKind.CORRUPT
    default_hint = "run 'acstor image verify' to see what is damaged"


class FencedError(AcstorError):
    """A newer owner exists."""

    kind = ErrorKind.FENCED
    default_hint = "another process is newer: let it go on"


class ConflictError(FencedError):
    """Someone else changed the thing between reading and writing it."""

    default_hint = "look at the present state, then try again"


class UnsupportedError(AcstorError):
    """A version or option that this build does not know."""

    kind = ErrorKind.UNSUPPORTED
    default_hint = "upgrade ACStor on this host"


class ExhaustedError(AcstorError):
    """No space, no slot or no quota left."""

    kind = ErrorKind.EXHAUSTED
    default_hint = "make room or raise the limit, then try again"


CLASS_OF_KIND: dict[ErrorKind, type[AcstorError]] = {
    ErrorKind.NOT_FOUND: NotFoundError,
    ErrorKind.INVALID: InvalidError,
    ErrorKind.UNAVAILABLE: UnavailableError,
    ErrorKind.OVERLOADED: OverloadedError,
    ErrorKind.CORRUPT: CorruptError,
    ErrorKind.FENCED: FencedError,
    ErrorKind.UNSUPPORTED: UnsupportedError,
    ErrorKind.EXHAUSTED: ExhaustedError,
    ErrorKind.INTERNAL: InternalError,
}
"""The class to raise for an error of the data plane or of a dependency, by its kind."""


def one_line(error: object, *, with_hint: bool = False) -> str:
    """Return the text of an error in one line; the name of its class where it has none.

    :param with_hint: add what to do about it, where the error says that.
    """
    hint = getattr(error, "hint", "") if with_hint else ""
    text = f"{error}; {hint}" if hint else str(error)
    return " ".join(text.split()) or type(error).__name__
