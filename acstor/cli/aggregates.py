"""Hosts of a host aggregate of Nova."""

from collections.abc import Mapping
from typing import Any

from oslo_config import cfg

from acstor import exception, identity, untrusted_json
from acstor.conf import nova

AGGREGATES_MAX = 10_000
CONNECT_RETRIES = 2


def hosts_of(conf: cfg.ConfigOpts, aggregate: str) -> list[str]:
    """Return the names of an aggregate's hosts, as ACStor knows them: in lower case.

    Asks Nova with the credentials of ``[keystone]``, whose user needs to be admin there.

    :param aggregate: name, or number.
    :raises NotFoundError: when there is no such aggregate, or it is empty.
    :raises ConfigurationError: when no credentials are configured.
    :raises UnavailableError: when Keystone or Nova does not answer.
    """
    from keystoneauth1 import exceptions

    session = identity.open_session(conf)
    try:
        adapter = identity.open_adapter(conf, nova.GROUP, session, nova.SERVICE_TYPE)
        response = adapter.get("/os-aggregates", connect_retries=CONNECT_RETRIES)
        answer = untrusted_json.load(response.content, "the answer")
    except (exceptions.Unauthorized, exceptions.Forbidden) as error:
        raise exception.InvalidError(
            "Nova does not let this user list host aggregates",
            hint="give the user of [keystone] the role admin",
        ) from error
    except (exceptions.ClientException, ValueError) as error:
        raise exception.UnavailableError(
            f"Nova's host aggregates cannot be read: {type(error).__name__}",
            hint="check [keystone] and [nova], and that Keystone and Nova answer",
        ) from error
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
