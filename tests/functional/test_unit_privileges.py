"""The processes do their work with no more capabilities than their unit files leave them."""

import configparser
import hashlib
import os
import pathlib
import shutil
import subprocess

import pytest

from tests.fixtures.conditions import wait_for
from tests.fixtures.hosts import MIB, Cloud, Host

pytestmark = [
    pytest.mark.root,
    pytest.mark.fuse,
    pytest.mark.slow,
    pytest.mark.timeout(200),
    pytest.mark.skipif(not shutil.which("setpriv"), reason="needs setpriv"),
]

UNITS = pathlib.Path(__file__).parents[2] / "etc" / "systemd"
UNIT_OF = {"holder": "acstor-dataplane.service", "agent": "acstor-agent.service"}
NOVA_USER = 64055


def confinement(unit: str) -> list[str]:
    """Return a command that runs another with the capabilities of a unit."""
    parsed = configparser.ConfigParser(strict=False, interpolation=None)
    parsed.optionxform = str  # type: ignore[assignment, method-assign]
    parsed.read(UNITS / unit)
    names = [
        name.removeprefix("CAP_").lower()
        for name in parsed["Service"]["CapabilityBoundingSet"].split()
    ]
    kept = ",".join(["-all", *(f"+{name}" for name in names)])
    return ["setpriv", "--no-new-privs", f"--bounding-set={kept}", f"--inh-caps={kept}"]


class ConfinedHost(Host):
    """A host whose processes have the capabilities that systemd would give them."""

    def _start(self, key: str, *command: str) -> "subprocess.Popen[bytes]":
        from tests.fixtures.hosts import BIN

        setpriv, *rest = confinement(UNIT_OF[key])
        path = shutil.which(setpriv)
        assert path is not None
        return super()._start(key, path, *rest, str(BIN / command[0]), *command[1:])


def capabilities(pid: int) -> int:
    status = pathlib.Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1], 16) for line in status if line.startswith("CapEff"))


def test_units_leave_enough_capabilities(cloud: Cloud) -> None:
    """Mounting, pinning, planting links for Nova's user, taking over after a kill."""
    instances = cloud.path / "nova" / "instances"
    instances.mkdir(parents=True)
    os.chown(instances, NOVA_USER, NOVA_USER)
    nova_conf = cloud.path / "nova.conf"
    nova_conf.write_text(f"[DEFAULT]\nstate_path = {cloud.path}/nova\n")
    links = {"enabled": "true", "nova_config_file": nova_conf}
    host = ConfinedHost(cloud, "h0", {"image_links": links})
    cloud.hosts.append(host)
    host.start_dataplane()
    host.start_agent()
    pid = host.dataplane_pid()
    assert pid is not None
    # Mounting, files of others, locked buffers, sockets for the group of QEMU.
    assert 0 < capabilities(pid).bit_count() <= 4
    image = cloud.register(8 * MIB)
    cloud.wait_ready(image)
    assert host.file(image).read_bytes() == image.content

    name = hashlib.sha1(image.id.encode()).hexdigest()
    link = instances / "_base" / name
    wait_for(f"a link\n{host.log()}", link.is_symlink)
    for path in (link, link.parent, instances / "locks", instances / "locks" / f"nova-{name}"):
        found = os.lstat(path)
        assert (found.st_uid, found.st_gid) == (NOVA_USER, NOVA_USER), path
    assert link.read_bytes() == image.content

    host.kill_dataplane()
    host.wait_restarted(pid)
    assert link.read_bytes() == image.content
