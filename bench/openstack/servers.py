"""Servers of a Debian guest on the one-box, and when each of them was where."""

import dataclasses
import re
import time

from testbed.fixtures.cloud_api import Template
from testbed.fixtures.compute_host import ComputeHost
from testbed.fixtures.one_box import RunningBox
from testbed.guest.build import GuestImage, build_guest
from testbed.guest.recipe import GuestRecipe
from testbed.run_directory import DEFAULT_ROOT

FLAVOR = "bench"
MEMORY_MIB = 256
DISK_GIB = 2
POLL_S = 0.1
STATUS_POLL_S = 0.25
BOOT_TIMEOUT_S = 600.0

_SPAWNED = re.compile(r"\[instance: ([0-9a-f-]{36})\] Took ([0-9.]+) seconds to spawn the instance")


@dataclasses.dataclass
class TimedServer:
    """One server; times in seconds from its request, None where it did not get so far."""

    id: str
    requested_at: float  #: by the monotonic clock
    post_s: float  #: until Nova's API answered the request
    host: str | None = None
    active_s: float | None = None
    login_s: float | None = None
    spawn_s: float | None = None  #: as nova-compute logs it


def debian() -> GuestImage:
    """Return the Debian guest: a raw disk of 2 GiB."""
    return build_guest(GuestRecipe(), DEFAULT_ROOT / "guests")


def request(
    box: RunningBox, template: Template, name: str, host: ComputeHost | None
) -> TimedServer:
    """Ask for one server."""
    started = time.monotonic()
    (server_id,) = box.api.create_servers(
        name, template.id, FLAVOR, host=None if host is None else host.name
    )
    return TimedServer(server_id, started, time.monotonic() - started)


def watch(box: RunningBox, servers: list[TimedServer], prompt: str) -> None:
    """Wait for the login prompt of every server and note when each was active, and there.

    :raises SystemExit: when one fails, or is not there in time.
    """
    next_look = 0.0
    while any(server.login_s is None for server in servers):
        now = time.monotonic()
        if now >= next_look:
            _read_statuses(box, [s for s in servers if s.active_s is None])
            next_look = time.monotonic() + STATUS_POLL_S
        for server in servers:
            if server.login_s is None and prompt in _console(box, server):
                server.login_s = time.monotonic() - server.requested_at
            if now - server.requested_at > BOOT_TIMEOUT_S:
                raise SystemExit(f"server {server.id} shows no login prompt: {server}")
        time.sleep(POLL_S)
    for server in servers:
        server.spawn_s = spawn_time(box, server)


def _read_statuses(box: RunningBox, servers: list[TimedServer]) -> None:
    for server in servers:
        found = box.api.server(server.id)
        if found is None or found.status == "ERROR":
            raise SystemExit(f"server {server.id} failed: {getattr(found, 'fault', 'gone')}")
        server.host = found.compute_host or server.host
        if found.status == "ACTIVE":
            server.active_s = time.monotonic() - server.requested_at


def _console(box: RunningBox, server: TimedServer) -> str:
    """Read the file, not the API: looking must not be what is measured."""
    if server.host is None:
        return ""
    host = box.host(server.host)
    try:
        path = host.path(f"{host.instances_path}/{server.id}/console.log")
        return path.read_text(errors="replace")
    except OSError:
        return ""


def spawn_time(box: RunningBox, server: TimedServer) -> float:
    """Return the time in spawn as nova-compute logged it.

    :raises SystemExit: when it did not.
    """
    assert server.host is not None
    for server_id, seconds in _SPAWNED.findall(box.host(server.host).log("nova-compute")):
        if server_id == server.id:
            return float(seconds)
    raise SystemExit(f"nova-compute on {server.host} does not say how long {server.id} took")


def delete(box: RunningBox, servers: list[TimedServer]) -> None:
    """Delete servers and wait until they are gone."""
    ids = [server.id for server in servers]
    box.api.delete_servers(ids)
    box.api.wait_deleted(ids)
