"""Ring, decision in force, pins and live state, for administrators."""

import datetime

from acstor import exception
from acstor.api import times
from acstor.api.backends import Backends
from acstor.api.cluster import live_state
from acstor.api.cluster.deployment import absolute_weight, relative_weight
from acstor.api.errors import not_found
from acstor.api.operations import Answer, Call, operation
from acstor.api.resources.base import BackedResource
from acstor.api.schemas import cluster as schemas


class _OfCluster(BackedResource):
    """Resource of the cluster."""

    def __init__(self, backends: Backends) -> None:
        """Keep the backends."""
        super().__init__(backends)
        self._deployment = backends.deployment


class Ring(_OfCluster):
    """Ring: ``/v1/ring``."""

    @operation("ring:show", "Show the ring in force", {200: schemas.RING})
    def on_get(self, call: Call) -> Answer:
        """Answer the ring, and the term of the decision that it follows."""
        del call
        ring, decision = self._deployment.ring(), self._deployment.decision()
        if ring is None:
            raise not_found("ring", "yet", hint="start acstor-agent on a host")
        arcs = [{"host": name, "share": share} for name, share in sorted(ring.shares.items())]
        term = None if decision is None else decision.term
        return Answer({"ring": {"generation": ring.generation, "term": term, "arcs": arcs}})


class Decisions(_OfCluster):
    """Decisions: ``/v1/decisions``. The one in force; those before are in the leader's journal."""

    @operation("decisions:list", "Show the decision in force", {200: schemas.DECISIONS_LISTED})
    def on_get(self, call: Call) -> Answer:
        """Answer it, if there is one."""
        del call
        found, ring = self._deployment.decision(), self._deployment.ring()
        if found is None:
            return Answer({"decisions": [], "links": []})
        at = datetime.datetime.fromtimestamp(found.decided_at_ms / 1000, datetime.UTC)
        shown = {
            "id": f"{found.term}-{found.sequence}",
            "created_at": times.text(at),
            "term": found.term,
            "sequence": found.sequence,
            "generation": None if ring is None else ring.generation,
            "policy": found.policy,
            "result": "in_force",
            "threshold": found.threshold,
            "weights": {
                name: relative_weight(weight) for name, weight in sorted(found.weights.items())
            },
            "reasons": [found.reason] if found.reason else [],
        }
        return Answer({"decisions": [shown], "links": []})


class Pins(_OfCluster):
    """Pinned weights: ``/v1/pins``."""

    @operation("pins:list", "List pinned weights", {200: schemas.PINS_LISTED})
    def on_get(self, call: Call) -> Answer:
        """Answer them."""
        del call
        pins = [
            {"host": host, "weight": relative_weight(weight)}
            for host, weight in sorted(self._deployment.pins().weights.items())
        ]
        return Answer({"pins": pins, "links": []})

    @operation(
        "pins:create",
        "Pin the weight of a host",
        {201: schemas.PIN_SHOWN},
        body=schemas.PIN_CREATE,
    )
    def on_post(self, call: Call) -> Answer:
        """Pin it, in place of a pin that it has: repeating that is safe."""
        wanted = call.body["pin"]
        weight = absolute_weight(wanted["weight"])
        self._deployment.pin(wanted["host"], weight)
        shown = {"host": wanted["host"], "weight": relative_weight(weight)}
        return Answer({"pin": shown}, 201)


class Pin(_OfCluster):
    """One pinned weight: ``/v1/pins/<host>``."""

    @operation("pins:delete", "Unpin a host", {204: None})
    def on_delete(self, call: Call) -> Answer:
        """Take the pin back."""
        host = call.path["host"]
        try:
            self._deployment.unpin(host)
        except exception.NotFoundError as error:
            raise not_found("pin", host, hint="openstack acstor pin list") from error
        return Answer(status=204)


class LiveState(_OfCluster):
    """Live state: ``/v1/cluster``."""

    def __init__(self, backends: Backends) -> None:
        """Have nothing to show yet."""
        super().__init__(backends)
        self._live = live_state.LiveState(self._deployment)

    @operation(
        "cluster:show",
        "Show the live state of all hosts",
        {200: schemas.LIVE, 304: None},
        query=schemas.LIVE_QUERY,
        headers=schemas.IF_NONE_MATCH,
    )
    def on_get(self, call: Call) -> Answer:
        """Answer it; 304 to who has it already, by ``If-None-Match`` or ``since``."""
        found = self._live.document()
        etag = f'"{found["cursor"]}"'
        headers = {"ETag": etag, "Cache-Control": "private, no-cache"}
        known = {one.strip() for one in call.is_conditional_on.split(",")}
        if etag in known or call.query.get("since") == found["cursor"]:
            return Answer(status=304, headers=headers)
        return Answer({"cluster": found}, headers=headers)
