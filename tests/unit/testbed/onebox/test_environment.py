"""Installation of a one-box: packages of bindep.txt, exact versions, the checkout itself."""

import hashlib
import importlib.metadata
import os
import pathlib
import re
import shutil
import sys
import tempfile
import zipfile
from collections.abc import Iterator

import pytest

from testbed import processes
from testbed.onebox import environment
from testbed.onebox.directory import OneBoxDirectory

BINDEP = """\
# comment
absent-compiler [compile]

absent-database [onebox]
absent-of-both [test onebox]
absent-platform [platform:dpkg]
absent-emulator >=1:8.0
absent-libvirt [onebox] >=9.2
absent-peer [bench]
"""
DPKG_QUERY = """\
#!/bin/sh
for package; do :; done
case "$package" in
    absent-*) exit 1 ;;
    removed) printf 'config-files 1.0' ;;
    new) printf 'installed 1:10.0+ds-1~bpo12+1' ;;
    *) printf 'installed 1:7.2-1' ;;
esac
"""


def missing_packages(checkout: pathlib.Path, bindep: str, *profile: str) -> list[str]:
    """Return what the tools' shell function tells, in a checkout with another bindep.txt."""
    (checkout / "bindep.txt").write_text(bindep)
    programs = checkout / "bin"
    programs.mkdir(exist_ok=True)
    (programs / "dpkg-query").write_text(DPKG_QUERY)
    (programs / "dpkg-query").chmod(0o755)
    tools = environment.CHECKOUT / "tools" / "environment"
    script = 'cd "$1" && . "$2" && shift 2 && missing_packages "$@"'
    command = ["bash", "-euo", "pipefail", "-c", script, "sh", str(checkout), str(tools), *profile]
    path = f"{programs}:{os.environ['PATH']}"
    return processes.run(command, env={"PATH": path}).splitlines()


@pytest.mark.skipif(shutil.which("dpkg") is None, reason="this is no Debian")
class TestMissingPackages:
    """``missing_packages`` of tools/environment."""

    def test_absent_ones_of_the_profile_only(self, tmp_path: pathlib.Path) -> None:
        assert missing_packages(tmp_path, BINDEP, "onebox") == [
            "absent-database 0", "absent-of-both 0", "absent-libvirt 9.2",
        ]  # fmt: skip
        assert missing_packages(tmp_path, BINDEP) == [
            "absent-compiler 0", "absent-of-both 0", "absent-platform 0", "absent-emulator 1:8.0",
        ]  # fmt: skip
        assert missing_packages(tmp_path, BINDEP, "bench") == ["absent-peer 0"]
        assert "absent-peer 0" not in missing_packages(tmp_path, BINDEP, "all")

    def test_older_than_wanted_is_missing(self, tmp_path: pathlib.Path) -> None:
        assert missing_packages(tmp_path, "qemu >=1:8.0\nnew >=1:8.0\nfuse3\n") == ["qemu 1:8.0"]

    def test_removed_is_missing(self, tmp_path: pathlib.Path) -> None:
        assert missing_packages(tmp_path, "removed [test]\n") == ["removed 0"]


@pytest.mark.parametrize(
    ("version", "reconnects"),
    [("9.0.0", False), ("9.1.0", False), ("9.2.0", True), ("10.0.0", True), ("11.3.0", True)],
)
def test_volumes_reconnect_from_libvirt_9_2_on(version: str, reconnects: bool) -> None:
    assert environment.volumes_reconnect(version) is reconnects


def test_bindep_names_what_the_services_run() -> None:
    text = (environment.CHECKOUT / "bindep.txt").read_text()
    wanted = {line.split()[0] for line in text.splitlines() if "onebox" in line}
    assert {"mariadb-server-core", "rabbitmq-server", "memcached", "openssh-server"} <= wanted
    assert {"genisoimage", "openvswitch-switch", "systemd"} <= wanted


def test_every_version_is_exact() -> None:
    lines = environment.CONSTRAINTS.read_text().splitlines()
    assert [
        line for line in lines if not re.fullmatch(r"[A-Za-z0-9._-]+==[A-Za-z0-9.]+", line)
    ] == []
    names = [line.partition("==")[0].lower() for line in lines]
    assert len(names) == len(set(names))
    assert {
        "nova",
        "keystone",
        "glance",
        "cinder",
        "neutron",
        "openstack-placement",
        "uwsgi",
    } <= set(names)
    # Bound to the libvirt that Debian has.
    assert "libvirt-python" not in names


def test_wheel_of_the_checkout_has_its_entry_points(tmp_path: pathlib.Path) -> None:
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
    one = environment.checkout_wheel(tmp_path / "one", pathlib.Path("/venv/checkout"))
    two = environment.checkout_wheel(tmp_path / "two", pathlib.Path("/venv/checkout"))
    assert one.read_bytes() == two.read_bytes()
    with zipfile.ZipFile(one) as archive:
        archive.extractall(tmp_path / "installed")
    (distribution,) = importlib.metadata.distributions(path=[str(tmp_path / "installed")])
    scripts = distribution.entry_points.select(group="console_scripts")
    assert scripts["acstor-agent"].value == "acstor.cmd.agent:main"
    assert distribution.entry_points.select(group="acstor.origin")["posix"]
    pth = tmp_path / "installed" / "acstor-checkout.pth"
    assert pth.read_text() == "/venv/checkout\n"


@pytest.fixture
def short_path() -> Iterator[pathlib.Path]:
    """Return a directory whose path leaves room for unix sockets below it."""
    with tempfile.TemporaryDirectory(prefix="acx-", dir="/tmp") as folder:
        yield pathlib.Path(folder)


def test_scripts_outlive_the_one_box_that_installed_them(short_path: pathlib.Path) -> None:
    """A one-box may have a link to another's environment, and be purged before it."""
    owner, borrower = short_path / "owner", short_path / "borrower"
    borrower.mkdir()
    processes.run([sys.executable, "-m", "venv", str(owner / "venv")], timeout_s=120.0)
    (borrower / "venv").symlink_to(owner / "venv")
    requirements = (environment.CHECKOUT / "requirements.txt").read_bytes()
    # Nothing is fetched for this.
    (owner / "venv" / "acstor-requirements").write_text(hashlib.sha256(requirements).hexdigest())
    environment.install_acstor(OneBoxDirectory(borrower))
    shutil.rmtree(borrower)
    script = (owner / "venv" / "bin" / "acstor").read_text()
    interpreter = pathlib.Path(script.splitlines()[0].removeprefix("#!"))
    assert interpreter.is_file()
