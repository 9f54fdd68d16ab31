"""Lists and pages of tasks."""

from typing import Any

from django import http
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy
from horizon import messages

from acstor_dashboard import wording
from acstor_dashboard.connection import PageProxy
from acstor_dashboard.forms import ApiForm
from acstor_dashboard.tasks import links, tables
from acstor_dashboard.views import ActionView, MarkerListView, PageView
from acstorclient.v1.task import Task

REFRESH_SECONDS = 3
"""Distance of the looks at a task that has not ended, while its page is seen."""
LIST_REFRESH_SECONDS = 6
"""Distance of the looks at a list with such a task."""


class IndexView(MarkerListView):
    """Tasks of the project."""

    table_class = tables.TaskTable
    template_name = "acstor_dashboard/tasks/index.html"
    page_title = gettext_lazy("Tasks")
    rules = ("tasks:list",)
    kind = Task

    def query(self) -> dict[str, Any]:
        """Return the user's filter."""
        return self.filters(frozenset())

    def get_context_data(self, **kwargs: Any) -> dict[str, Any]:
        """Return the context; a list in which something goes on is looked at again."""
        context = super().get_context_data(**kwargs)
        is_moving = any(not task.is_ended for task in self.table.data or ())
        return {**context, "refresh_seconds": LIST_REFRESH_SECONDS if is_moving else None}


class DetailView(PageView):
    """A task: how far it is, or how it ended."""

    template_name = "acstor_dashboard/tasks/detail.html"
    page_title = gettext_lazy("Task")
    rules = ("tasks:show",)

    def get_context_data(self, **kwargs: Any) -> dict[str, Any]:
        """Return the context."""
        task_id = str(self.kwargs["task"])
        task = self.ask(lambda api: api.get_task(task_id), None)
        context = super().get_context_data(**kwargs)
        if task is None:
            return context
        cancel = tables.Cancel()
        return {
            **context,
            "task": task,
            "kind": wording.word(wording.TASK_KINDS, task.kind),
            "state": wording.word(wording.TASK_STATES, task.state),
            "percent": round((task.progress or 0) * 100),
            "facts": facts_of(task),
            "launch_image": _launch_image(task),
            "refresh_seconds": None if task.is_ended else REFRESH_SECONDS,
            "cancel_url": cancel.get_link_url(task) if cancel.allowed(self.request, task) else "",
        }


def facts_of(task: Task) -> list[dict[str, object]]:
    """Return what is said of a task: name and value of each."""
    facts = [
        (_("ID"), task.id),
        (_("Step"), task.step or wording.UNKNOWN),
        (_("Begun"), wording.moment(task.created_at)),
        (_("Ended"), wording.moment(task.finished_at)),
    ]
    if task.bytes_total:
        facts.append(
            (_("Bytes"), f"{wording.size(task.bytes_done)} / {wording.size(task.bytes_total)}")
        )
    facts += [(name, _plain(value)) for name, value in sorted((task.outcome or {}).items())]
    return [{"name": name, "value": value} for name, value in facts]


def _plain(value: object) -> str:
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)


def _launch_image(task: Task) -> str:
    """Return the image that a server can be created of now; empty: there is none."""
    return str(task.outcome.get("image_id", "")) if task.kind == "image" else ""


class CancelForm(ApiForm):
    """Form that cancels a task."""

    def act(self, api: PageProxy, data: dict[str, Any]) -> http.HttpResponse:
        """Have it stop."""
        del data
        task = api.cancel_task(str(self.initial["task_id"]))
        messages.info(self.request, _("The task is being cancelled; what it did is undone."))
        return links.redirect(task)


class CancelView(ActionView):
    """Cancel a task."""

    form_class = CancelForm
    page_title = gettext_lazy("Cancel Task")
    modal_id = "acstor_cancel"
    submit_label = gettext_lazy("Cancel Task")
    cancel_label = gettext_lazy("Back")
    rules = ("tasks:cancel",)
    url = f"{links.PANEL}:cancel"
    success = f"{links.PANEL}:index"
    explanation = (
        gettext_lazy("It stops, and what it has done is undone."),
        gettext_lazy("One that has ended stays as it is."),
    )

    def get_initial(self) -> dict[str, Any]:
        """Return the id for the form."""
        return {"task_id": str(self.kwargs["task"])}

    def losses(self) -> list[str]:
        """Return what is lost."""
        return [_("The work that it has done so far.")]
