"""Outcome of a batch of commits: of each capture, whatever ended the process that stored them."""

from collections.abc import Mapping

from acstor import exception
from acstor.agent.captures.orders import HeldCapture
from acstor.versions.host_capture.progress import Failure


class BatchOutcome:
    """Outcome of one batch, as it becomes known."""

    def __init__(self, captures: tuple[HeldCapture, ...]) -> None:
        self._versions = {
            capture.request.task: {disk.version for disk in capture.moment.disks}
            for capture in captures
        }
        self._committed: set[str] = set()
        self._report: Mapping[str, object] = {}
        self._trouble: exception.AcstorError | None = None

    def note_committed(self, version: str) -> None:
        """Note that a version is a restore point."""
        self._committed.add(version)

    def note_report(self, report: Mapping[str, object]) -> None:
        """Note what the process says at its end."""
        outcomes = report.get("outcomes")
        self._report = outcomes if isinstance(outcomes, Mapping) else {}

    def note_trouble(self, error: exception.AcstorError) -> None:
        """Note why the process has not come to its end."""
        self._trouble = error

    def error_of(self, task: str) -> exception.AcstorError | None:
        """Return why a capture is not in the origin; None: all of it is, whatever came then."""
        if self._versions.get(task, {""}) <= self._committed:
            return None
        outcome = self._report.get(task)
        if not isinstance(outcome, Mapping):
            return self._trouble or exception.UnavailableError(
                "the process of the commit has not come to it"
            )
        try:
            return Failure.from_fields(outcome).to_error()
        except ValueError as error:
            return exception.InternalError(f"the process of the commit says nonsense: {error}")
