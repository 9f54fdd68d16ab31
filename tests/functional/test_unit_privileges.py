"""The processes do their work with no more privileges than their unit files leave them."""

import configparser
import hashlib
import os
import pathlib
import platform
import re
import resource
import shutil
import sys
from collections.abc import Iterator

import pytest

from acstor.mounting import mount_point
from testbed.fixtures.conditions import wait_for
from testbed.fixtures.hosts import BIN, MIB, Cloud, Options
from testbed.fixtures.unprivileged import USER, UnprivilegedHost, UserPython, open_cloud
from tests.functional.programs import confined

pytestmark = [
    pytest.mark.root,
    pytest.mark.fuse,
    pytest.mark.slow,
    pytest.mark.timeout(200),
    pytest.mark.skipif(not shutil.which("setpriv"), reason="needs setpriv"),
]

UNITS = pathlib.Path(__file__).parents[2] / "etc" / "systemd"
DATA_PLANE, AGENT = "acstor-dataplane.service", "acstor-agent.service"
MOUNT = "acstor-mount.service"
CONFINES_CALLS = platform.machine() == "x86_64" and bool(shutil.which("systemd-analyze"))
NOVA_USER = 64055


def words(unit: str, key: str) -> list[str]:
    parsed = configparser.ConfigParser(strict=False, interpolation=None)
    parsed.optionxform = str  # type: ignore[assignment, method-assign]
    parsed.read(UNITS / unit)
    return parsed["Service"].get(key, "").split()


def lockable() -> int:
    """Return the bytes that a unit's processes may lock, less where these tests may not so much."""
    (limit,) = words(DATA_PLANE, "LimitMEMLOCK")
    hard = resource.getrlimit(resource.RLIMIT_MEMLOCK)[1]
    wanted = int(limit.removesuffix("M")) * MIB
    return wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)


def confinement(unit: str) -> list[str]:
    """Return a command that runs another with the privileges of a unit of root's."""
    names = [name.removeprefix("CAP_").lower() for name in words(unit, "CapabilityBoundingSet")]
    kept = ",".join(["-all", *(f"+{name}" for name in names)])
    command = ["setpriv", "--no-new-privs", f"--bounding-set={kept}", f"--inh-caps={kept}"]
    if words(unit, "Group"):
        command += [f"--regid={USER.pw_gid}", "--clear-groups"]
    if words(unit, "ProtectSystem"):
        # The mount namespace that systemd gives such a unit.
        command = ["unshare", "--mount", "--propagation=slave", *command]
    if CONFINES_CALLS:
        command += [sys.executable, confined.__file__, str(UNITS / unit)]
    return command


_CALLED_BY_LIBRARIES = (
    "accept4", "clone3", "epoll_wait", "eventfd2", "fadvise64", "getrandom", "memfd_create",
    "prlimit64", "renameat2", "statx", "umount2",
)  # fmt: skip
"""System calls of Rust's, Python's and C's libraries, whose names the sources do not have."""


def _limits_of_data_plane(python: UserPython) -> list[str]:
    limits = ["prlimit", f"--memlock={lockable()}"]
    if CONFINES_CALLS:
        files = [python.path(path) for path in (confined.__file__, str(UNITS / DATA_PLANE))]
        limits += [python.executable, *files]
    return limits


class ConfinedHost(UnprivilegedHost):
    """A host whose processes have the privileges that systemd would give them."""

    def __init__(self, cloud: Cloud, name: str, options: Options) -> None:
        super().__init__(
            cloud, name, options, before=_limits_of_data_plane, mount_before=confinement(MOUNT)
        )

    def start_agent(self) -> None:
        """Start the agent, as its unit does."""
        first, *rest = confinement(AGENT)
        path = shutil.which(first)
        assert path is not None
        config = ("--config-file", str(self.config))
        self._start("agent", path, *rest, str(BIN / "acstor-agent"), *config)


def status_of(pid: int, field: str) -> str:
    lines = pathlib.Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(line.split()[1] for line in lines if line.startswith(f"{field}:"))


def capabilities(pid: int) -> int:
    return int(status_of(pid, "CapEff"), 16)


@pytest.mark.skipif(not CONFINES_CALLS, reason="needs systemd-analyze, on x86-64")
def test_data_plane_may_make_the_system_calls_that_its_sources_name() -> None:
    """Some are made only when a volume is opened again, or a disk fails."""
    known = confined.numbers()
    named = set(_CALLED_BY_LIBRARIES)
    crates = UNITS.parents[1] / "crates"
    for path in crates.glob("*/src/**/*.rs"):
        if path.is_relative_to(crates / "browse"):  # of a child of the API
            continue
        text = path.read_text()
        for single, several in re.findall(r"(?:libc|rustix::\w+)::(?:(\w+)|\{([^}]*)\})", text):
            named |= {word.strip() for word in (single or several).split(",")}
    made = named & known.keys()
    assert {"mincore", "mount", "preadv2", "fallocate", "sync_file_range"} <= made
    # acstor-mount's, which runs some of the same code.
    mounting = {"mount", "umount2"}
    assert made - mounting - confined.allowed((UNITS / DATA_PLANE).read_text()) == set()
    assert mounting <= confined.allowed((UNITS / MOUNT).read_text())


@pytest.mark.parametrize("unit", [DATA_PLANE, AGENT, MOUNT])
@pytest.mark.skipif(not CONFINES_CALLS, reason="needs systemd-analyze, on x86-64")
def test_what_takes_a_host_over_is_not_left_to_a_service(unit: str) -> None:
    allowed = confined.allowed((UNITS / unit).read_text())
    for name in ("bpf", "ptrace", "init_module", "kexec_load", "reboot", "setuid", "pivot_root"):
        assert name in confined.numbers()
        assert name not in allowed, name
    assert ("mount" in allowed) is (unit == MOUNT)


@pytest.fixture
def cloud() -> Iterator[Cloud]:
    """One where everybody may go."""
    with open_cloud() as made:
        yield made


def test_units_leave_enough_privileges(cloud: Cloud) -> None:
    """Mounting, pinning, planting links for Nova's user, taking over after a kill, unmounting."""
    instances = cloud.path / "nova" / "instances"
    instances.mkdir(parents=True)
    os.chown(instances, NOVA_USER, NOVA_USER)
    cloud.origin.chmod(0o700)
    nova_conf = cloud.path / "nova.conf"
    nova_conf.write_text(f"[DEFAULT]\nstate_path = {cloud.path}/nova\n")
    links = {"enabled": "true", "nova_config_file": nova_conf}
    host = ConfinedHost(cloud, "h0", {"image_links": links})
    cloud.hosts.append(host)
    host.start_dataplane()
    host.start_agent()
    pid = host.dataplane_pid()
    assert pid is not None
    image = cloud.register(8 * MIB)
    cloud.wait_ready(image)
    assert host.file(image).read_bytes() == image.content

    name = hashlib.sha1(image.id.encode()).hexdigest()
    link = instances / "_base" / name
    # Giving it to Nova's user is the last step.
    wait_for("a link", lambda: link.is_symlink() and link.lstat().st_uid == NOVA_USER)
    for path in (link, link.parent, instances / "locks", instances / "locks" / f"nova-{name}"):
        found = os.lstat(path)
        assert (found.st_uid, found.st_gid) == (NOVA_USER, NOVA_USER), path
    assert link.read_bytes() == image.content
    # What the agent makes in an origin of another user is that user's.
    usage = cloud.origin / ".refs" / "usage" / "h0@"
    wait_for("a usage record", lambda: usage.exists() and usage.stat().st_uid == USER.pw_uid)

    agent = host.pid("agent")
    # The data plane may do nothing that its user may not, and another process mounts for it.
    assert capabilities(pid).bit_count() == len(words(DATA_PLANE, "CapabilityBoundingSet")) == 0
    assert capabilities(host.pid("mount")).bit_count() == 1
    assert capabilities(agent).bit_count() == len(words(AGENT, "CapabilityBoundingSet")) == 2
    for service in (pid, agent, host.pid("mount")):
        assert status_of(service, "NoNewPrivs") == "1"
        if CONFINES_CALLS:
            assert status_of(service, "Seccomp") == "2"
    # Without CAP_IPC_LOCK: a buffer of each thread is locked all the same.
    assert int(status_of(pid, "VmLck")) > 0

    host.kill_dataplane()
    host.wait_restarted(pid)
    assert link.read_bytes() == image.content
    # What the agent has to see: the mount of the next data plane, in its own namespace.
    mounts = pathlib.Path(f"/proc/{agent}/mountinfo")
    assert f" {host.mount} " in mounts.read_text()
    link.unlink()
    wait_for(f"a link again\n{host.log()}", link.is_symlink)

    stopped = host.command("host", "stop-dataplane")
    assert stopped.returncode == 0, f"{stopped.stderr}\n{host.log()}"
    assert not mount_point.is_mounted(str(host.mount))
    wait_for(
        "the mount has gone there, too", lambda: f" {host.mount} " not in mounts.read_text(), 20
    )
