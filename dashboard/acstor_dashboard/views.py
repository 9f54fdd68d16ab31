"""Views of the plug-in: refused without a right, standing without an API, one call for a page."""

from collections.abc import Callable, Mapping
from typing import Any, ClassVar, TypeVar

from django import http, urls
from django.utils.translation import gettext as _
from horizon import forms, messages, tables, views
from horizon.utils import functions

from acstor_dashboard import authorization, connection, failures, marker_pages
from acstor_dashboard.connection import PageProxy
from acstor_dashboard.marker_pages import Page, Place
from acstor_dashboard.tables import MarkerTable
from acstorclient import exception
from acstorclient.v1.base import Resource

Found = TypeVar("Found")

MARKER_INVALID = "acstor.marker.invalid"
"""Code of the API where the item of a marker is not there."""


class Asking:
    """A part of a page that stands without an answer of the API.

    :ivar failures: what it has instead.
    """

    request: http.HttpRequest
    failures: list[failures.Failure]

    def ask(self, question: Callable[[PageProxy], Found], otherwise: Found) -> Found:
        """Return an answer of the API; where it fails, the page says so and has this instead."""
        try:
            return question(connection.connect(self.request))
        except failures.API_ERRORS as error:
            self.failures.append(failures.explain(error))
            return otherwise


class Guarded(Asking):
    """A view that needs rights, and the API.

    :cvar rules: rules of the API that the user has to pass.
    """

    rules: ClassVar[tuple[str, ...]] = ()
    kwargs: Mapping[str, Any]

    def dispatch(self, request: http.HttpRequest, *args: Any, **kwargs: Any) -> http.HttpResponse:
        """Answer a request.

        :raises NotAuthorized: the user does not pass the rules.
        """
        authorization.require(request, self.rules)
        self.failures = []
        answer: http.HttpResponse = super().dispatch(  # type: ignore[misc] # a mixin of views
            request, *args, **kwargs
        )
        return answer

    def has_right(self, *rules: str) -> bool:
        """Return whether the user passes more rules."""
        return authorization.may(self.request, *rules)

    def get_context_data(self, **kwargs: Any) -> dict[str, Any]:
        """Return the context of the page, with what failed."""
        context: dict[str, Any] = super().get_context_data(  # type: ignore[misc] # a mixin
            **kwargs
        )
        return {**context, "failures": self.failures}


class PageView(Guarded, views.HorizonTemplateView):
    """A page that changes nothing."""


class MarkerListView(Guarded, tables.DataTableView):
    """A table, a page of it at a time.

    :cvar kind: class of the rows.
    :cvar sort_dir: direction of the list; None: the API has one order, and no way back.
    """

    template_name = "acstor_dashboard/list.html"
    kind: ClassVar[type[Resource]]
    sort_dir: ClassVar[str | None] = "desc"

    def query(self) -> dict[str, Any]:
        """Return filters of the list, as the API takes them."""
        return {}

    def path(self) -> str | None:
        """Return the list's path; None: the kind's own."""
        return None

    def get_data(self) -> list[Any]:
        """Return the rows."""
        place, query = self._place(), self.query()
        page: Page[Any] = self.ask(lambda api: self._fetch(api, place, query), Page(()))
        table = self.get_table()
        assert isinstance(table, MarkerTable)
        table.following, table.previous = page.following, page.previous
        return list(page.items)

    def _fetch(self, api: PageProxy, place: Place, query: Mapping[str, Any]) -> Page[Any]:
        """Return a page; the first one where the item that it is beside is not there any more."""
        options = (query, self.sort_dir, self.path())
        try:
            return marker_pages.fetch(api, self.kind, place, *options)
        except exception.BadRequestError as error:
            if error.code != MARKER_INVALID or place.marker is None:
                raise
        messages.info(self.request, _("The list has changed; this is its first page."))
        return marker_pages.fetch(api, self.kind, Place(None, False, place.size), *options)

    def _place(self) -> Place:
        meta = self.table_class._meta
        query = self.request.GET
        previous = query.get(meta.prev_pagination_param)
        marker = previous or query.get(meta.pagination_param)
        return Place(marker, bool(previous), functions.get_page_size(self.request))

    def get_context_data(self, **kwargs: Any) -> dict[str, Any]:
        """Return the context; a filter that the API refuses can be changed."""
        is_refused = all(each.kind is failures.Kind.INVALID for each in self.failures)
        return {**super().get_context_data(**kwargs), "shows_table": is_refused}

    def filters(self, exact: frozenset[str]) -> dict[str, str]:
        """Return the filter that the user has set.

        :param exact: fields whose value is taken as it is, whatever it looks like.
        """
        field, text = self.table.get_filter_field(), self.table.get_filter_string().strip()
        if not field or not text:
            return {}
        return {field: f"eq:{text}" if field in exact else text}


class ActionView(Guarded, forms.ModalFormView):
    """A form, in a window over the page or as a page of its own.

    :cvar url: name of its URL.
    :cvar success: name of the URL to go to afterwards.
    :cvar explanation: sentences beside the form.
    """

    template_name = "acstor_dashboard/form.html"
    ajax_template_name = "acstor_dashboard/_form.html"
    url: ClassVar[str]
    success: ClassVar[str]
    explanation: ClassVar[tuple[object, ...]] = ()

    def losses(self) -> list[str]:
        """Return what the user loses, a sentence each."""
        return []

    def get_success_url(self) -> str:
        """Return where to go afterwards."""
        return str(urls.reverse(self.success))

    def get_cancel_url(self) -> str:
        """Return where to go without having done anything."""
        return self.get_success_url()

    def get_context_data(self, **kwargs: Any) -> dict[str, Any]:
        """Return the context of the form."""
        losses = self.losses()
        context = super().get_context_data(**kwargs)
        context["submit_url"] = urls.reverse(self.url, kwargs=self.kwargs)
        context["explanation"] = [str(sentence) for sentence in self.explanation]
        context["losses"] = losses
        return context
