"""Nova in memory, as flows see it.

As in Nova a rebuild goes on by itself: a step each time that somebody looks at the server. One of a
server that is shut off starts it, and shuts it off again. A lock keeps all but administrators out,
an operation that is under way everybody; flows have the rights of an administrator.
"""

import dataclasses
from collections.abc import Iterator

from acstor import exception
from acstor.versions.services.compute import Server

REBUILDABLE = ("ACTIVE", "SHUTOFF", "ERROR")
STEPS = ("rebuilding", "rebuild_block_device_mapping", "rebuild_spawning")
"""Task states of a rebuild, one after the other (nova/compute/task_states.py)."""
POWERING_OFF = "powering-off"
POWERING_ON = "powering-on"


class MemoryCompute:
    """Servers that tests put here.

    :ivar images: those that can be rebuilt from; None: all.
    :ivar rebuild_fault: with which the next rebuilds end.
    :ivar stays_running: whether Nova leaves a server on that was shut off before its rebuild.
    :ivar hangs: whether rebuilds go no step further.
    :ivar disks: images that were written, by server, in this order.
    """

    def __init__(self) -> None:
        self.known: dict[str, Server] = {}
        self.images: set[str] | None = None
        self.rebuild_fault: str | None = None
        self.stays_running = False
        self.hangs = False
        self.disks: dict[str, list[str]] = {}
        self._actions: dict[str, list[str]] = {}
        self._was_off: set[str] = set()

    def add(self, server_id: str, project: str, host: str | None = "h1", **fields: object) -> None:
        """Put a server on a host."""
        self.known[server_id] = Server(
            id=server_id,
            project=project,
            name="a server",
            status="ACTIVE",
            host=host,
            image=None,
            task_state=None,
            metadata={},
            flavor_specs={},
            root_device="vda",
        )
        self.change(server_id, **fields)

    def change(self, server_id: str, **fields: object) -> None:
        """Change a server."""
        self.known[server_id] = dataclasses.replace(
            self.known[server_id],
            **fields,  # type: ignore[arg-type]
        )

    def delete(self, server_id: str) -> None:
        """Delete a server, whatever it is doing."""
        del self.known[server_id]

    # By its owner

    def rebuild_by_user(self, server_id: str, image_id: str) -> None:
        """Rebuild a server with the rights of its project.

        :raises ConflictError: when it is locked.
        """
        self._refuse_locked(server_id)
        self.rebuild(server_id, image_id)

    def stop_by_user(self, server_id: str) -> None:
        """Shut a server off with the rights of its project.

        :raises ConflictError: when it is locked.
        """
        self._refuse_locked(server_id)
        self.stop(server_id)

    # As flows see it

    def find_server(self, server_id: str) -> Server | None:
        found = self.known.get(server_id)
        if found is not None and not self.hangs:
            self._advance(found)
        return found

    def servers(self) -> Iterator[Server]:
        yield from list(self.known.values())

    def locked_servers(self) -> Iterator[Server]:
        yield from [server for server in self.known.values() if server.is_locked]

    def is_image_used(self, image_id: str) -> bool:
        return any(server.image == image_id for server in self.known.values())

    def last_rebuild(self, server_id: str) -> str | None:
        self._get(server_id)
        return next(iter(reversed(self._actions.get(server_id, []))), None)

    def lock(self, server_id: str, reason: str) -> None:
        self._get(server_id)
        self.change(server_id, is_locked=True, lock_reason=reason)

    def unlock(self, server_id: str) -> None:
        self._get(server_id)
        self.change(server_id, is_locked=False, lock_reason=None)

    def rebuild(self, server_id: str, image_id: str) -> None:
        server = self._idle(server_id, "rebuild", REBUILDABLE)
        if self.images is not None and image_id not in self.images:
            raise exception.InvalidError(f"Nova refuses: there is no image {image_id}")
        if server.status == "SHUTOFF":
            self._was_off.add(server_id)
        actions = self._actions.setdefault(server_id, [])
        actions.append(f"req-{len(actions) + 1}")
        self.change(server_id, image=image_id, status="REBUILD", task_state=STEPS[0], fault=None)

    def stop(self, server_id: str) -> None:
        self._idle(server_id, "os-stop", ("ACTIVE", "ERROR"))
        self.change(server_id, task_state=POWERING_OFF)

    def start(self, server_id: str) -> None:
        self._idle(server_id, "os-start", ("SHUTOFF",))
        self.change(server_id, task_state=POWERING_ON)

    def _get(self, server_id: str) -> Server:
        try:
            return self.known[server_id]
        except KeyError:
            raise exception.NotFoundError(f"there is no server {server_id}") from None

    def _idle(self, server_id: str, action: str, statuses: tuple[str, ...]) -> Server:
        server = self._get(server_id)
        if server.task_state is not None or server.status not in statuses:
            raise exception.ConflictError(
                f"Cannot '{action}' server {server_id} while it is in task_state "
                f"{server.task_state}, vm_state {server.status}"
            )
        return server

    def _refuse_locked(self, server_id: str) -> None:
        if self._get(server_id).is_locked:
            raise exception.ConflictError(f"server {server_id} is locked")

    def _advance(self, server: Server) -> None:
        """Go a step on with what the server is doing."""
        if server.task_state == POWERING_OFF:
            self.change(server.id, status="SHUTOFF", task_state=None)
        elif server.task_state == POWERING_ON:
            self.change(server.id, status="ACTIVE", task_state=None)
        elif server.task_state in STEPS[:-1]:
            after = STEPS[STEPS.index(server.task_state) + 1]
            self.change(server.id, task_state=after)
        elif server.task_state == STEPS[-1]:
            self._end_rebuild(server)
        elif server.id in self._was_off and server.status == "ACTIVE" and not self.stays_running:
            self._was_off.discard(server.id)
            self.change(server.id, task_state=POWERING_OFF)

    def _end_rebuild(self, server: Server) -> None:
        if self.rebuild_fault is not None:
            self.change(server.id, status="ERROR", task_state=None, fault=self.rebuild_fault)
            return
        self.disks.setdefault(server.id, []).append(str(server.image))
        self.change(server.id, status="ACTIVE", task_state=None)
