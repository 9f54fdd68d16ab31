"""Configuration files of each host; their folders are mounted below its ``/etc``."""

import os
import pathlib
import shutil
from collections.abc import Sequence

from testbed import processes
from testbed.onebox import accounts, certificates, network
from testbed.onebox.configuration import (  # fmt: skip
    acstor,
    block_storage,
    ceph,
    compute,
    identity,
    image,
    infrastructure,
    networking,
    placement,
    writer,
)
from testbed.onebox.directory import OneBoxDirectory
from testbed.onebox.settings import Settings

#: A folder or file of the one-box, and where a host sees it.
Bind = tuple[pathlib.Path, str]

_SECRET = 0o600
_SECRET_OF_GROUP = 0o640
#: The data of the controller's services. Databases name files by their path: with paths of a real
#: host they fit into every one-box.
_CONTROLLER_STATE = {
    "acstor": acstor.STATE,
    "ceph": ceph.STATE,
    "cinder": block_storage.STATE,
    "glance": image.STATE,
    "keystone": identity.STATE,
    "mariadb": infrastructure.MARIADB_STATE,
    "neutron": networking.STATE,
    "nova": compute.STATE,
    "rabbitmq": infrastructure.RABBITMQ_STATE,
}
#: Files of the installed release that services look for beside their configuration.
OF_THE_RELEASE = (
    ("glance", "glance-api-paste.ini"),
    ("nova", "api-paste.ini"),
    # Without it nobody but an administrator filters lists.
    ("cinder", "resource_filters.json"),
)
_CONTROLLER_ETC = (
    "acstor", "ceph", "cinder", "glance", "keystone", "mysql", "neutron", "nova", "placement",
    "rabbitmq",
)  # fmt: skip
_COMPUTE_ETC = ("acstor", "ceph", "libvirt", "neutron", "nova", "ssh")
#: The data of a compute host's services. Both hosts see them at the same place: a server that
#: migrates names its files by their path.
_COMPUTE_STATE = {
    "acstor": acstor.STATE,
    "neutron": networking.STATE,
    "nova": compute.STATE,
    "libvirt": "/var/lib/libvirt",
    "libvirt-cache": "/var/cache/libvirt",
    "libvirt-log": "/var/log/libvirt",
}


def controller_binds(directory: OneBoxDirectory) -> list[Bind]:
    """Return what the controller sees of the one-box below ``/etc`` and ``/var``."""
    name = network.CONTROLLER
    state = [(directory.host(name) / folder, path) for folder, path in _CONTROLLER_STATE.items()]
    return [*_binds(directory, name, _CONTROLLER_ETC), *state]


def compute_binds(directory: OneBoxDirectory, name: str) -> list[Bind]:
    """Return what a compute host sees of the one-box below ``/etc`` and ``/var``."""
    state = [(directory.host(name) / folder, path) for folder, path in _COMPUTE_STATE.items()]
    return [*_binds(directory, name, _COMPUTE_ETC), *state]


def _binds(directory: OneBoxDirectory, host: str, folders: Sequence[str]) -> list[Bind]:
    etc = directory.etc(host)
    binds = [(etc / folder, f"/etc/{folder}") for folder in folders]
    files = ("hosts", "hostname", "sudoers", "passwd", "group")
    binds += [(etc / file, f"/etc/{file}") for file in files]
    return [*binds, (etc / "mount.nfs", "/usr/sbin/mount.nfs")]


def write_all(directory: OneBoxDirectory, settings: Settings) -> set[tuple[str, str]]:
    """Write the configuration of every host; make the folders that it names.

    Services that run take a change when they are restarted.

    :returns: the services' files that have changed, as host and path below its ``/etc``.
    """
    for name in ("origin", "coordination", "volumes"):
        (directory.shared / name).mkdir(exist_ok=True)
    for name, text in accounts.texts(directory, network.CONTROLLER).items():
        for host in (network.CONTROLLER, *settings.compute_names):
            writer.write(directory.etc(host) / name, text)
    changed = _write_controller(directory, settings)
    for name in settings.compute_names:
        changed |= _write_compute(directory, settings, name)
    return changed


def give_to_user(directory: OneBoxDirectory, settings: Settings) -> None:
    """Give ACStor's user what the installation guide gives him; as root.

    The origin is his, as a server of files has it that takes everybody for him.

    :raises OSError: when that fails.
    """
    user = accounts.user_of(directory, network.CONTROLLER)
    for name, mode in (("origin", 0o750), ("coordination", 0o755)):
        user.own(directory.shared / name)
        (directory.shared / name).chmod(mode)
    for host in (network.CONTROLLER, *settings.compute_names):
        for file in ("acstor.conf", "tls/host.key"):
            path = directory.etc(host) / "acstor" / file
            if path.exists():
                os.chown(path, 0, user.gid)
                path.chmod(_SECRET_OF_GROUP)


def _write_controller(directory: OneBoxDirectory, settings: Settings) -> set[tuple[str, str]]:
    name = network.CONTROLLER
    state, etc, venv = directory.host(name), directory.etc(name), str(directory.venv)
    _write_host(directory, settings, name)
    if settings.tls:
        certificates.make(directory, name)
    for folder in _CONTROLLER_STATE:
        (state / folder).mkdir(parents=True, exist_ok=True)
    for path in (
        "glance/images", "glance/staging", "glance/tasks", "cinder/coordination", "cinder/backups",
    ):  # fmt: skip
        (state / path).mkdir(exist_ok=True)
    configurations = {
        "keystone/keystone.conf": identity.keystone(),
        "glance/glance-api.conf": image.glance(),
        "placement/placement.conf": placement.placement(),
        "nova/nova.conf": compute.nova_controller(venv, with_acstor=settings.with_acstor),
        "cinder/cinder.conf": block_storage.cinder(venv, with_acstor=settings.with_acstor),
        "neutron/neutron.conf": networking.neutron(venv),
        "acstor/acstor.conf": acstor.acstor_controller(
            str(directory.shared), tls=settings.tls, origin=settings.origin
        ),
    }
    files = {
        "nova/nova.conf": "nova",
        "acstor/acstor.conf": "acstor-controller",
    }
    changed = set()
    for path, configuration in configurations.items():
        chosen = settings.override(files.get(path, path.partition("/")[0]), configuration)
        if writer.write(etc / path, writer.render(chosen)):
            changed.add((name, path))
    writer.write(etc / "cinder/rootwrap.conf", writer.render(block_storage.rootwrap(venv)))
    writer.write(etc / "neutron/application.py", networking.APPLICATION)
    for folder, file in OF_THE_RELEASE:
        source = directory.venv / "etc" / folder / file
        writer.write(etc / folder / file, source.read_text())
    writer.write(etc / "rabbitmq/rabbitmq.conf", infrastructure.rabbitmq())
    writer.write(etc / "rabbitmq/enabled_plugins", "[].\n")
    writer.write(etc / "mysql/my.cnf", infrastructure.mariadb())
    writer.write(etc / "mysql/create.sql", infrastructure.create_databases())
    return changed


def _write_compute(
    directory: OneBoxDirectory, settings: Settings, name: str
) -> set[tuple[str, str]]:
    etc, address = directory.etc(name), network.address_of(name)
    _write_host(directory, settings, name)
    for folder in _COMPUTE_STATE:
        (directory.host(name) / folder).mkdir(parents=True, exist_ok=True)
    for path in ("nova/instances", "nova/locks", "nova/mnt"):
        (directory.host(name) / path).mkdir(exist_ok=True)
    nova = compute.nova_compute(
        str(directory.venv), name, address, with_acstor=settings.with_acstor
    )
    if settings.tls:
        certificates.make(directory, name)
    ours = acstor.acstor_compute(
        str(directory.shared), name, address, tls=settings.tls, origin=settings.origin
    )
    configurations = {
        "nova/nova.conf": settings.override("nova-compute", nova),
        "neutron/neutron.conf": settings.override(
            "neutron-agent", networking.neutron_agent(str(directory.venv), name)
        ),
        "acstor/acstor.conf": settings.override("acstor", ours),
    }
    changed = {
        (name, path)
        for path, configuration in configurations.items()
        if writer.write(etc / path, writer.render(configuration))
    }
    writer.write(etc / "acstor/secrets.conf", writer.render(acstor.acstor_secrets()), _SECRET)
    writer.write(etc / "libvirt/libvirtd.conf", infrastructure.libvirtd(name, address))
    writer.write(etc / "libvirt/qemu.conf", infrastructure.qemu(address))
    _write_ssh(directory, etc / "ssh", address)
    return changed


def _write_host(directory: OneBoxDirectory, settings: Settings, name: str) -> None:
    etc = directory.etc(name)
    writer.write(etc / "hosts", network.hosts_file(settings.compute_names))
    writer.write(etc / "hostname", f"{name}\n")
    writer.write(etc / "sudoers", infrastructure.sudoers(str(directory.venv)), 0o440)
    share = block_storage.mount_program(str(directory.shared / "volumes"))
    writer.write(etc / "mount.nfs", share, 0o755)
    (etc / "ceph").mkdir(parents=True, exist_ok=True)
    if settings.with_ceph:
        writer.write(etc / "ceph/ceph.conf", writer.render(ceph.ceph()))


def _write_ssh(directory: OneBoxDirectory, ssh: pathlib.Path, address: str) -> None:
    writer.write(ssh / "sshd_config", infrastructure.sshd(address))
    writer.write(ssh / "ssh_config", infrastructure.ssh())
    _make_key(ssh / "ssh_host_ed25519_key")
    shared = directory.run / "ssh-key"  # of the whole one-box: its hosts trust each other
    _make_key(shared)
    for source, target in ((shared, "onebox_key"), (shared.with_suffix(".pub"), "authorized_keys")):
        if not (ssh / target).exists():
            shutil.copyfile(source, ssh / target)
            (ssh / target).chmod(_SECRET)


def _make_key(path: pathlib.Path) -> None:
    if not path.exists():
        processes.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(path)])
