"""A budget from a web server."""

import dataclasses
import urllib.parse
from collections.abc import Mapping

import requests

from acstor import abandoned_call, exception, private_files
from acstor.origin.http.credentials import LOOPBACK
from acstor.origin.replicated.power.budgets.base import TEXT_SIZE_MAX, parsed

_PIECE = 8192
"""Bytes of an answer that are taken at once."""


@dataclasses.dataclass(frozen=True, slots=True)
class HttpAccess:
    """Access to a web server."""

    seconds_max: float
    """Longest time from the request to the last byte of the answer."""
    ca_file: str | None = None
    """Authorities that are believed; None: those of the system."""
    token_file: str | None = None
    """File with a bearer token; read for each request, so that it may be renewed."""

    def check(self, url: str) -> None:
        """Refuse what would show the token to everybody.

        :raises ConfigurationError: then.
        """
        parts = urllib.parse.urlsplit(url)
        if parts.username is not None or parts.password is not None:
            raise exception.ConfigurationError(
                "the URL of the power budget has a password in it",
                hint="put a token into the file of [power] budget_token_file",
            )
        is_near = parts.hostname in LOOPBACK
        if self.token_file and parts.scheme != "https" and not is_near:
            raise exception.ConfigurationError(
                "the token of the power budget would go over the network in the clear",
                hint="use an https URL in [power] budget",
            )


def fetch(
    url: str, access: HttpAccess, description: str, query: Mapping[str, str] | None = None
) -> bytes:
    """Return what a web server answers.

    :raises UnavailableError: when it does not, or answers anything but 200.
    :raises CorruptError: when the answer is too long.
    :raises ConfigurationError: when the token cannot be read.
    """
    try:
        return abandoned_call.within(
            access.seconds_max, lambda: _fetched(url, access, description, query)
        )
    except TimeoutError as error:
        raise exception.DeadlineError(
            f"{description} did not answer within {access.seconds_max:g} s"
        ) from error
    except (requests.RequestException, OSError) as error:
        raise exception.UnavailableError(
            f"{description} cannot be asked: {type(error).__name__}",
            hint="check [power] budget, and that controllers reach the server",
        ) from error


def _fetched(
    url: str, access: HttpAccess, description: str, query: Mapping[str, str] | None
) -> bytes:
    headers = {}
    if access.token_file:
        token = private_files.read_private(access.token_file, "token").decode("ascii", "strict")
        headers["Authorization"] = f"Bearer {token.strip()}"
    with requests.get(
        url,
        params=query,
        headers=headers,
        timeout=access.seconds_max,
        verify=access.ca_file or True,
        allow_redirects=False,
        stream=True,
    ) as answer:
        if answer.status_code != requests.codes.ok:
            raise exception.UnavailableError(
                f"{description} answers with status {answer.status_code}",
                hint="check [power] budget, and the token",
            )
        content = b""
        for piece in answer.iter_content(_PIECE):
            content += piece
            if len(content) > TEXT_SIZE_MAX:
                raise exception.CorruptError(f"{description} answers with more than a number")
        return content


class HttpBudget:
    """A resource whose body is one number.

    :param url: http or https.
    :raises ConfigurationError: when it shows a password or the token.
    """

    def __init__(self, url: str, access: HttpAccess) -> None:
        access.check(url)
        self._url = url
        self._access = access

    @property
    def description(self) -> str:
        """Return the place, without its query."""
        return self._url.partition("?")[0]

    def read(self) -> float:
        """Return what the server says; see :meth:`.base.BudgetSource.read`."""
        content = fetch(self._url, self._access, self.description)
        return parsed(content.decode(errors="replace"), self.description)
