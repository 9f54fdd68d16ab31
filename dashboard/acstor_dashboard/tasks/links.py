"""Ways to the page of a task."""

from django import http, urls

from acstorclient.v1.task import Task

PANEL = "horizon:project:acstor_tasks"
"""Namespace of the panel's URLs."""


def url_of(task_id: str, name: str = "detail") -> str:
    """Return the URL of a page of a task."""
    return str(urls.reverse(f"{PANEL}:{name}", kwargs={"task": task_id}))


def redirect(task: Task) -> http.HttpResponse:
    """Return the answer that leads to a task, from a window over the page too."""
    url = url_of(task.id)
    response = http.HttpResponseRedirect(url)
    response["X-Horizon-Location"] = url
    return response
