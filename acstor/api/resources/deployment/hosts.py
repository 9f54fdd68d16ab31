"""Hosts, for administrators. A host's name is its id."""

from typing import Any

from acstor.api.backends import Backends
from acstor.api.cluster import live_state
from acstor.api.errors import not_found
from acstor.api.operations import Answer, Call, operation
from acstor.api.resources.base import BackedResource
from acstor.api.schemas import cluster as schemas

_HINT = "list what there is: openstack acstor host list"


def fields_of(backends: Backends, name: str) -> dict[str, Any]:
    """Return a host.

    :raises NotFoundError: when neither the members nor the ring have it.
    """
    deployment = backends.deployment
    member, ring = deployment.members().get(name), deployment.ring()
    if member is None and (ring is None or name not in ring.shares):
        raise not_found("host", name, hint=_HINT)
    is_wanted = deployment.is_drain_wanted(name)
    heard = deployment.states().get(name)
    return live_state.host_fields(name, member, heard, is_drain_wanted=is_wanted)


class Hosts(BackedResource):
    """Hosts: ``/v1/hosts``."""

    @operation("hosts:list", "List hosts", {200: schemas.HOSTS_LISTED}, query=schemas.HOSTS_QUERY)
    def on_get(self, call: Call) -> Answer:
        """Answer all: members that are alive, and hosts that the ring still has."""
        deployment = self._backends.deployment
        members, ring, heard = deployment.members(), deployment.ring(), deployment.states()
        names = sorted({*members, *({} if ring is None else ring.shares)})
        found = [
            live_state.host_fields(
                name,
                members.get(name),
                heard.get(name),
                is_drain_wanted=deployment.is_drain_wanted(name),
            )
            for name in names
            if call.query.get("name") in (None, name)
        ]
        wanted = call.query.get("state")
        hosts = [host for host in found if wanted in (None, host["state"])]
        return Answer({"hosts": hosts, "links": []})


class Host(BackedResource):
    """One host: ``/v1/hosts/<name>``."""

    @operation("hosts:show", "Show a host", {200: schemas.HOST_SHOWN})
    def on_get(self, call: Call) -> Answer:
        """Answer the host."""
        return Answer({"host": fields_of(self._backends, call.path["host"])})

    @operation(
        "hosts:update",
        "Drain a host, or give it its part of the ring back",
        {200: schemas.HOST_SHOWN},
        body=schemas.HOST_CHANGE,
    )
    def on_patch(self, call: Call) -> Answer:
        """Write what is wanted; its agent follows within seconds, as its state shows."""
        name = call.path["host"]
        fields_of(self._backends, name)
        is_drained = call.body["host"]["draining"]
        self._backends.deployment.want_drain(name, is_drained=is_drained)
        return Answer({"host": fields_of(self._backends, name)})
