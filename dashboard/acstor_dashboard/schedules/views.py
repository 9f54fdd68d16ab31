"""Lists and pages of schedules."""

from typing import Any

from django import urls
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from acstor_dashboard import wording
from acstor_dashboard.schedules import tables
from acstor_dashboard.tables import actions_of
from acstor_dashboard.versions.tables import PANEL as VERSIONS
from acstor_dashboard.views import MarkerListView, PageView
from acstorclient.v1.schedule import Schedule, SchedulePreview

FATES_MAX = 500
"""Most versions of a preview that a page shows, the newest of each target first."""


class IndexView(MarkerListView):
    """Schedules of the project."""

    table_class = tables.ScheduleTable
    page_title = gettext_lazy("Schedules")
    rules = ("schedules:list",)
    kind = Schedule
    sort_dir = "asc"


class DetailView(PageView):
    """A schedule, what it keeps in words, and what it does next."""

    template_name = "acstor_dashboard/schedules/detail.html"
    page_title = gettext_lazy("Schedule")
    rules = ("schedules:show",)

    def get_context_data(self, **kwargs: Any) -> dict[str, Any]:
        """Return the context: two calls of the API."""
        schedule_id = str(self.kwargs["schedule"])
        schedule = self.ask(
            lambda api: Schedule.existing(id=schedule_id).fetch(api), otherwise=None
        )
        more: dict[str, Any] = {}
        if schedule is not None:
            more = {
                "schedule": schedule,
                "times": tables.times_of(schedule),
                "retention": wording.retention(schedule.keep or {}),
                "facts": _facts(schedule),
                "targets": self._targets(schedule),
                "actions": actions_of(self.request, schedule, tables.ACTIONS),
                "preview": self._preview(schedule_id),
            }
        return {**super().get_context_data(**kwargs), **more}

    def _targets(self, schedule: Schedule) -> list[dict[str, str]]:
        may_remove = self.has_right("schedules:remove_target")
        return [
            {
                "text": f"{_kind(target['type'])} {target['id']}",
                "url": urls.reverse(f"{VERSIONS}:{target['type']}", kwargs={"owner": target["id"]}),
                "remove_url": urls.reverse(
                    f"{tables.PANEL}:remove_target",
                    kwargs={"schedule": schedule.id, "target": target["id"]},
                )
                if may_remove
                else "",
            }
            for target in schedule.targets or ()
        ]

    def _preview(self, schedule_id: str) -> dict[str, Any] | None:
        if not self.has_right("schedules:preview"):
            return None
        found = self.ask(lambda api: api.preview_schedule(schedule_id), None)
        return None if found is None else preview_words(found)


def _kind(code: str) -> str:
    return str(_("Server") if code == "server" else _("Volume"))


def _facts(schedule: Schedule) -> list[dict[str, object]]:
    facts = [
        (_("ID"), schedule.id),
        (_("Enabled"), _("Yes") if schedule.is_enabled else _("No")),
        (_("When"), tables.times_of(schedule)),
        (_("Spread over"), _("%d minutes") % (schedule.window_minutes or 0)),
        (_("Next"), wording.moment(schedule.next_run_at)),
        (_("Created"), wording.moment(schedule.created_at)),
    ]
    return [{"name": name, "value": value} for name, value in facts]


def preview_words(preview: SchedulePreview) -> dict[str, Any]:
    """Return what a schedule does if nobody changes anything, as the page shows it."""
    fates = preview.versions or []
    return {
        "runs": [
            {"time": wording.moment(run["starts_at"]), "target": run["target_id"]}
            for run in preview.runs or ()
        ],
        "kept": sum(bool(fate["kept"]) for fate in fates),
        "removed": sum(not fate["kept"] for fate in fates),
        "fates": [_fate(fate) for fate in fates[:FATES_MAX]],
        "hidden": max(len(fates) - FATES_MAX, 0),
    }


def _fate(fate: dict[str, Any]) -> dict[str, str]:
    if not fate["kept"]:
        words = _("Goes at the next run")
    elif fate.get("removed_after"):
        words = _("Goes after %s") % wording.moment(fate["removed_after"])
    else:
        words = _("Stays")
    return {
        "time": wording.moment(fate["created_at"]),
        "target": fate["target_id"],
        "url": urls.reverse(f"{VERSIONS}:detail", kwargs={"version": fate["id"]}),
        "fate": words,
        "reasons": wording.reasons(fate.get("reasons") or []),
    }
