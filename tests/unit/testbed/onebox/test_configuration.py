"""The configuration of the services: what hosts share, and what must differ."""

import logging
import pathlib
import urllib.parse

import pytest
from oslo_config import cfg
from oslo_log import log

from acstor.conf import loading
from acstor.origin.rados import cluster
from acstor.origin.rados.origin import RadosOrigin
from testbed import ceph_clients, processes
from testbed.doubles.memory_rados import MemoryRados
from testbed.onebox import network
from testbed.onebox.configuration import (  # fmt: skip
    acstor,
    block_storage,
    ceph,
    compute,
    files,
    infrastructure,
    networking,
)
from testbed.onebox.configuration.writer import Configuration, Override, render
from testbed.onebox.directory import OneBoxDirectory
from testbed.onebox.settings import Settings

VENV = "/venv"


def compute_host(name: str) -> Configuration:
    return compute.nova_compute(VENV, name, network.address_of(name), with_acstor=True)


def test_compute_hosts_differ_in_name_and_address_only() -> None:
    one, two = render(compute_host("compute1")), render(compute_host("compute2"))
    assert one != two
    assert one.replace("compute1", "compute2").replace("10.78.0.11", "10.78.0.12") == two


def test_agents_of_switches_differ_in_their_host_only() -> None:
    one, two = (render(networking.neutron_agent(VENV, name)) for name in ("compute1", "compute2"))
    assert one != two
    assert one.replace("compute1", "compute2") == two


def test_switches_need_no_module_of_the_kernel() -> None:
    """Bridges are made where Neutron's agent and Nova look for them."""
    switch = networking.switch("eth1")[-1]
    assert "datapath_type=netdev" in switch
    assert "userspace-tso-enable=true" in switch
    agent = networking.neutron_agent(VENV, "compute1")["ovs"]
    assert agent["datapath_type"] == "netdev"
    nova = compute_host("compute1")["os_vif_ovs"]
    assert nova["ovsdb_connection"] == agent["ovsdb_connection"]


def test_compute_hosts_cannot_reach_the_databases() -> None:
    text = render(compute_host("compute1"))
    assert "mysql" not in text
    assert "[database]" not in text


def test_servers_have_the_same_path_on_every_host() -> None:
    """A migrating server's files are named by their path."""
    states = {str(compute_host(name)["DEFAULT"]["state_path"]) for name in ("compute1", "compute2")}
    assert states == {"/var/lib/nova"}


@pytest.mark.parametrize("with_acstor", [True, False])
def test_scheduler_has_our_classes_only_with_acstor(with_acstor: bool) -> None:
    text = render(compute.nova_controller(VENV, with_acstor=with_acstor))
    assert ("acstor.scheduler" in text) is with_acstor
    assert ("DataPlaneFilter" in text) is with_acstor
    assert ("[acstor]" in text) is with_acstor


@pytest.mark.parametrize("with_acstor", [True, False])
def test_hosts_and_cinder_know_volumes_of_ours_only_with_acstor(with_acstor: bool) -> None:
    for configuration in (
        compute.nova_compute(VENV, "compute1", "10.78.0.11", with_acstor=with_acstor),
        block_storage.cinder(VENV, with_acstor=with_acstor),
    ):
        notifications = configuration["oslo_messaging_notifications"]
        if with_acstor:
            assert "acstor" in notifications["driver"]
        else:
            assert notifications["driver"] == "noop"
    text = render(block_storage.cinder(VENV, with_acstor=with_acstor))
    assert ("acstor.drivers" in text) is with_acstor


@pytest.mark.parametrize("with_acstor", [True, False])
def test_volume_types_are_of_backends_that_there_are(with_acstor: bool) -> None:
    cinder = block_storage.cinder(VENV, with_acstor=with_acstor)
    types = dict(block_storage.volume_types(with_acstor=with_acstor))
    assert cinder["DEFAULT"]["default_volume_type"] in types
    backends = set(block_storage.backends(with_acstor=with_acstor))
    assert {specs["volume_backend_name"] for specs in types.values()} <= backends
    assert cinder["DEFAULT"]["enabled_backends"] == ",".join(sorted(backends))
    for backend in backends:
        assert cinder[backend]["volume_backend_name"] == backend


def test_libvirt_hosts_have_ids_of_their_own_that_stay() -> None:
    def host_id(name: str) -> str:
        lines = infrastructure.libvirtd(name, network.address_of(name)).splitlines()
        return next(line for line in lines if line.startswith("host_uuid"))

    assert host_id("compute1") == host_id("compute1")
    assert host_id("compute1") != host_id("compute2")


def test_nothing_listens_at_a_wildcard() -> None:
    address = network.address_of("compute1")
    texts = [
        infrastructure.mariadb(), infrastructure.rabbitmq(),
        infrastructure.libvirtd("compute1", address), infrastructure.sshd(address),
    ]  # fmt: skip
    assert not [text for text in texts if "0.0.0.0" in text or "::" in text]


def acstor_of(name: str, origin: acstor.Origin) -> Configuration:
    if name == "controller":
        return acstor.acstor_controller("/shared", tls=True, origin=origin)
    address = network.address_of(name)
    return acstor.acstor_compute("/shared", name, address, tls=True, origin=origin)


@pytest.mark.parametrize("origin", list(acstor.Origin))
@pytest.mark.parametrize("name", ["controller", "compute1"])
def test_acstor_knows_every_option_that_it_is_given(
    name: str,
    origin: acstor.Origin,
    tmp_path: pathlib.Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    configuration = acstor_of(name, origin)
    path = tmp_path / "acstor.conf"
    path.write_text(render(configuration))
    conf = loading.load("acstor-agent", ["--config-file", str(path)], log.register_options)
    with caplog.at_level(logging.WARNING):
        loading.warn_of_unknown(conf)
    assert caplog.messages == []
    assert conf.host == name
    assert conf.origin.url.startswith({"posix": "posix:///", "ceph": "rados://"}[origin])


@pytest.mark.parametrize("name", ["controller", "compute1"])
def test_origin_in_ceph_is_opened_as_a_client_of_the_guide_who_may_use_its_pools(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cluster, "distributed", lambda: MemoryRados().binding)
    url = urllib.parse.urlsplit(str(acstor_of(name, acstor.Origin.CEPH)["origin"]["url"]))
    RadosOrigin.from_url(url)
    client, _, pool = url.netloc.partition("@")
    query = urllib.parse.parse_qs(url.query)
    osd = ceph_clients.capabilities()[client]["osd"]
    for each in (pool, *query["stripe_pool"], *query["ref_pool"]):
        assert f"pool={each} namespace=acstor." in osd
    assert query.get("role") == (None if name == "controller" else ["host"])
    assert "conf" not in query  # so it is in the place that Ceph's own clients look at


def test_every_database_is_created() -> None:
    statements = infrastructure.create_databases()
    for name in ("keystone", "nova_api", "nova_cell0", "neutron"):
        assert f"CREATE DATABASE IF NOT EXISTS {name};" in statements


class TestFiles:
    """The files of a one-box."""

    @pytest.fixture
    def directory(self, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> OneBoxDirectory:
        directory = OneBoxDirectory(pathlib.Path("/nowhere"))
        directory.path = tmp_path
        for name in ("venv", "hosts", "run", "shared", "logs", "cache"):
            setattr(directory, name, tmp_path / name)
        directory.create()
        for folder, file in files.OF_THE_RELEASE:
            (directory.venv / "etc" / folder).mkdir(parents=True)
            (directory.venv / "etc" / folder / file).write_text("[composite:api]\n")
        # The program is of a package that only a machine with a one-box needs.
        monkeypatch.setattr(files, "_make_key", _key_without_ssh)
        return directory

    def test_passwords_of_a_compute_host_are_for_root_alone(
        self, directory: OneBoxDirectory
    ) -> None:
        files.write_all(directory, Settings())
        folder = directory.etc("compute1") / "acstor"
        assert (folder / "secrets.conf").stat().st_mode & 0o777 == 0o600
        assert "rabbit://" not in (folder / "acstor.conf").read_text()
        conf = loading.load("x", ["--config-file", str(folder / "acstor.conf")])
        assert [path.rpartition("/")[2] for path in conf.config_file] == [
            "acstor.conf",
            "secrets.conf",
        ]

    def test_second_writing_changes_nothing(self, directory: OneBoxDirectory) -> None:
        assert files.write_all(directory, Settings()) == set()
        assert files.write_all(directory, Settings()) == set()

    def test_override_changes_the_files_of_its_name(self, directory: OneBoxDirectory) -> None:
        files.write_all(directory, Settings())
        overrides = (
            Override("nova-compute", "image_cache", "manager_interval", "7"),
            Override("cinder", "DEFAULT", "debug", "true"),
        )
        assert files.write_all(directory, Settings(overrides=overrides)) == {
            ("compute1", "nova/nova.conf"),
            ("compute2", "nova/nova.conf"),
            ("controller", "cinder/cinder.conf"),
        }
        conf = cfg.ConfigOpts()
        conf.register_opt(cfg.IntOpt("manager_interval"), group="image_cache")
        path = directory.etc("compute2") / "nova/nova.conf"
        conf(["--config-file", str(path)], project="nova")
        assert conf.image_cache.manager_interval == 7

    def test_without_acstor_what_names_its_classes_changes(
        self, directory: OneBoxDirectory
    ) -> None:
        files.write_all(directory, Settings())
        changed = files.write_all(directory, Settings(with_acstor=False))
        assert changed == {
            ("compute1", "nova/nova.conf"),
            ("compute2", "nova/nova.conf"),
            ("controller", "cinder/cinder.conf"),
            ("controller", "nova/nova.conf"),
        }

    def test_tls_makes_certificates_that_the_authority_signed(
        self, directory: OneBoxDirectory
    ) -> None:
        files.write_all(directory, Settings())
        changed = files.write_all(directory, Settings(tls=True))
        names = ("controller", "compute1", "compute2")
        assert changed == {(name, "acstor/acstor.conf") for name in names}
        for name in names:
            tls = directory.etc(name) / "acstor" / "tls"
            processes.run(["openssl", "verify", "-CAfile", f"{tls}/ca.pem", f"{tls}/host.pem"])
            shown = processes.run(
                ["openssl", "x509", "-noout", "-ext", "subjectAltName", "-in", f"{tls}/host.pem"]
            )
            assert f"DNS:{name}" in shown
            assert (tls / "host.key").stat().st_mode & 0o077 == 0
        before = (directory.etc("compute1") / "acstor/tls/host.pem").read_bytes()
        assert files.write_all(directory, Settings(tls=True)) == set()
        assert (directory.etc("compute1") / "acstor/tls/host.pem").read_bytes() == before

    def test_hosts_find_the_ceph_that_is_the_origin(self, directory: OneBoxDirectory) -> None:
        files.write_all(directory, Settings(origin=acstor.Origin.CEPH))
        texts = {
            (directory.etc(name) / "ceph/ceph.conf").read_text()
            for name in ("controller", "compute1", "compute2")
        }
        (text,) = texts
        assert f"mon host = {ceph.CLUSTER.monitors}\n" in text
        assert network.CONTROLLER_ADDRESS in ceph.CLUSTER.monitors
        assert "auth client required = cephx\n" in text

    @pytest.mark.parametrize("origin", list(acstor.Origin))
    def test_what_a_host_mounts_is_there(
        self, directory: OneBoxDirectory, origin: acstor.Origin
    ) -> None:
        files.write_all(directory, Settings(origin=origin))
        binds = files.controller_binds(directory) + files.compute_binds(directory, "compute2")
        assert [str(source) for source, _ in binds if not source.exists()] == []

    def test_keys_are_for_root_only(self, directory: OneBoxDirectory) -> None:
        files.write_all(directory, Settings())
        for name in ("onebox_key", "authorized_keys"):
            mode = (directory.etc("compute1") / "ssh" / name).stat().st_mode
            assert mode & 0o077 == 0


def _key_without_ssh(path: pathlib.Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("key")
    path.with_suffix(".pub").write_text("public key")
