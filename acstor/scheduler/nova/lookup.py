"""Look-up of the ACStor host state of a Nova host."""

from typing import Any

from acstor.scheduler.host_table import HostTable
from acstor.telemetry.host_states import HostState


def state_of(table: HostTable, host_state: Any, now: float) -> HostState | None:
    """Return what is known of the host of a Nova HostState.

    Its name is looked for first, then that of its node (libvirt's host name), both in lower case:
    where ``host`` is short in one configuration and full in the other, the node often agrees.
    """
    state = table.get(host_state.host.lower(), now)
    if state is None and host_state.nodename:
        state = table.get(host_state.nodename.lower(), now)
    return state
