"""What is installed: the packages of bindep.txt, exact versions, the checkout itself."""

import importlib.metadata
import pathlib
import re
import zipfile

from acstor.testbed.onebox import environment


def test_packages_of_the_profile_only() -> None:
    text = (
        "# comment\ngcc [compile]\n\nmariadb [onebox]\nfuse3 [platform:dpkg]\nx [test onebox]\ny\n"
    )
    assert environment.wanted_packages(text) == ["mariadb", "x"]


def test_bindep_names_what_the_services_run() -> None:
    wanted = environment.wanted_packages((environment.CHECKOUT / "bindep.txt").read_text())
    assert {"mariadb-server-core", "rabbitmq-server", "memcached", "openssh-server"} <= set(wanted)


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
