"""Members of an origin in several stores, for administrators. A member's name is its id."""

import datetime
from typing import Any

from acstor.api import times
from acstor.api.cluster.deployment import OriginMembers
from acstor.api.errors import not_found
from acstor.api.operations import Answer, Call, operation
from acstor.api.resources.base import BackedResource
from acstor.api.schemas import cluster as schemas
from acstor.origin.replicated.power.states import SYNCHRONISED, PowerState

_HINT = "list what there is: openstack acstor origin list"


def fields_of(members: OriginMembers, name: str) -> dict[str, Any]:
    """Return a member; what the registrar has not seen yet is null, as is what sleeps."""
    entry, status = members.record.members[name], members.status
    seen = None if status is None else status.members.get(name)
    fields: dict[str, Any] = {
        "name": name,
        "state": entry.state.value,
        "home": name == members.record.home,
        "draining": entry.state.value == "draining",
        "reachable": None,
        "owed_bytes": None,
        "sole_bytes": None,
        "refs_behind": None,
        "refs_age_seconds": None,
        "problem": "",
        "seen_at": None,
    }
    if seen is None or status is None:
        return fields
    is_asked = seen.power in SYNCHRONISED
    power = "" if seen.power is PowerState.ACTIVE else f"power: {seen.power.value}"
    moment = datetime.datetime.fromtimestamp(status.updated_at, datetime.UTC)
    age = seen.refs_age_seconds
    return fields | {
        "reachable": seen.is_reachable if is_asked else None,
        "owed_bytes": seen.owed_bytes,
        "sole_bytes": seen.sole_bytes,
        "refs_behind": seen.refs_behind,
        "refs_age_seconds": None if age is None else round(age),
        "problem": seen.error or power,
        "seen_at": times.text(moment),
    }


class OriginMemberList(BackedResource):
    """Members of the origin: ``/v1/origin/members``."""

    @operation(
        "origin_members:list", "List the members of the origin", {200: schemas.MEMBERS_LISTED}
    )
    def on_get(self, call: Call) -> Answer:
        """Answer all, removed ones too; none where the origin is one store."""
        found = self._backends.deployment.origin_members()
        members = [] if found is None else [fields_of(found, name) for name in found.record.names]
        return Answer({"origin_members": members, "links": []})


class OneOriginMember(BackedResource):
    """One member: ``/v1/origin/members/<name>``."""

    @operation("origin_members:show", "Show a member of the origin", {200: schemas.MEMBER_SHOWN})
    def on_get(self, call: Call) -> Answer:
        """Answer the member."""
        return self._shown(call.path["member"])

    @operation(
        "origin_members:update",
        "Drain a member of the origin, or keep it after all",
        {200: schemas.MEMBER_SHOWN},
        body=schemas.MEMBER_CHANGE,
    )
    def on_patch(self, call: Call) -> Answer:
        """Change its state; the registrar that leads copies away what it alone has."""
        name = call.path["member"]
        self._shown(name)
        self._backends.deployment.drain_origin_member(
            name, is_draining=call.body["origin_member"]["draining"]
        )
        return self._shown(name)

    def _shown(self, name: str) -> Answer:
        """Return the answer with a member.

        :raises NotFoundError: when there is none of that name.
        """
        found = self._backends.deployment.origin_members()
        if found is None or name not in found.record.members:
            raise not_found("origin_member", name, hint=_HINT)
        return Answer({"origin_member": fields_of(found, name)})
