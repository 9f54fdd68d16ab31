"""Page of a project's usage."""

from typing import Any

from django.utils.translation import gettext_lazy

from acstor_dashboard.versions.views import usage_words
from acstor_dashboard.views import PageView

PROJECT_LENGTH_MAX = 255
"""Longest id of a project."""


class IndexView(PageView):
    """Versions of a project, and what it may have."""

    template_name = "acstor_dashboard/usage/index.html"
    page_title = gettext_lazy("Versions per Project")
    rules = ("usage:show", "admin")

    def get_context_data(self, **kwargs: Any) -> dict[str, Any]:
        """Return the context: one call of the API."""
        wanted = self.request.GET.get("project", "").strip()[:PROJECT_LENGTH_MAX]
        project = wanted or self.request.user.project_id
        found = self.ask(lambda api: api.get_usage(project_id=project), None)
        return {
            **super().get_context_data(**kwargs),
            "project": project,
            "usage": None if found is None else usage_words(found.usage, found.limits),
        }
