"""Bring a one-box up: what is there is kept, what is missing is made."""

import functools
import pathlib
import shutil
import time

from testbed import exception
from testbed.guest import recipe
from testbed.guest.build import GuestImage, build_guest
from testbed.onebox import environment, network, services, steps, unit
from testbed.onebox.ceph import Ceph
from testbed.onebox.configuration import block_storage, ceph, files
from testbed.onebox.control_plane import ControlPlane
from testbed.onebox.databases import SYNCHRONIZED, Databases
from testbed.onebox.directory import OneBoxDirectory
from testbed.onebox.host import Host
from testbed.onebox.service_control import ServiceControl, log_tail
from testbed.onebox.services import Service
from testbed.onebox.settings import Settings
from testbed.run_directory import DEFAULT_ROOT

HOSTS_TIMEOUT_S = 180.0
COMMAND_TIMEOUT_S = 60.0
POLL_INTERVAL_S = 0.5
#: Services that need ACStor's tables.
_OF_TABLES = ("acstor-api", "acstor-worker")
#: Steps before the start of each daemon of Ceph.
_CEPH_STEPS = {
    "ceph-mon": ("monitor",),
    "ceph-osd": ("OSD",),
    "ceph-mgr": ("ceph-mon on controller",),
}


def hosts_of(directory: OneBoxDirectory, settings: Settings) -> dict[str, Host]:
    """Return the hosts of a one-box by name, the controller first."""
    names = [network.CONTROLLER, *settings.compute_names]
    return {name: Host(directory, name, network.address_of(name)) for name in names}


class BringUp:
    """One run of ``up``."""

    def __init__(
        self,
        directory: OneBoxDirectory,
        settings: Settings,
        report: steps.Report,
        wheel: pathlib.Path | None = None,
    ) -> None:
        self._directory = directory
        self._settings = settings
        self._report = report
        self._wheel = wheel
        self._hosts = hosts_of(directory, settings)
        self._control = ServiceControl(directory, self._hosts)
        self._controller = self._hosts[network.CONTROLLER]
        self._databases = Databases(directory, self._controller)
        self._ceph = Ceph(directory, self._hosts, self._control)
        self._guest: GuestImage | None = None
        self._services: list[Service] = []

    def run(self) -> None:
        """Bring everything up.

        :raises TestbedError: when a step fails; the message names it.
        """
        self._directory.create()
        self._settings.save(self._directory)
        self._install()
        self._do(self.plan())

    def _do(self, plan: list[steps.Step]) -> None:
        steps.run(plan, self._report, self._control.cancelled.set)

    def install(self) -> None:
        """Install what the checkout's own build is not needed for; nothing is brought up.

        :raises TestbedError: when a step fails; the message names it.
        """
        self._do(self._installation())

    def _installation(self) -> list[steps.Step]:
        return [
            steps.Step("Debian packages", environment.install_packages),
            steps.Step(
                "virtual environment",
                functools.partial(environment.install_environment, self._directory),
                after=("Debian packages",),
            ),
            steps.Step("guest", self._build_guest, after=("Debian packages",)),
        ]

    def _install(self) -> None:
        install_acstor = functools.partial(environment.install_acstor, self._directory, self._wheel)
        acstor = steps.Step("ACStor", install_acstor, after=("virtual environment",))
        self._do([*self._installation(), acstor])

    def _build_guest(self) -> None:
        self._guest = build_guest(recipe.GuestRecipe(), DEFAULT_ROOT / "guests")

    def plan(self) -> list[steps.Step]:
        """Return the steps from the hosts to the cloud; ACStor's programs are installed."""
        self._services = services.all_services(
            self._directory, self._settings.compute_names, with_acstor=self._settings.with_acstor,
            with_ceph=self._settings.with_ceph,
        )  # fmt: skip
        place = ("cluster",) if self._settings.with_ceph else ()
        plan = [
            steps.Step("hosts", self._start_hosts),
            steps.Step("databases", self._databases.install, ("hosts",)),
            steps.Step("repository", self._make_repository, ("hosts", *place)),
        ]
        plan += self._infrastructure_steps()
        if self._settings.with_ceph:
            plan += self._ceph_steps()
        filled = ("database content",)
        # A cache is restored when the hosts start.
        if self._databases.are_complete or self._databases.cached.is_dir():
            plan.append(steps.Step(*filled, lambda: None, after=("mariadb",)))
        else:
            plan += self._filling_steps()
        if self._settings.with_acstor:
            plan.append(steps.Step("tables of acstor", self._databases.upgrade_acstor, (*filled,)))
        ready = []
        for service in self._services:
            if service.name not in ("mariadb", "rabbitmq", "memcached"):
                name = f"{service.name} on {service.host}"
                before = self._before(service)
                plan.append(
                    steps.Step(name, functools.partial(self._control.start, service), before)
                )
                ready.append(name)
        plan += [
            steps.Step(
                "image", self._upload_guest, ("glance on controller", "keystone on controller")
            ),
            steps.Step(
                "flavors", lambda: ControlPlane(self._controller).create_flavors(),
                ("nova-api on controller", "keystone on controller"),
            ),
            steps.Step(
                "network", lambda: ControlPlane(self._controller).create_network(),
                ("neutron on controller", "keystone on controller"),
            ),
            steps.Step(
                "volume types", self._create_volume_types,
                ("cinder-api on controller", "keystone on controller"),
            ),
            steps.Step("cloud", self._wait_cloud, tuple(ready)),
        ]  # fmt: skip
        return plan

    def _before(self, service: Service) -> tuple[str, ...]:
        """Return the steps before the start of a service that is not infrastructure."""
        ours = [
            f"{other.name} on {other.host}"
            for other in self._services
            if other.is_acstor and other.host == service.host and other.name not in _OF_TABLES
        ]
        if service.name == "nova-compute":
            # It waits ten seconds at a time for the conductor. And the links in its image cache
            # must lead somewhere before it looks at them.
            return (
                "nova-conductor on controller", "keystone on controller", "placement on controller",
                f"libvirtd on {service.host}", *ours,
            )  # fmt: skip
        if service.name in _CEPH_STEPS:
            return _CEPH_STEPS[service.name]
        if service.name in ("ovs-vswitchd", "neutron-openvswitch-agent"):
            needed = "ovsdb-server" if service.name == "ovs-vswitchd" else "ovs-vswitchd"
            return (f"{needed} on {service.host}", "rabbitmq")
        if service.name == "libvirtd":
            return (f"virtlogd on {service.host}",)
        if service.name == "acstor-mount":
            return ("hosts",)
        if service.name in _OF_TABLES:
            return ("rabbitmq", "memcached", "repository", "tables of acstor")
        if service.is_acstor and service.name != "acstor-registrar":
            return ("rabbitmq", "repository", f"acstor-mount on {service.host}")
        if service.host == network.CONTROLLER:
            uses_volumes = service.name in ("cinder-volume", "cinder-backup")
            before = ("database content", "rabbitmq", "memcached", "repository")
            return (*before, *(ours if uses_volumes else ()))
        return ("hosts",)

    def _infrastructure_steps(self) -> list[steps.Step]:
        mariadb, rabbitmq, memcached = services.infrastructure_services()
        return [
            steps.Step("mariadb", functools.partial(self._control.start, mariadb), ("databases",)),
            steps.Step("rabbitmq", functools.partial(self._control.start, rabbitmq), ("hosts",)),
            steps.Step("memcached", functools.partial(self._control.start, memcached), ("hosts",)),
        ]

    def _ceph_steps(self) -> list[steps.Step]:
        return [
            steps.Step("monitor", self._ceph.make_monitor, ("hosts",)),
            steps.Step("OSD", self._ceph.make_osd, ("ceph-mon on controller",)),
            steps.Step("pools", self._ceph.make_pools, ("ceph-mon on controller",)),
            steps.Step("cluster", self._ceph.complete, ("pools", "ceph-osd on controller")),
        ]

    def _filling_steps(self) -> list[steps.Step]:
        mariadb = self._service("mariadb")
        keystone, glance = self._service("keystone"), self._service("glance")
        syncs = {name: f"tables of {name}" for name in SYNCHRONIZED}
        plan = [
            steps.Step(step, functools.partial(self._databases.sync, name), ("mariadb",))
            for name, step in syncs.items()
        ]
        return [
            *plan,
            steps.Step(
                "first keystone",
                functools.partial(self._control.start, keystone),
                (syncs["keystone"], "memcached"),
            ),
            steps.Step(
                "users and endpoints",
                lambda: ControlPlane(self._controller).create_identities(),
                ("first keystone",),
            ),
            steps.Step(
                "first glance",
                functools.partial(self._control.start, glance),
                ("users and endpoints", syncs["glance"], "rabbitmq"),
            ),
            steps.Step("first image", self._upload_guest, ("first glance",)),
            steps.Step(
                "database content",
                lambda: self._databases.complete(
                    lambda: self._control.stop(mariadb), lambda: self._control.start(mariadb)
                ),
                ("first image", *syncs.values()),
            ),
        ]

    def _service(self, name: str) -> Service:
        return next(service for service in self._services if service.name == name)

    def _start_hosts(self) -> None:
        if not (self._controller.is_up and self._databases.are_complete):
            # The hosts' links ended with the controller's bridge. And what a run that ended
            # half-way has put into the databases, and the cache, is not known.
            for host in self._hosts.values():
                host.stop()
            shutil.rmtree(self._directory.shared / "coordination", ignore_errors=True)
            self._databases.restore()
        changed = files.write_all(self._directory, self._settings)
        files.give_to_user(self._directory, self._settings)
        self._controller.start(files.controller_binds(self._directory), [ceph.RUN])
        for name in self._settings.compute_names:
            binds = files.compute_binds(self._directory, name)
            self._hosts[name].start(binds, ["/run/sshd"])
        computes = [self._hosts[name] for name in self._settings.compute_names]
        network.connect(self._controller, computes)
        self._stop_changed(changed)

    def _stop_changed(self, changed: set[tuple[str, str]]) -> None:
        """Stop what runs with another configuration, or is not to run any more."""
        names = self._settings.compute_names
        known = services.all_services(
            self._directory, names, with_acstor=True, with_ceph=self._settings.with_ceph
        )
        for service in reversed(known):
            is_wanted = self._settings.with_acstor or not service.is_acstor
            if (service.host, service.configuration) in changed or not is_wanted:
                self._control.stop(service)

    def _make_repository(self) -> None:
        """Make the repository in the origin, as an operator does before the first image."""
        if self._settings.with_acstor and not (self._directory.shared / "origin/format").exists():
            # As the user who writes to it. Where there is one, in a Ceph, it makes none.
            init = unit.command(
                "acstor-registrar",
                (self._directory.program("acstor"), "repository", "init"),
                self._directory,
            )
            environment = services.base_environment(self._directory)
            self._controller.run(init, environment=environment, timeout_s=COMMAND_TIMEOUT_S)

    def _not_up(self, absent: list[tuple[str, str]]) -> exception.NotReadyError:
        """Return an error that names services that run and that the cloud does not know."""
        texts = []
        for name, host in absent:
            log = self._directory.log(host, name)
            texts.append(f"{name} on {host}; {log} ends with:\n{log_tail(log)}")
        return exception.NotReadyError(
            f"not up within {HOSTS_TIMEOUT_S:g} s: " + "\n".join(texts),
            hint="correct what the log says, then run the command again",
        )

    def _upload_guest(self) -> None:
        assert self._guest is not None
        ControlPlane(self._controller).upload_guest(self._guest)

    def _create_volume_types(self) -> None:
        types = block_storage.volume_types(with_acstor=self._settings.with_acstor)
        ControlPlane(self._controller).create_volume_types(types)

    def _wait_cloud(self) -> None:
        """Wait until compute hosts, switches and Cinder are up; an ended service ends the wait."""
        cloud = ControlPlane(self._controller)
        deadline = time.monotonic() + HOSTS_TIMEOUT_S
        wanted = set(self._settings.compute_names)
        programs = {"cinder-scheduler", "cinder-backup"}
        programs |= {
            f"cinder-volume@{backend}"
            for backend in block_storage.backends(with_acstor=self._settings.with_acstor)
        }
        while True:
            hosts, volumes = cloud.hosts_up(), cloud.volume_services_up()
            switches = cloud.switches_up()
            if hosts >= wanted and switches >= wanted and volumes >= programs:
                return
            for service in self._services:
                self._control.check_alive(service)
            if time.monotonic() > deadline:
                absent = [("nova-compute", host) for host in sorted(wanted - hosts)]
                absent += [
                    ("neutron-openvswitch-agent", host) for host in sorted(wanted - switches)
                ]
                absent += [
                    (name.partition("@")[0], network.CONTROLLER)
                    for name in sorted(programs - volumes)
                ]
                raise self._not_up(absent)
            time.sleep(POLL_INTERVAL_S)
