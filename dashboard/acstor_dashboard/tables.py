"""Tables of pages by marker, and links that are shown to who may follow them."""

import urllib.parse
from collections.abc import Sequence
from typing import Any, ClassVar

from django import http, urls
from horizon import tables

from acstor_dashboard import authorization


class MarkerTable(tables.DataTable):
    """A table of one page.

    Differs from Horizon's: the markers are the request's own, not the class's, and the API's, not
    ids of rows.

    :ivar following: marker of the next page; None: there is none.
    :ivar previous: marker of the page before; None: there is none.
    """

    following: str | None = None
    previous: str | None = None

    def has_more_data(self) -> bool:
        """Return whether there is a next page."""
        return self.following is not None

    def has_prev_data(self) -> bool:
        """Return whether there is a page before."""
        return self.previous is not None

    def get_marker(self) -> str:
        """Return the marker of the next page, as a query has it."""
        return urllib.parse.quote_plus(self.following or "")

    def get_prev_marker(self) -> str:
        """Return the marker of the page before, as a query has it."""
        return urllib.parse.quote_plus(self.previous or "")


class PermittedLink(tables.LinkAction):
    """A link to a page that not everybody may see, nor for each row.

    :cvar rules: rules of the API that the user has to pass.
    """

    rules: ClassVar[tuple[str, ...]] = ()

    def allowed(self, request: http.HttpRequest, datum: Any = None) -> bool:
        """Return whether it is shown; nothing is asked for it."""
        project = None if datum is None else getattr(datum, "project_id", None)
        may = authorization.may(request, *self.rules, project_id=project)
        return may and (datum is None or self.is_sensible(datum))

    def is_sensible(self, datum: Any) -> bool:
        """Return whether a row's state allows it."""
        del datum
        return True


class ItemLink(PermittedLink):
    """A link to a page of one item: of a row, or of the item's own page.

    :cvar key: name of the part of the URL that has the item's id.
    """

    key: ClassVar[str]

    def get_link_url(self, datum: Any = None) -> str:
        """Return the URL of the item's page."""
        return str(urls.reverse(self.url, kwargs={self.key: datum.id}))


def actions_of(
    request: http.HttpRequest, item: object, links: Sequence[type[PermittedLink]]
) -> list[dict[str, str]]:
    """Return the pages of an item that the user may see: words, URL and classes of each."""
    return [
        {
            "text": str(link.verbose_name),
            "url": link.get_link_url(item),
            "classes": " ".join([*link.get_default_classes(), *link.classes]),
        }
        for link in (each() for each in links)
        if link.allowed(request, item)
    ]
