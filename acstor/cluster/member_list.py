"""Members of the group, as commands and checks read them without becoming one."""

import contextlib
import os

from oslo_config import cfg

from acstor import exception
from acstor.cluster.member import Member


def list_members(conf: cfg.ConfigOpts) -> dict[str, Member]:
    """Return the hosts that are alive, by name, without becoming one.

    :raises UnavailableError: when the coordination backend cannot be reached.
    """
    # A good part of the time that any command takes to start.
    import tooz

    from acstor.cluster.membership import CoordinationSettings, open_coordinator, read_members

    settings = CoordinationSettings(
        conf.coordination.backend_url,
        conf.coordination.group,
        conf.coordination.heartbeat_interval,
        conf.coordination.member_timeout,
    )
    coordinator = open_coordinator(settings, f"acstor-cli-{conf.host}-{os.getpid()}")
    try:
        return read_members(coordinator, settings.group)
    except (tooz.ToozError, OSError) as error:
        raise exception.UnavailableError(
            f"the members cannot be read: {error}", hint="check [coordination] backend_url"
        ) from error
    finally:
        with contextlib.suppress(Exception):
            coordinator.stop()
