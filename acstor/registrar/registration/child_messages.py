"""Messages between a registrar and the child process of a registration: lines of JSON.

The registrar says first what to do (:class:`Order`). The child asks, now and then, whether to go
on (``{"ask": bytes stored since}``) and waits for the answer (``{"cancel": reason}``, empty: go
on). Where records are signed it says the image's (``{"record": fields}``) and waits for the content
of the ref (``{"written": text}``, or ``{"error": ...}``). It says what it logs
(``{"log": [logger, level, text]}``), and at its end ``{"report": ...}`` or ``{"error": ...}``. The
child has read a file of a project: nothing that it says is believed.
"""

import dataclasses
import errno
import json
from typing import Any

from acstor import exception, untrusted_json
from acstor.origin.rados.connection import Connection
from acstor.registrar.registration.file_registration import (
    CancelledError,
    FileSettings,
    ImageFile,
    LeftError,
    NotInRbdError,
)
from acstor.repository.images import registration
from acstor.repository.source.rbd.location import RbdLocation

LINE_SIZE_MAX = 64 << 10
"""Longest line, bytes."""
_TEXT_LENGTH_MAX = 4000
_CLASSES: dict[str, type[exception.AcstorError]] = {
    found.__name__: found
    for found in (
        *(found for found in vars(exception).values() if isinstance(found, type)),
        CancelledError,
        LeftError,
        NotInRbdError,
    )
    if issubclass(found, exception.AcstorError)
}
_OUT_OF_MEMORY = "MemoryError"


class OutOfMemoryError(exception.ExhaustedError):
    """A registration wanted more memory than it may have."""

    default_hint = "raise [registrar] job_memory: it takes 100 bytes for each chunk of the origin"


@dataclasses.dataclass(frozen=True, slots=True)
class Order:
    """Order to a child: the registration, and its limits."""

    origin_url: str
    origin_timeout: float
    repository_id: str
    memory_bytes: int
    file: ImageFile
    settings: FileSettings
    is_signing: bool = False
    """Set where the registrar writes the record."""
    is_current: bool = True
    """Set where a record that is there need not be written anew."""

    def encode(self) -> bytes:
        """Return a line."""
        return encode(dataclasses.asdict(self))

    @classmethod
    def parse(cls, line: bytes) -> "Order":
        """Read what this process's parent has written."""
        fields = untrusted_json.load(line, "the order")
        settings = fields["settings"]
        settings["registration"] = registration.Settings(**settings["registration"])
        settings["rbd"] = settings["rbd"] and Connection(**settings["rbd"])
        fields["settings"] = FileSettings(**settings)
        file = fields["file"]
        file["rbd"] = file["rbd"] and RbdLocation(**file["rbd"])
        fields["file"] = ImageFile(**file)
        return cls(**fields)


def encode(message: dict[str, Any]) -> bytes:
    """Return a line."""
    return json.dumps(message).encode() + b"\n"


def decode(line: bytes) -> dict[str, Any]:
    """Return what a line of the child says.

    :raises ValueError: when it is no message.
    """
    found = untrusted_json.load(line, "what the child says")
    if not isinstance(found, dict):
        raise ValueError("no message")
    return found


def encode_error(error: BaseException) -> bytes:
    """Return the line that says why a registration failed."""
    fields: dict[str, Any] = {"class": type(error).__name__}
    if _is_out_of_memory(error):
        fields = {"class": _OUT_OF_MEMORY}
    elif isinstance(error, exception.AcstorError):
        fields["class"] = next(
            kind.__name__ for kind in type(error).__mro__ if _CLASSES.get(kind.__name__) is kind
        )
        fields |= {"text": error.message[:_TEXT_LENGTH_MAX], "hint": error.hint[:_TEXT_LENGTH_MAX]}
    elif isinstance(error, OSError):
        fields |= {"class": "OSError", "text": error.strerror, "errno": error.errno}
        fields["file"] = str(error.filename) if error.filename else ""
    else:
        fields["text"] = str(error)[:_TEXT_LENGTH_MAX]
    return encode({"error": fields})


def error_of(fields: Any) -> Exception:
    """Return the error that the child had.

    :raises ValueError: when that is no error.
    """
    if not isinstance(fields, dict):
        raise ValueError("no error")
    name, text = str(fields.get("class")), str(fields.get("text", ""))[:_TEXT_LENGTH_MAX]
    if name == _OUT_OF_MEMORY:
        return OutOfMemoryError("the registration needs more memory than it may have")
    if name == "OSError":
        number = untrusted_json.whole(fields.get("errno"), "errno", highest=1 << 16)
        return OSError(number, text, str(fields.get("file")) or None)
    known = _CLASSES.get(name)
    if known is None:
        return exception.InternalError(f"{name[:100]}: {text}")
    return known(text, hint=str(fields.get("hint", ""))[:_TEXT_LENGTH_MAX])


def encode_report(report: registration.Report) -> bytes:
    """Return the line that says what a registration did."""
    return encode({"report": dataclasses.asdict(report)})


def report_of(fields: Any) -> registration.Report:
    """Return what the child's registration did.

    :raises ValueError: when that is no report.
    """
    if not isinstance(fields, dict):
        raise ValueError("no report")
    report = registration.Report("")
    for field in dataclasses.fields(report):
        value = fields.get(field.name)
        match getattr(report, field.name):
            case str():
                value = str(value)[:_TEXT_LENGTH_MAX]
            case int():
                value = untrusted_json.whole(value, field.name)
            case _:
                value = untrusted_json.number(value, field.name, 0.0, 1e15)
        setattr(report, field.name, value)
    return report


def _is_out_of_memory(error: BaseException) -> bool:
    return (
        isinstance(error, MemoryError)
        or (isinstance(error, OSError) and error.errno == errno.ENOMEM)
        or (isinstance(error, RuntimeError) and "start new thread" in str(error))
    )
