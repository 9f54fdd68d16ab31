"""The services of a one-box: what runs on which host, how, and when it is ready."""

import dataclasses
import http.client
import os
import socket
from collections.abc import Callable, Sequence

from testbed.ceph_cluster import MANAGER, MONITOR
from testbed.onebox import network, unit
from testbed.onebox.configuration import (  # fmt: skip
    acstor,
    block_storage,
    ceph,
    compute,
    endpoints,
    infrastructure,
    networking,
)
from testbed.onebox.directory import OneBoxDirectory
from testbed.onebox.host import Host

#: Whether a service on a host is ready.
Readiness = Callable[[Host], bool]

_SYSTEM_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_HTTP_TIMEOUT_S = 5.0
_CONFIGURATIONS = {
    "keystone": "keystone/keystone.conf",
    "glance": "glance/glance-api.conf",
    "placement": "placement/placement.conf",
    "neutron": "neutron/neutron.conf",
    "nova-api": "nova/nova.conf",
    "cinder-api": "cinder/cinder.conf",
}
_ACSTOR_CONFIGURATION = acstor.CONFIG_FILE.removeprefix("/etc/")
_STOP_TIMEOUT_S = 15.0
#: nova-compute ends after what it is doing; its successor must not compete with it for messages.
_NOVA_COMPUTE_STOP_TIMEOUT_S = 130.0


@dataclasses.dataclass(frozen=True)
class Service:
    """One long-lived program on one host."""

    name: str
    host: str
    argv: tuple[str, ...]
    environment: dict[str, str] = dataclasses.field(default_factory=dict)
    ready: Readiness | None = None
    port: int | None = None
    stop_timeout_s: float = _STOP_TIMEOUT_S
    is_acstor: bool = False
    #: Path below the host's ``/etc`` of the file whose change wants a restart.
    configuration: str | None = None

    @property
    def key(self) -> tuple[str, str]:
        """Return what names the service in the one-box."""
        return self.host, self.name


def listens(port: int) -> Readiness:
    """Return a check that a port is listened at."""
    return lambda host: host.is_listening(port)


def answers(port: int) -> Readiness:
    """Return a check that an API answers, with whatever it answers to strangers."""

    def check(host: Host) -> bool:
        if not host.is_listening(port):
            return False
        with host.network():
            connection = http.client.HTTPConnection(host.address, port, timeout=_HTTP_TIMEOUT_S)
            try:
                connection.request("GET", "/")
                return connection.getresponse().status < http.HTTPStatus.INTERNAL_SERVER_ERROR
            except (OSError, http.client.HTTPException):
                return False
            finally:
                connection.close()

    return check


def file_exists(path: str) -> Readiness:
    """Return a check that a file of the host is there, a socket for instance."""
    return lambda host: os.path.exists(host.path(path))


def accepts(path: str) -> Readiness:
    """Return a check that a process of the host accepts at a unix socket, which may be another's.

    The name of one that was killed stays.
    """

    def check(host: Host) -> bool:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
            connection.setblocking(False)
            try:
                connection.connect(str(host.path(path)))
            except OSError:
                return False
        return True

    return check


def has_written_pid(name: str, path: str) -> Readiness:
    """Return a check that a file has the process id of a service, not that of one before."""

    def check(host: Host) -> bool:
        try:
            written = int(host.path(path).read_text())
        except (OSError, ValueError):
            return False
        return bool(written == host.programs()[name]["pid"])

    return check


def logs(name: str, text: str) -> Readiness:
    """Return a check that a service has logged a text since it was started."""
    return lambda host: text in host.log_since_start(name)


def base_environment(directory: OneBoxDirectory) -> dict[str, str]:
    """Return the environment of every program of the one-box."""
    return {
        "PATH": f"{directory.venv}/bin:{_SYSTEM_PATH}",
        "HOME": os.environ.get("HOME", "/root"),
        "LANG": "C.UTF-8",
        "PYTHONUNBUFFERED": "1",
        # Deprecations of other projects' dependencies are not ours to act on.
        "PYTHONWARNINGS": "ignore",
    }


def infrastructure_services() -> list[Service]:
    """Return the database, the message broker and the cache."""
    controller = network.CONTROLLER
    return [
        Service(
            "mariadb", controller,
            ("/usr/sbin/mariadbd", f"--defaults-file={infrastructure.MARIADB_CONFIG}"),
            ready=listens(endpoints.MARIADB_PORT), port=endpoints.MARIADB_PORT,
            stop_timeout_s=60.0,
        ),
        Service(
            "rabbitmq", controller, ("/usr/lib/rabbitmq/bin/rabbitmq-server",),
            infrastructure.rabbitmq_environment(),
            ready=listens(endpoints.RABBITMQ_PORT), port=endpoints.RABBITMQ_PORT,
            stop_timeout_s=60.0,
        ),
        Service(
            "memcached", controller,
            ("/usr/bin/memcached", "-u", "root", "-m", "64", "-l", network.CONTROLLER_ADDRESS),
            ready=listens(endpoints.MEMCACHED_PORT), port=endpoints.MEMCACHED_PORT,
        ),
    ]  # fmt: skip


def ceph_services() -> list[Service]:
    """Return the daemons of the Ceph that is the origin, the monitor first."""

    def daemon(kind: str, name: str, ready: Readiness, port: int | None = None) -> Service:
        # As root: what they write is in a folder of their own.
        argv = (f"/usr/bin/ceph-{kind}", "--foreground", f"--id={name}")
        return Service(f"ceph-{kind}", network.CONTROLLER, argv, ready=ready, port=port)

    return [
        daemon("mon", MONITOR, listens(ceph.PORT), ceph.PORT),
        daemon("osd", "0", logs("ceph-osd", "state: booting -> active")),
        daemon("mgr", MANAGER, logs("ceph-mgr", "Activating!")),
    ]


def control_services(directory: OneBoxDirectory) -> list[Service]:
    """Return the services of OpenStack on the controller, Keystone first."""
    nova = {"OS_NOVA_CONFIG_DIR": "/etc/nova"}

    def api(name: str, port: int, application: list[str], environment: dict[str, str]) -> Service:
        # Keystone registers its policies at the first request, in which other threads meanwhile
        # see none and refuse theirs.
        processes, threads = (2, 1) if name == "keystone" else (1, 6)
        argv = (directory.program("uwsgi"), *_uwsgi(port, processes, threads), *application)
        return Service(
            name, network.CONTROLLER, argv, environment, ready=answers(port), port=port,
            configuration=_CONFIGURATIONS[name],
        )  # fmt: skip

    def daemon(name: str, config_file: str, said: str) -> Service:
        argv = (directory.program(name), "--config-file", config_file)
        return Service(
            name, network.CONTROLLER, argv, ready=logs(name, said), stop_timeout_s=40.0,
            configuration=config_file.removeprefix("/etc/"),
        )  # fmt: skip

    return [
        api(
            "keystone", endpoints.KEYSTONE_PORT, ["--module", "keystone.wsgi.api:application"],
            {"OS_KEYSTONE_CONFIG_DIR": "/etc/keystone"},
        ),
        api(
            "glance", endpoints.GLANCE_PORT, ["--module", "glance.wsgi.api:application"],
            {"OS_GLANCE_CONFIG_DIR": "/etc/glance"},
        ),
        api(
            "placement", endpoints.PLACEMENT_PORT, ["--module", "placement.wsgi.api:application"],
            {"OS_PLACEMENT_CONFIG_DIR": "/etc/placement"},
        ),
        api(
            "neutron", endpoints.NEUTRON_PORT,
            [
                "--wsgi-file", networking.APPLICATION_FILE,
                "--pyargv", f"--config-file {networking.CONFIG_FILE}",
            ],
            {},
        ),
        api(
            "nova-api", endpoints.NOVA_PORT, ["--module", "nova.wsgi.osapi_compute:application"],
            nova,
        ),
        daemon("neutron-rpc-server", networking.CONFIG_FILE, "AMQP RPC server starting"),
        daemon("nova-conductor", compute.CONFIG_FILE, "Starting conductor node"),
        daemon("nova-scheduler", compute.CONFIG_FILE, "Starting scheduler node"),
        api(
            "cinder-api", endpoints.CINDER_PORT,
            [
                "--module", "cinder.wsgi.api:application",
                "--pyargv", f"--config-file {block_storage.CONFIG_FILE}",
            ],
            {},
        ),
        daemon("cinder-scheduler", block_storage.CONFIG_FILE, "Starting cinder-scheduler node"),
        daemon(
            "cinder-volume", block_storage.CONFIG_FILE, "Driver initialization completed"
        ),
        daemon("cinder-backup", block_storage.CONFIG_FILE, "Starting cinder-backup node"),
    ]  # fmt: skip


def host_services(directory: OneBoxDirectory, host: str) -> list[Service]:
    """Return what Nova needs on a compute host, and nova-compute."""
    return [
        Service(
            "virtlogd", host, ("/usr/sbin/virtlogd",),
            ready=file_exists("/run/libvirt/virtlogd-sock"),
        ),
        Service(
            "libvirtd", host, ("/usr/sbin/libvirtd", "--listen"),
            ready=file_exists("/run/libvirt/libvirt-sock"), port=16509,
        ),
        Service("sshd", host, ("/usr/sbin/sshd", "-D", "-e"), ready=listens(22), port=22),
        Service(
            "ovsdb-server", host, networking.switch_database(),
            ready=accepts(networking.SWITCH_DATABASE),
        ),
        Service(
            "ovs-vswitchd", host, networking.switch(network.GUEST_INTERFACE),
            ready=has_written_pid("ovs-vswitchd", networking.SWITCH_PID),
        ),
        Service(
            "neutron-openvswitch-agent", host,
            (
                directory.program("neutron-openvswitch-agent"),
                "--config-file", networking.CONFIG_FILE,
            ),
            configuration="neutron/neutron.conf",
        ),
        Service(
            "nova-compute", host,
            (directory.program("nova-compute"), "--config-file", compute.CONFIG_FILE),
            ready=logs("nova-compute", "Starting compute node"),
            stop_timeout_s=_NOVA_COMPUTE_STOP_TIMEOUT_S, configuration="nova/nova.conf",
        ),
    ]  # fmt: skip


def acstor_services(directory: OneBoxDirectory, host: str) -> list[Service]:
    """Return ACStor's services on a host."""
    config = ("--config-file", acstor.CONFIG_FILE)

    def of_unit(name: str, program: Sequence[str], *drop_ins: str) -> tuple[str, ...]:
        return unit.command(name, program, directory, *drop_ins)

    holder = (directory.program("acstor-holder"), *config, "--")
    found = [
        Service(
            "acstor-mount", host,
            of_unit("acstor-mount", (directory.program("acstor-mount"), *config)),
            # It reads its configuration at each request.
            ready=file_exists(acstor.MOUNT_SOCKET), is_acstor=True,
        ),
        Service(
            "acstor-dataplane", host,
            of_unit(
                "acstor-dataplane", (*holder, directory.program("acstor-dataplane"), *config)
            ),
            ready=file_exists(acstor.ADMIN_SOCKET), port=acstor.PEER_PORT,
            stop_timeout_s=30.0, is_acstor=True, configuration=_ACSTOR_CONFIGURATION,
        ),
        Service(
            "acstor-agent", host,
            of_unit(
                "acstor-agent", (directory.program("acstor-agent"), *config),
                *(() if host == network.CONTROLLER else ("acstor-agent-captures",)),
            ),
            ready=listens(acstor.METRICS_PORT), port=acstor.METRICS_PORT, is_acstor=True,
            configuration=_ACSTOR_CONFIGURATION,
        ),
    ]  # fmt: skip
    if host != network.CONTROLLER:
        return found
    # A checkout from before one of them has none.
    for name in ("acstor-registrar", "acstor-worker"):
        program = directory.program(name)
        if os.path.exists(program):
            found.append(
                Service(
                    name, host, of_unit(name, (program, *config)),
                    is_acstor=True, configuration=_ACSTOR_CONFIGURATION,
                )
            )  # fmt: skip
    if os.path.exists(directory.program("acstor-api")):
        argv = (
            directory.program("uwsgi"), *_uwsgi(endpoints.ACSTOR_PORT, 1, 6),
            "--module", "acstor.wsgi.api:application",
        )  # fmt: skip
        found.append(
            Service(
                # A WSGI server has no unit of ours: it writes to the origin as the worker does.
                "acstor-api", host, of_unit("acstor-worker", argv),
                {"ACSTOR_CONFIG": acstor.CONFIG_FILE},
                ready=answers(endpoints.ACSTOR_PORT), port=endpoints.ACSTOR_PORT, is_acstor=True,
                configuration=_ACSTOR_CONFIGURATION,
            )
        )  # fmt: skip
    return found


def all_services(
    directory: OneBoxDirectory,
    compute_names: list[str],
    *,
    with_acstor: bool,
    with_ceph: bool = False,
) -> list[Service]:
    """Return every service of a one-box, in the order in which they may be started."""

    def ours(host: str) -> list[Service]:
        return acstor_services(directory, host) if with_acstor else []

    # cinder-volume opens volumes through the data plane of its host, as nova-compute does.
    found = [
        *infrastructure_services(), *(ceph_services() if with_ceph else []),
        *ours(network.CONTROLLER), *control_services(directory),
    ]  # fmt: skip
    for host in compute_names:
        found += [*ours(host), *host_services(directory, host)]
    return found


def _uwsgi(port: int, processes: int, threads: int) -> list[str]:
    return [
        "--http-socket", f"{network.CONTROLLER_ADDRESS}:{port}", "--master", "--need-app",
        "--processes", str(processes), "--threads", str(threads), "--enable-threads", "--lazy-apps",
        "--buffer-size", "65535", "--die-on-term",
        # Clients would take up connections again that uWSGI has closed.
        "--add-header", "Connection: close",
        # Uploads come in pieces of a MiB, each more than what uWSGI takes by default, and pause
        # for longer than that where the machine is busy.
        "--chunked-input-limit", str(16 << 20), "--chunked-input-timeout", "120",
    ]  # fmt: skip
