"""Messages between a registrar and its children: errors and reports keep class and content."""

import dataclasses
import errno

import pytest

from acstor import exception
from acstor.origin.base import DamagedRefError, OvertakenError
from acstor.registrar.registration import child_messages
from acstor.registrar.registration.child_messages import OutOfMemoryError
from acstor.registrar.registration.file_registration import CancelledError, LeftError
from acstor.repository.images import registration


def arrived(error: BaseException) -> Exception:
    """Return an error as the registrar hears of it."""
    return child_messages.error_of(
        child_messages.decode(child_messages.encode_error(error))["error"]
    )


@pytest.mark.parametrize(
    "kind",
    [*exception.CLASS_OF_KIND.values(), exception.DiskTooLargeError, LeftError, CancelledError],
)
def test_error_keeps_its_class_text_and_hint(kind: type[exception.AcstorError]) -> None:
    error = arrived(kind("what failed", hint="what to do"))
    assert isinstance(error, exception.AcstorError)
    assert (type(error), error.message, error.hint) == (kind, "what failed", "what to do")


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (DamagedRefError("the ref", token="1", hint="what to do"), exception.CorruptError),
        (OvertakenError("the ref", hint="what to do"), exception.ConflictError),
    ],
)
def test_error_of_one_module_is_of_the_kind_that_all_know(
    error: exception.AcstorError, expected: type[exception.AcstorError]
) -> None:
    found = arrived(error)
    assert isinstance(found, exception.AcstorError)
    assert (type(found), found.message, found.hint) == (expected, "the ref", "what to do")


@pytest.mark.parametrize(
    "error",
    [
        MemoryError(),
        OSError(errno.ENOMEM, "Cannot allocate memory"),
        RuntimeError("can't start new thread"),
    ],
)
def test_want_of_memory_has_many_faces(error: Exception) -> None:
    assert isinstance(arrived(error), OutOfMemoryError)


def test_error_of_the_system_names_its_file() -> None:
    error = arrived(OSError(errno.ENOSPC, "No space left on device", "/spool/x"))
    assert isinstance(error, OSError)
    assert (error.errno, error.strerror, error.filename) == (
        errno.ENOSPC, "No space left on device", "/spool/x",
    )  # fmt: skip
    assert "ZeroDivisionError: by zero" in str(arrived(ZeroDivisionError("by zero")))


@pytest.mark.parametrize(
    "fields", [None, [], "x", {"class": "OSError", "errno": "x"}, {"class": "OSError"}]
)
def test_what_is_no_error_is_refused(fields: object) -> None:
    with pytest.raises(ValueError, match=r"errno is no whole number|no error"):
        child_messages.error_of(fields)


def test_report_arrives_and_nothing_else_does() -> None:
    report = registration.Report("x", chunks=5, seconds=1.5, megabytes_per_second=2.0)
    fields = child_messages.decode(child_messages.encode_report(report))["report"]
    assert child_messages.report_of(fields) == report
    for name, value in (("chunks", -1), ("chunks", "5"), ("seconds", "x"), ("seconds", None)):
        with pytest.raises(ValueError, match=f"{name} is no "):
            child_messages.report_of({**dataclasses.asdict(report), name: value})
    with pytest.raises(ValueError, match="no report"):
        child_messages.report_of([])
