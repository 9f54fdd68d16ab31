"""States of the services of a one-box."""

import contextlib
import dataclasses
import enum
import pathlib

from testbed.onebox.directory import OneBoxDirectory
from testbed.onebox.host import Host
from testbed.onebox.services import Service


class ServiceState(enum.StrEnum):
    """State of a service."""

    RUNNING = "running"
    STOPPED = "stopped"
    """It was never started, or was stopped on purpose or ended in good order."""
    FAILED = "failed"
    """It ended by itself, with an error or by a signal that ``stop`` does not send."""
    HOST_DOWN = "host-down"


@dataclasses.dataclass(frozen=True)
class ServiceStatus:
    """One service."""

    name: str
    host: str
    state: ServiceState
    pid: int | None
    address: str | None
    log: str


def service_statuses(
    directory: OneBoxDirectory, hosts: dict[str, Host], services: list[Service]
) -> list[ServiceStatus]:
    """Return the state of every service."""
    programs = {name: host.programs() if host.is_up else None for name, host in hosts.items()}
    pids = {name: outer_pids(host) for name, host in hosts.items() if programs[name] is not None}
    found = []
    for service in services:
        on_host = programs[service.host]
        program = None if on_host is None else on_host.get(service.name)
        if on_host is None:
            state = ServiceState.HOST_DOWN
        elif program is None or program["returncode"] in (0, -15):
            state = ServiceState.STOPPED
        elif program["returncode"] is None:
            state = ServiceState.RUNNING
        else:
            state = ServiceState.FAILED
        running = program is not None and state is ServiceState.RUNNING
        address = hosts[service.host].address
        found.append(
            ServiceStatus(
                name=service.name,
                host=service.host,
                state=state,
                pid=pids[service.host].get(program["pid"]) if running and program else None,
                address=None if service.port is None else f"{address}:{service.port}",
                log=str(directory.log(service.host, service.name)),
            )
        )
    return found


def outer_pids(host: Host) -> dict[int, int]:
    """Return process ids as this process sees them, by those that the host's processes see."""
    found: dict[int, int] = {}
    with contextlib.suppress(OSError):
        namespace = pathlib.Path(f"/proc/{host.pid}/ns/pid").stat().st_ino
        for entry in pathlib.Path("/proc").iterdir():
            with contextlib.suppress(OSError, ValueError):
                pid = int(entry.name)
                if (entry / "ns" / "pid").stat().st_ino == namespace:
                    text = (entry / "status").read_text()
                    line = next(line for line in text.splitlines() if line.startswith("NSpid:"))
                    found[int(line.split()[-1])] = pid
    return found


def table(statuses: list[ServiceStatus]) -> str:
    """Return the services as a table for people."""
    rows = [("SERVICE", "HOST", "STATE", "PID", "ADDRESS", "LOG")]
    rows += [
        (s.name, s.host, s.state.value, str(s.pid or "-"), s.address or "-", s.log)
        for s in statuses
    ]
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    )
