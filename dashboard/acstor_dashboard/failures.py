"""Failures of the API in words of the page: what happened, what to do, the request's id."""

import dataclasses
import enum
from collections.abc import Mapping

from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy
from horizon import exceptions as horizon_exceptions
from keystoneauth1 import exceptions as keystone_exceptions
from keystoneauth1.exceptions import connection as connection_exceptions
from openstack import exceptions as sdk_exceptions

from acstor_dashboard.connection import NOT_ACCEPTABLE, SlowAnswer, timeout_seconds
from acstorclient import exception

API_ERRORS = (
    sdk_exceptions.SDKException,
    keystone_exceptions.ClientException,
    horizon_exceptions.ServiceCatalogException,
)
"""Everything that a call of the API raises."""
UNSERVED = "acstor.path.not_found"
"""Code of an API that does not know what it was asked for."""


class Kind(enum.Enum):
    """Kinds of failures, as a page tells them apart."""

    ABSENT = "absent"
    """The region has no such service."""
    DOWN = "down"
    SLOW = "slow"
    BUSY = "busy"
    OTHER_RELEASE = "other_release"
    """The API is older than the panel, or newer by too much."""
    INVALID = "invalid"
    FORBIDDEN = "forbidden"
    GONE = "gone"
    CONFLICT = "conflict"
    LIMITED = "limited"
    BROKEN = "broken"


_TEXTS: Mapping[Kind, tuple[object, object]] = {
    Kind.ABSENT: (
        gettext_lazy("This region has no ACStor."),
        gettext_lazy("Choose another region, or ask the operator of the cloud."),
    ),
    Kind.DOWN: (
        gettext_lazy("ACStor's API cannot be reached."),
        gettext_lazy("Servers and volumes go on. Try again later, or tell the operator."),
    ),
    Kind.SLOW: (
        gettext_lazy("ACStor's API did not answer in time."),
        gettext_lazy("What you asked for may have begun: look at the tasks before you repeat it."),
    ),
    Kind.BUSY: (
        gettext_lazy("ACStor's API is busy or away for a moment."),
        gettext_lazy("Try again in a minute."),
    ),
    Kind.OTHER_RELEASE: (
        gettext_lazy("ACStor's API is of another release than this panel and does not serve this."),
        gettext_lazy("The operator brings both to the same release."),
    ),
    Kind.INVALID: (
        gettext_lazy("ACStor's API refused the request."),
        gettext_lazy("Change what is named below and try again."),
    ),
    Kind.FORBIDDEN: (
        gettext_lazy("You may not do this."),
        gettext_lazy("Ask a manager of the project, or an administrator."),
    ),
    Kind.GONE: (
        gettext_lazy("It is not there, or not any more: somebody may have deleted it."),
        gettext_lazy("Go back to the list."),
    ),
    Kind.CONFLICT: (
        gettext_lazy("Its state does not allow this: somebody may have changed it meanwhile."),
        gettext_lazy("Look at it again, then decide."),
    ),
    Kind.LIMITED: (
        gettext_lazy("There is too much at once, or a limit of the project is reached."),
        gettext_lazy("Wait for what is going on, or delete what is not needed."),
    ),
    Kind.BROKEN: (
        gettext_lazy("ACStor's API failed."),
        gettext_lazy("Give the operator the id of the request."),
    ),
}
"""Sentence of each kind, and what to do where the API says nothing."""
_STATUSES: Mapping[int, Kind] = {
    400: Kind.INVALID,
    403: Kind.FORBIDDEN,
    404: Kind.GONE,
    NOT_ACCEPTABLE: Kind.OTHER_RELEASE,
    409: Kind.CONFLICT,
    410: Kind.GONE,
    413: Kind.LIMITED,
    416: Kind.INVALID,
    422: Kind.INVALID,
    429: Kind.LIMITED,
    501: Kind.OTHER_RELEASE,
    502: Kind.DOWN,
    503: Kind.BUSY,
    504: Kind.SLOW,
}


@dataclasses.dataclass(frozen=True)
class Failure:
    """A failure as a page shows it."""

    kind: Kind
    title: str
    """A sentence of the dashboard."""
    detail: str
    """The API's own sentence, if it has said one; English."""
    advice: str
    request_id: str = ""

    def text(self) -> str:
        """Return it as one paragraph, for a form or a message."""
        parts = [self.title, self.detail, self.advice]
        if self.request_id:
            parts.append(_("Request: %s") % self.request_id)
        return " ".join(part for part in parts if part)


def explain(error: Exception) -> Failure:
    """Return the failure that an error of :data:`API_ERRORS` is.

    :raises NotAuthenticated: the token is over; Horizon leads to the login and back.
    """
    status = getattr(error, "status_code", None) or getattr(error, "http_status", None)
    if status == 401 or isinstance(error, keystone_exceptions.Unauthorized):
        raise horizon_exceptions.NotAuthenticated from error
    kind = _kind(error, status)
    title, advice = (str(text) for text in _TEXTS[kind])
    if not isinstance(error, exception.ApiError):
        detail = ""
        if kind is Kind.SLOW:
            waited = error.seconds if isinstance(error, SlowAnswer) else timeout_seconds()
            detail = _("It was waited for %d seconds.") % waited
            if isinstance(error, SlowAnswer) and error.is_read:
                advice = _("Nothing was changed. Try again later.")
        elif kind is Kind.OTHER_RELEASE:
            detail = str(error)
        return Failure(kind, title, detail, advice)
    said = error.explanation
    detail = f"{said.detail or said.title} ({said.code})" if said.code else said.detail
    return Failure(kind, title, detail, said.hint or advice, said.request_id)


def _kind(error: Exception, status: int | None) -> Kind:
    match error:
        case horizon_exceptions.ServiceCatalogException():
            return Kind.ABSENT
        case keystone_exceptions.ConnectTimeout():
            return Kind.SLOW
        case connection_exceptions.ConnectionError():
            return Kind.DOWN
        case exception.NoMicroversion() | keystone_exceptions.DiscoveryFailure():
            return Kind.OTHER_RELEASE
        case exception.ApiError() if error.code == UNSERVED:
            return Kind.OTHER_RELEASE
        case sdk_exceptions.NotFoundException():
            return Kind.GONE
    return _STATUSES.get(status or 0, Kind.BROKEN)
