"""Choosing services of a one-box by name."""

from testbed import exception
from testbed.onebox import bring_up, services
from testbed.onebox.directory import OneBoxDirectory
from testbed.onebox.service_control import ServiceControl
from testbed.onebox.services import Service
from testbed.onebox.settings import Settings

#: Stands for every service of ACStor.
ALL_OF_ACSTOR = "acstor"


def choose(
    directory: OneBoxDirectory, name: str, host: str | None
) -> tuple[ServiceControl, list[Service]]:
    """Return the services of a name, in the order in which they start, and their control.

    :param host: only there, None: on every host.
    :raises TestbedError: when there is none.
    """
    settings = Settings.load(directory)
    # Also those of ACStor that up was told to leave out: a test may start them later.
    known = services.all_services(
        directory, settings.compute_names, with_acstor=True, with_ceph=settings.with_ceph
    )
    chosen = [
        service
        for service in known
        if (service.name == name or (name == ALL_OF_ACSTOR and service.is_acstor))
        and host in (None, service.host)
    ]
    if not chosen:
        names = sorted({service.name for service in known if host in (None, service.host)})
        raise exception.TestbedError(
            f"there is no service {name}" + (f" on {host}" if host else ""),
            hint=f"known are {', '.join(names) or 'none there'}; 'acstor' means all of ACStor",
        )
    return ServiceControl(directory, bring_up.hosts_of(directory, settings)), chosen


def restart_configured(directory: OneBoxDirectory, changed: set[tuple[str, str]]) -> None:
    """Restart the services that run and whose configuration has changed.

    :param changed: hosts and paths of the files, below their ``/etc``.
    """
    settings = Settings.load(directory)
    hosts = bring_up.hosts_of(directory, settings)
    control = ServiceControl(directory, hosts)
    known = services.all_services(
        directory, settings.compute_names, with_acstor=True, with_ceph=settings.with_ceph
    )
    for service in known:
        is_changed = (service.host, service.configuration) in changed
        if is_changed and hosts[service.host].is_running(service.name):
            control.stop(service)
            control.start(service)
