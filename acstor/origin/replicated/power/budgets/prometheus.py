"""A budget that Prometheus computes: the value of an instant query.

Source: Prometheus, HTTP API, *Instant queries* (``GET /api/v1/query``); what has gone stale there
is no result.
"""

from acstor import exception, untrusted_json
from acstor.origin.replicated.power.budgets.base import parsed
from acstor.origin.replicated.power.budgets.http import HttpAccess, fetch

PATH = "/api/v1/query"


class PrometheusBudget:
    """An instant query with exactly one result.

    :param url: of Prometheus, http or https.
    :param query: in PromQL; its value is a scalar, or a vector of one element.
    :raises ConfigurationError: when there is no query, or the URL shows a password or the token.
    """

    def __init__(self, url: str, query: str, access: HttpAccess) -> None:
        access.check(url)
        if not query:
            raise exception.ConfigurationError(
                "Prometheus is not asked for anything", hint="set [power] budget_query"
            )
        self._url = url.rstrip("/")
        self._query = query
        self._access = access

    @property
    def description(self) -> str:
        """Return the place, and the beginning of the query."""
        return f"Prometheus at {self._url}, {self._query[:100]}"

    def read(self) -> float:
        """Return the value; see :meth:`.base.BudgetSource.read`."""
        content = fetch(self._url + PATH, self._access, self.description, {"query": self._query})
        try:
            data = untrusted_json.load(content, "the answer of Prometheus")["data"]
            kind, result = data["resultType"], data["result"]
            if kind == "vector":
                if len(result) != 1:
                    raise ValueError(f"{len(result)} results, and one is wanted")
                result = result[0]["value"]
            elif kind != "scalar":
                raise ValueError(f"a {kind!r:.20} and no vector or scalar")
            _, value = result
        except (ValueError, TypeError, KeyError, AttributeError, IndexError) as error:
            raise exception.CorruptError(
                f"{self.description}: {error}",
                hint="correct [power] budget_query: it shall have one result",
            ) from error
        return parsed(value, self.description)
