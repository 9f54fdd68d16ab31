"""Hosts of a host aggregate of Nova."""

from collections.abc import Mapping
from typing import Any

from oslo_config import cfg

from acstor import exception, identity
from acstor.conf import nova

AGGREGATES_MAX = 10_000


def hosts_of(conf: cfg.ConfigOpts, aggregate: str) -> list[str]:
    """Return the names of an aggregate's hosts, as ACStor knows them: in lower case.

    Asks Nova with the credentials of ``[keystone]``, whose user needs to be admin there.

    :param aggregate: name, or number.
    :raises NotFoundError: when there is no such aggregate, or it is empty.
    :raises ConfigurationError: when no credentials are configured.
    :raises UnavailableError: when Keystone or Nova does not answer.
    """
    adapter = identity.open_adapter(
        conf, nova.GROUP, identity.open_session(conf), nova.SERVICE_TYPE
    )
    answer = identity.ask(adapter, "/os-aggregates", "Nova", "host aggregates")
    return chosen(answer, aggregate)


def chosen(answer: object, aggregate: str) -> list[str]:
    """Return the hosts of one of the aggregates that Nova answers with."""
    found = answer.get("aggregates") if isinstance(answer, Mapping) else None
    if not isinstance(found, list) or len(found) > AGGREGATES_MAX:
        raise exception.UnavailableError("Nova answers nonsense about host aggregates")
    matching = [each for each in found if _is(each, aggregate)]
    if len(matching) != 1:
        raise exception.NotFoundError(
            f"there is no host aggregate {aggregate}",
            hint="'openstack aggregate list' shows the aggregates",
        )
    hosts = matching[0].get("hosts")
    if not isinstance(hosts, list) or not all(isinstance(host, str) for host in hosts):
        raise exception.UnavailableError("Nova answers nonsense about host aggregates")
    if not hosts:
        raise exception.NotFoundError(f"there is no host in aggregate {aggregate}")
    return sorted({host.lower() for host in hosts})


def _is(entry: Any, aggregate: str) -> bool:
    if not isinstance(entry, Mapping):
        return False
    return entry.get("name") == aggregate or str(entry.get("id")) == aggregate
