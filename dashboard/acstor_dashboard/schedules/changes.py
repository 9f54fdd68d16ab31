"""Forms that make, change and delete schedules."""

import functools
from typing import Any

from django import http
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy
from horizon import forms, messages

from acstor_dashboard.connection import PageProxy
from acstor_dashboard.forms import CONSISTENCY_CHOICES, ApiForm
from acstor_dashboard.schedules import tables
from acstor_dashboard.views import ActionView
from acstor_dashboard.wording import DAYS, EVERY
from acstorclient.v1.schedule import Schedule

COUNT_MAX = 100_000
"""Largest count of a retention."""
COUNTERS = (
    ("last", gettext_lazy("Keep the newest")),
    ("hourly", gettext_lazy("Keep one of each hour, so many")),
    ("daily", gettext_lazy("Keep one of each day, so many")),
    ("weekly", gettext_lazy("Keep one of each week, so many")),
    ("monthly", gettext_lazy("Keep one of each month, so many")),
    ("yearly", gettext_lazy("Keep one of each year, so many")),
)
"""Counters of a retention that the form has."""
WITHIN = r"^([0-9]{1,6}[ymdh])+$"
"""Span of time as the API takes it."""


class ScheduleForm(ApiForm):
    """Form of a schedule's times and retention."""

    name = forms.CharField(label=gettext_lazy("Name"), max_length=255)
    every = forms.ThemableChoiceField(label=gettext_lazy("How Often"), choices=tuple(EVERY.items()))
    at = forms.RegexField(
        r"^([01][0-9]|2[0-3]):[0-5][0-9]$",
        label=gettext_lazy("Time"),
        initial="00:00",
        help_text=gettext_lazy(
            "Hours and minutes, 02:30; of an hourly one only the minutes count."
        ),
        error_messages={"invalid": gettext_lazy("Write a time such as 02:30.")},
    )
    weekday = forms.ThemableChoiceField(
        label=gettext_lazy("Day of the Week"),
        choices=[(number, day) for number, day in enumerate(DAYS, 1)],
        help_text=gettext_lazy("Of weekly ones."),
    )
    monthday = forms.IntegerField(
        label=gettext_lazy("Day of the Month"),
        min_value=1,
        max_value=31,
        initial=1,
        help_text=gettext_lazy("Of monthly ones."),
    )
    timezone = forms.CharField(
        label=gettext_lazy("Time Zone"),
        initial="UTC",
        max_length=64,
        help_text=gettext_lazy("For example Europe/Berlin."),
    )
    window_minutes = forms.IntegerField(
        label=gettext_lazy("Spread Over (minutes)"),
        min_value=0,
        max_value=1440,
        required=False,
        help_text=gettext_lazy("Servers and volumes are taken one after the other in this time."),
    )
    consistency = forms.ThemableChoiceField(
        label=gettext_lazy("Consistency"), choices=CONSISTENCY_CHOICES
    )
    within = forms.RegexField(
        WITHIN,
        label=gettext_lazy("Keep everything of the last"),
        required=False,
        max_length=40,
        help_text=gettext_lazy("For example 3d, or 1m12h: years y, months m, days d, hours h."),
        error_messages={"invalid": gettext_lazy("Write a span such as 3d or 1m12h.")},
    )
    enabled = forms.BooleanField(label=gettext_lazy("Enabled"), initial=True, required=False)

    def __init__(self, request: http.HttpRequest, *args: Any, **kwargs: Any) -> None:
        super().__init__(request, *args, **kwargs)
        for name, label in COUNTERS:
            self.fields[name] = forms.IntegerField(
                label=label, min_value=-1, max_value=COUNT_MAX, required=False
            )

    def attributes(self, data: dict[str, Any]) -> dict[str, Any]:
        """Return what the API is sent.

        Spans by the hour, day and so on, which the form has not, stay as they are.
        """
        keep = dict(self.initial.get("keep_more") or {})
        keep |= {name: data[name] for name, _label in COUNTERS if data.get(name)}
        if data["within"]:
            keep["within"] = data["within"]
        names = ("name", "every", "at", "timezone", "consistency", "enabled")
        found = {name: data[name] for name in names}
        found["keep"] = keep
        if data["window_minutes"] is not None:
            found["window_minutes"] = data["window_minutes"]
        if data["every"] == "week":
            found["on"] = int(data["weekday"])
        if data["every"] == "month":
            found["on"] = data["monthday"]
        return found


class CreateForm(ScheduleForm):
    """Form that makes a schedule."""

    def act(self, api: PageProxy, data: dict[str, Any]) -> http.HttpResponse:
        """Make it."""
        made = api.create_schedule(**self.attributes(data))
        messages.success(self.request, _("The schedule was created. Add servers or volumes to it."))
        return _redirect(made.id)


class CreateView(ActionView):
    """Make a schedule."""

    form_class = CreateForm
    page_title = gettext_lazy("Create Schedule")
    modal_id = "acstor_schedule_create"
    submit_label = gettext_lazy("Create Schedule")
    rules = ("schedules:create",)
    url = f"{tables.PANEL}:create"
    success = f"{tables.PANEL}:index"
    explanation = (
        gettext_lazy("A version stays if one of the rules keeps it."),
        gettext_lazy("Without a rule everything stays. -1 keeps all."),
        gettext_lazy("Locked versions, those in use and those taken by hand always stay."),
    )


class ScheduleAction(ActionView):
    """A form about one schedule."""

    success = f"{tables.PANEL}:index"

    @functools.cached_property
    def schedule(self) -> Schedule | None:
        """Return the schedule; None: it is not there, and the form says so."""
        schedule_id = str(self.kwargs["schedule"])
        return self.ask(lambda api: Schedule.existing(id=schedule_id).fetch(api), None)

    def get_initial(self) -> dict[str, Any]:
        """Return the id for the form."""
        return {"schedule_id": str(self.kwargs["schedule"])}


class EditForm(ScheduleForm):
    """Form that changes a schedule."""

    def act(self, api: PageProxy, data: dict[str, Any]) -> http.HttpResponse:
        """Change it."""
        schedule_id = str(self.initial["schedule_id"])
        api.update_schedule(schedule_id, **self.attributes(data))
        messages.success(self.request, _("The schedule was changed."))
        return _redirect(schedule_id)


class EditView(ScheduleAction):
    """Change a schedule."""

    form_class = EditForm
    page_title = gettext_lazy("Edit Schedule")
    modal_id = "acstor_schedule_edit"
    submit_label = gettext_lazy("Save")
    rules = ("schedules:update", "schedules:show")
    url = f"{tables.PANEL}:edit"
    explanation = CreateView.explanation

    def get_initial(self) -> dict[str, Any]:
        """Return the schedule as it is."""
        initial, schedule = super().get_initial(), self.schedule
        if schedule is None:
            return initial
        keep = dict(schedule.keep or {})
        known = {name: keep.pop(name, None) for name in (*dict(COUNTERS), "within")}
        return {
            **initial,
            **known,
            "keep_more": keep,
            "name": schedule.name,
            "every": schedule.every,
            "at": schedule.at,
            "weekday": schedule.on if schedule.every == "week" else None,
            "monthday": schedule.on if schedule.every == "month" else 1,
            "timezone": schedule.timezone,
            "window_minutes": schedule.window_minutes,
            "consistency": schedule.consistency,
            "enabled": schedule.is_enabled,
        }

    def losses(self) -> list[str]:
        """Return what a shorter retention takes."""
        return [_("Versions that the new rules do not keep go at the next run.")]


class DeleteForm(ApiForm):
    """Form that deletes a schedule."""

    def act(self, api: PageProxy, data: dict[str, Any]) -> bool:
        """Delete it."""
        del data
        api.delete_schedule(str(self.initial["schedule_id"]))
        messages.success(self.request, _("The schedule was deleted."))
        return True


class DeleteView(ScheduleAction):
    """Delete a schedule."""

    form_class = DeleteForm
    page_title = gettext_lazy("Delete Schedule")
    modal_id = "acstor_schedule_delete"
    submit_label = gettext_lazy("Delete Schedule")
    rules = ("schedules:delete",)
    url = f"{tables.PANEL}:delete"
    explanation = (
        gettext_lazy("The versions that it has taken stay until somebody deletes them."),
    )

    def losses(self) -> list[str]:
        """Return what goes with it."""
        schedule = self.schedule
        if schedule is None:
            return []
        values = {"name": schedule.name, "count": len(schedule.targets or ())}
        return [
            _("The schedule %(name)s: no more versions of its %(count)d servers and volumes.")
            % values
        ]


def _redirect(schedule_id: str) -> http.HttpResponse:
    url = tables.detail_url(schedule_id)
    response = http.HttpResponseRedirect(url)
    response["X-Horizon-Location"] = url
    return response
