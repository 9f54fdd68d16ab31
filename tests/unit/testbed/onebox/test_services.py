"""The services: which there are, what they need, in which order they start."""

import pathlib
import socket
from typing import Any

import pytest

from testbed.onebox import services
from testbed.onebox.bring_up import BringUp
from testbed.onebox.configuration.acstor import Origin
from testbed.onebox.directory import OneBoxDirectory
from testbed.onebox.host import Host
from testbed.onebox.settings import Settings

HOSTS = ["compute1", "compute2"]
CONTROLLER_PROGRAMS = ("acstor-api", "acstor-registrar", "acstor-worker")


@pytest.fixture
def directory(tmp_path: pathlib.Path) -> OneBoxDirectory:
    directory = OneBoxDirectory(pathlib.Path("/nowhere"))
    directory.venv = tmp_path / "venv"
    (directory.venv / "bin").mkdir(parents=True)
    for name in CONTROLLER_PROGRAMS:
        (directory.venv / "bin" / name).touch()
    return directory


def names(found: list[services.Service]) -> list[str]:
    return [f"{service.name}@{service.host}" for service in found]


def test_every_service_is_named_once(directory: OneBoxDirectory) -> None:
    found = services.all_services(directory, HOSTS, with_acstor=True)
    keys = [service.key for service in found]
    assert len(keys) == len(set(keys))
    assert {service.host for service in found} == {"controller", *HOSTS}


def test_without_acstor_nothing_else_is_missing(directory: OneBoxDirectory) -> None:
    every = services.all_services(directory, HOSTS, with_acstor=True)
    stock = services.all_services(directory, HOSTS, with_acstor=False)
    assert names(stock) == names([service for service in every if not service.is_acstor])
    ours = names([service for service in every if service.is_acstor])
    assert sorted(ours) == [
        "acstor-agent@compute1", "acstor-agent@compute2", "acstor-agent@controller",
        "acstor-api@controller",
        "acstor-dataplane@compute1", "acstor-dataplane@compute2", "acstor-dataplane@controller",
        "acstor-mount@compute1", "acstor-mount@compute2", "acstor-mount@controller",
        "acstor-registrar@controller", "acstor-worker@controller",
    ]  # fmt: skip


@pytest.mark.parametrize("name", CONTROLLER_PROGRAMS)
def test_a_checkout_without_a_program_has_no_such_service(
    directory: OneBoxDirectory, name: str
) -> None:
    (directory.venv / "bin" / name).unlink()
    found = services.all_services(directory, HOSTS, with_acstor=True)
    assert name not in {service.name for service in found}


def test_the_api_writes_to_the_origin_as_the_worker_does(directory: OneBoxDirectory) -> None:
    found = services.all_services(directory, HOSTS, with_acstor=True)
    (api,) = [service for service in found if service.name == "acstor-api"]
    assert "--reuid=acstor" in api.argv[-1]


def test_the_data_plane_starts_before_nova_and_libvirt(directory: OneBoxDirectory) -> None:
    """A link in Nova's image cache must lead somewhere when Nova first looks at it."""
    order = names(services.all_services(directory, HOSTS, with_acstor=True))
    for host in HOSTS:
        assert order.index(f"acstor-dataplane@{host}") < order.index(f"nova-compute@{host}")
        assert order.index(f"acstor-dataplane@{host}") < order.index(f"libvirtd@{host}")


def test_the_data_plane_starts_before_cinder_opens_volumes(directory: OneBoxDirectory) -> None:
    order = names(services.all_services(directory, HOSTS, with_acstor=True))
    for service in ("cinder-volume", "cinder-backup"):
        assert order.index("acstor-dataplane@controller") < order.index(f"{service}@controller")


def test_programs_are_absolute_paths(directory: OneBoxDirectory) -> None:
    """They are started without a shell and without a search path."""
    for service in services.all_services(directory, HOSTS, with_acstor=True):
        assert service.argv[0].startswith("/"), service.name


class KilledBefore(Host):
    """A host on which a service that was killed left its files."""

    def __init__(self, root: pathlib.Path) -> None:
        super().__init__(OneBoxDirectory(pathlib.Path("/nowhere")), "compute1", "")
        self._root = root

    def path(self, path: str) -> pathlib.Path:
        return self._root / path.lstrip("/")

    def programs(self) -> dict[str, dict[str, Any]]:
        return {"switch": {"pid": 12, "returncode": None}}


def test_what_a_killed_service_left_is_not_its_successors(tmp_path: pathlib.Path) -> None:
    host = KilledBefore(tmp_path)
    is_ready = services.has_written_pid("switch", "/pid")
    assert not is_ready(host)
    (tmp_path / "pid").write_text("11\n")
    assert not is_ready(host)
    (tmp_path / "pid").write_text("12\n")
    assert is_ready(host)

    is_ready = services.accepts("/sock")
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
        listener.bind(str(tmp_path / "sock"))
        assert not is_ready(host)
        listener.listen(4)
        assert is_ready(host)
    assert not is_ready(host)


def test_ceph_is_there_where_it_is_the_origin_and_starts_before_what_uses_it(
    directory: OneBoxDirectory,
) -> None:
    daemons = ["ceph-mon@controller", "ceph-osd@controller", "ceph-mgr@controller"]
    without = names(services.all_services(directory, HOSTS, with_acstor=True))
    order = names(services.all_services(directory, HOSTS, with_acstor=True, with_ceph=True))
    assert sorted(set(order) - set(without)) == sorted(daemons)
    assert [name for name in order if name in daemons] == daemons
    assert order.index(daemons[-1]) < order.index("acstor-dataplane@controller")


@pytest.mark.parametrize("origin", list(Origin))
@pytest.mark.parametrize("with_acstor", [True, False])
def test_every_step_of_up_follows_steps_that_exist(
    directory: OneBoxDirectory, with_acstor: bool, origin: Origin, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = Settings(with_acstor=with_acstor, origin=origin)
    for is_filled in (False, True):
        monkeypatch.setattr(
            "testbed.onebox.databases.Databases.are_complete", is_filled, raising=True
        )
        monkeypatch.setattr(
            "testbed.onebox.databases.Databases.cached", pathlib.Path("/nowhere/cached")
        )
        plan = BringUp(directory, settings, lambda name, seconds: None).plan()
        known = [step.name for step in plan]
        assert len(known) == len(set(known))
        for step in plan:
            assert set(step.after) <= set(known), step.name
        started = {name for name in known if " on " in name}
        wanted = services.all_services(
            directory, HOSTS, with_acstor=with_acstor, with_ceph=settings.with_ceph
        )
        infrastructure = {"mariadb", "rabbitmq", "memcached"}
        assert started == {
            f"{service.name} on {service.host}"
            for service in wanted
            if service.name not in infrastructure
        }
