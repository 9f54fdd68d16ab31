"""Running the flow of one task: from wherever the last worker left it, to its end."""

import importlib
import logging
from collections.abc import Callable, Mapping
from typing import Any

from taskflow import engines, exceptions, states
from taskflow.patterns import linear_flow
from taskflow.types.failure import Failure

from acstor import exception
from acstor.versions.database.schedule_store import TargetKind
from acstor.versions.database.task_states import TaskEvent
from acstor.versions.database.tasks import Task, TaskError, TaskKind
from acstor.versions.flows import chosen_method
from acstor.versions.flows.chosen_method import method_of
from acstor.versions.flows.step import Step
from acstor.versions.flows.work import Work
from acstor.versions.worker.flow_books import FlowBooks

LOG = logging.getLogger(__name__)

FACTORIES: Mapping[TaskKind, str] = {
    TaskKind.CREATE: "acstor.versions.flows.create_version.steps",
    TaskKind.DELETE: "acstor.versions.flows.delete_version.steps",
    TaskKind.EXPIRE: "acstor.versions.flows.expire_versions.steps",
    TaskKind.EXPORT: "acstor.versions.flows.export_version.steps",
    TaskKind.IMAGE: "acstor.versions.flows.make_image.steps",
    TaskKind.IMAGE_REMOVE: "acstor.versions.flows.remove_image.steps",
    TaskKind.RESTORE: "acstor.versions.flows.restore_volume.steps",
    TaskKind.PRELOAD: "acstor.versions.flows.preload_image.steps",
}
"""Function that returns the steps of the flow of each kind: names that never change."""
VARIANTS: Mapping[tuple[TaskKind, TargetKind], str] = {
    (TaskKind.RESTORE, TargetKind.SERVER): "acstor.versions.flows.restore_server.steps",
}
"""The same of kinds that have another flow for another target."""
METHODS: Mapping[tuple[TaskKind, TargetKind, str], str] = {
    (
        TaskKind.RESTORE,
        TargetKind.SERVER,
        "in_place",
    ): "acstor.versions.flows.restore_in_place.steps",
}
"""The same of those that have another flow for a method that is asked for, or chosen."""
TAKES_MAX = 20
"""Times that a task is taken before it counts as failed: it may be what kills its workers."""
REVERT_TAKES_MAX = 2 * TAKES_MAX
"""Times that a task is taken before it ends with what is left of it noted: undoing kills, too."""
_ENDED = frozenset({states.SUCCESS, states.REVERTED, states.FAILURE})
"""States of a flow in which it is never run again: it would begin anew."""

Factory = Callable[[], list[Step]]


class _TooOftenError(exception.InternalError):
    """Workers at the task died again and again."""

    code = "acstor.task.workers_died"
    default_hint = "see the log of acstor-worker for what ended it, then ask again"


def flow_of(factory: str) -> linear_flow.Flow:
    """Return the flow that a factory's steps are, one after the other; taskflow stores this call.

    :param factory: dotted name of a function that returns the steps.
    """
    module, _, name = factory.rpartition(".")
    steps = getattr(importlib.import_module(module), name)()
    return linear_flow.Flow(factory).add(*steps)


class FlowRunner:
    """Runs flows, each to its end or to an interruption.

    :param factories: see :data:`FACTORIES`.
    """

    def __init__(self, books: FlowBooks, factories: Mapping[TaskKind, str] = FACTORIES) -> None:
        """Keep what to run with."""
        self._books = books
        self._factories = factories

    def run(self, work: Work) -> Task:
        """Bring a task to its end, and return it.

        :raises Interrupted: when the work ends early: others go on.
        """
        task = work.task
        if task.kind not in self._factories:
            unknown = exception.UnsupportedError(f"this worker knows no task {task.kind}")
            return self._finish(work, TaskEvent.FAIL, error=TaskError.of(unknown))
        if task.epoch > REVERT_TAKES_MAX:
            work.note("workers died while it was undone: what is left of it is left to the sweep")
            return self._end_of_failure(work)
        with work.interrupting():
            flow = self._books.open(task.id, task.epoch, str(task.kind))
        if flow.state not in _ENDED:
            if task.epoch > TAKES_MAX and not _is_all_done(flow):
                work.fail(_TooOftenError(f"task {task.id} was taken {task.epoch} times"))
            self._run_engine(work, flow)
        return self._end(work, flow)

    def _run_engine(self, work: Work, flow: Any) -> None:
        engine = self._load(work, flow)
        engine.storage.inject({"work": work}, transient=True)
        work.find_result = lambda step: _result(engine, step)
        try:
            engine.run()
        except Exception as error:
            # Of a step, which has noted it; the flow is undone by now.
            LOG.info("task %s failed: %s", work.task.id, exception.one_line(error))

    def _load(self, work: Work, flow: Any) -> Any:
        options: dict[str, Any] = {"backend": self._books, "engine": "serial"}
        if flow.meta and "factory" in flow.meta:
            return engines.load_from_detail(flow, **options)
        if not work.is_reverting:
            chosen_method.choose(work)
        name = self._factory_of(work.task)
        engine = engines.load(flow_of(name), flow_detail=flow, **options)
        with work.interrupting():
            engines.save_factory_details(flow, flow_of, [name], {}, backend=self._books)
        return engine

    def _factory_of(self, task: Task) -> str:
        """Return the name of the function that returns the steps of a task."""
        target, method = task.parameters.get("kind"), method_of(task.parameters)
        of_kind = self._factories[task.kind]
        of_target = VARIANTS.get((task.kind, target), of_kind)  # type: ignore[arg-type]
        return METHODS.get((task.kind, target, str(method)), of_target)  # type: ignore[arg-type]

    def _end(self, work: Work, flow: Any) -> Task:
        """Write the end of the task, then forget the rows of its flow."""
        if flow.state == states.SUCCESS:
            result = _results(flow).get("finish")
            return self._finish(work, TaskEvent.FINISH, result=result)
        if flow.state != states.REVERTED:
            work.note(f"its flow ended as {flow.state}: what is left of it is left to the sweep")
        return self._end_of_failure(work)

    def _end_of_failure(self, work: Work) -> Task:
        with work.interrupting():
            task = work.stores.tasks.get(work.task.id)
        if not work.is_reverting:
            work.fail(exception.InternalError(f"the flow of task {task.id} ended without reason"))
            with work.interrupting():
                task = work.stores.tasks.get(work.task.id)
        is_cancelled = task.is_cancelled and task.error is None
        return self._finish(work, TaskEvent.WITHDRAW if is_cancelled else TaskEvent.FAIL)

    def _finish(self, work: Work, event: TaskEvent, **fields: Any) -> Task:
        with work.interrupting():
            task = work.stores.tasks.finish(work.lease, event, **fields)
        try:
            self._books.forget(task.id, task.epoch)
        except exception.UnavailableError as error:
            # Rows of tasks that have ended are swept, too.
            LOG.warning("the rows of task %s are left: %s", task.id, exception.one_line(error))
        return task


def _result(engine: Any, step: str) -> Any:
    """Return the result of a step; None where it has none, or failed."""
    try:
        found = engine.storage.fetch(step)
    except exceptions.NotFound:
        return None
    return None if isinstance(found, Failure) else found


def _is_all_done(flow: Any) -> bool:
    """Return whether every step has succeeded, and only the flow's own end is not written."""
    atoms = list(flow)
    return bool(atoms) and all(atom.state == states.SUCCESS for atom in atoms)


def _results(flow: Any) -> dict[str, Any]:
    return {atom.name: atom.results for atom in flow}
