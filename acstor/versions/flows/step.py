"""A step of a flow.

A step that is killed is made again by whoever takes the task: it is idempotent under the task's id
and its own name. Its result is small JSON. Undoing it never fails: what cannot be undone now is
noted and left to the sweep of leftovers, so that the steps before it are undone.
"""

import abc
import logging
from typing import Any, ClassVar

from taskflow import task

from acstor import exception
from acstor.versions.database.tasks import Progress
from acstor.versions.flows.work import CancelledError, Work

LOG = logging.getLogger(__name__)


class Step(task.Task):  # type: ignore[misc]
    """A step; ``step`` is its name in the task, and ``share`` the progress when it begins."""

    step: ClassVar[str]
    share: ClassVar[float] = 0.0

    def __init__(self) -> None:
        """Be known by the name of the step."""
        super().__init__(name=self.step, provides=self.step)

    @abc.abstractmethod
    def act(self, work: Work) -> Any:
        """Do it, or go on with it, or find that it is done; return small JSON."""

    def undo(self, work: Work) -> None:
        """Undo it, all of it or what was done before it failed; by default nothing is to undo."""

    def execute(self, work: Work) -> Any:
        """Do the step, and note first that it begins, or that it has failed."""
        if work.is_reverting:
            # A worker died between noting the failure here and there.
            raise CancelledError(f"task {work.task.id} is being undone")
        try:
            work.check()
            work.report(Progress(step=self.step, share=self.share))
            return self.act(work)
        except Exception as error:
            if not isinstance(error, exception.AcstorError):
                LOG.exception("step %s of task %s failed", self.step, work.task.id)
            work.fail(error)
            raise

    def revert(self, work: Work, **others: Any) -> None:
        """Undo the step; see :meth:`undo`."""
        del others
        try:
            work.report(Progress(step=f"undo {self.step}"))
            self.undo(work)
        except exception.AcstorError as error:
            work.note(f"{self.step} is not undone: {exception.one_line(error, with_hint=True)}")
        except Exception:
            LOG.exception("undoing step %s of task %s failed", self.step, work.task.id)
