"""Peers over mutual TLS, with certificates as an operator would make them."""

import pathlib
import subprocess

import pytest

from testbed.fixtures.conditions import wait_for
from testbed.fixtures.hosts import BIN, MIB, Cloud, Host

pytestmark = [pytest.mark.root, pytest.mark.fuse, pytest.mark.slow, pytest.mark.timeout(200)]


def openssl(*arguments: str, cwd: pathlib.Path) -> None:
    """Run openssl in a folder."""
    subprocess.run(["openssl", *arguments], cwd=cwd, check=True, capture_output=True, timeout=60)


class Authority:
    """A certificate authority of a test."""

    def __init__(self, folder: pathlib.Path) -> None:
        folder.mkdir()
        self.folder = folder
        key = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")
        openssl(
            "req", "-x509", *key, "-keyout", "ca.key", "-out", "ca.pem", "-days", "2",
            "-subj", "/CN=test", cwd=folder,
        )  # fmt: skip

    def options(self, host: str) -> dict[str, object]:
        """Make a certificate for a host of the ring and return its ``[peer]`` options."""
        key = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")
        openssl(
            "req", *key, "-keyout", f"{host}.key", "-out", f"{host}.csr", "-subj", f"/CN={host}",
            "-addext", f"subjectAltName=DNS:{host}", cwd=self.folder,
        )  # fmt: skip
        openssl(
            "x509", "-req", "-in", f"{host}.csr", "-CA", "ca.pem", "-CAkey", "ca.key",
            "-CAcreateserial", "-copy_extensions", "copy", "-days", "2", "-out", f"{host}.pem",
            cwd=self.folder,
        )  # fmt: skip
        return {
            "tls_enabled": True,
            "ca_file": self.folder / "ca.pem",
            "cert_file": self.folder / f"{host}.pem",
            "key_file": self.folder / f"{host}.key",
        }

    def revoke(self, *hosts: str, days: int) -> pathlib.Path:
        """Write the list that revokes hosts, as the guide says, and return its path."""
        (self.folder / "index.txt").touch()
        (self.folder / "ca.cnf").write_text(
            "[ca]\ndefault_ca = peers\n[peers]\ndatabase = index.txt\ncrlnumber = crlnumber\n"
            "default_md = sha256\ncrl_extensions = extensions\n"
            "[extensions]\nauthorityKeyIdentifier = keyid:always\n"
        )
        if not (self.folder / "crlnumber").exists():
            (self.folder / "crlnumber").write_text("01\n")
        call = ("ca", "-config", "ca.cnf", "-cert", "ca.pem", "-keyfile", "ca.key")
        for host in hosts:
            openssl(*call, "-revoke", f"{host}.pem", cwd=self.folder)
        openssl(*call, "-gencrl", "-crldays", str(days), "-out", "crl.new", cwd=self.folder)
        return (self.folder / "crl.new").rename(self.folder / "crl.pem")


def test_peers_with_certificates_of_one_authority_share_chunks(cloud: Cloud) -> None:
    authority = Authority(cloud.path / "tls")
    hosts = [cloud.add_host(peer=authority.options(f"h{number}")) for number in range(2)]
    image = cloud.register(16 * MIB)
    cloud.wait_ready(image)
    for host in hosts:
        assert host.file(image).read_bytes() == image.content
    assert sum(host.metric("acstor_read_chunks", tier="peer") for host in hosts) > 0


def test_peer_of_another_authority_is_not_trusted(cloud: Cloud) -> None:
    """Its chunks are neither asked for nor given; every read is served by the origin."""
    ours, theirs = Authority(cloud.path / "tls"), Authority(cloud.path / "other")
    trusted = cloud.add_host(peer=ours.options("h0"))
    stranger = cloud.add_host(peer=theirs.options("h1"))
    image = cloud.register(16 * MIB)
    cloud.wait_ready(image)
    for host in (trusted, stranger):
        assert host.file(image).read_bytes() == image.content
        assert host.metric("acstor_read_chunks", tier="peer") == 0
    closed = "acstor_peer_server_connections_closed"
    assert sum(host.metric(closed, reason="tls_failed") for host in (trusted, stranger)) > 0


def test_peer_that_is_revoked_is_cut_off(cloud: Cloud) -> None:
    """Nothing is restarted, and no read fails."""
    authority = Authority(cloud.path / "tls")
    crl_file = authority.revoke(days=30)
    hosts = [
        cloud.add_host(peer=authority.options(f"h{number}") | {"crl_file": crl_file})
        for number in range(2)
    ]
    shared, kept_apart = cloud.register(16 * MIB), cloud.register(16 * MIB)
    for image in (shared, kept_apart):
        cloud.wait_ready(image)
    for host in hosts:
        assert host.file(shared).read_bytes() == shared.content
    assert sum(host.metric("acstor_read_chunks", tier="peer") for host in hosts) > 0
    due = "acstor_peer_crl_next_update_timestamp_seconds"
    before = [host.metric(due) for host in hosts]
    authority.revoke("h1", days=60)

    def is_in_force() -> bool:
        return all(host.metric(due) > at for host, at in zip(hosts, before, strict=True))

    wait_for("the new list is in force", is_in_force)
    # Connections are looked at after that, and one that is used meanwhile may serve its last read.
    wait_for(
        "nobody is connected any more",
        lambda: not any(host.metric("acstor_peer_server_connections") for host in hosts),
    )
    from_peers = [host.metric("acstor_read_chunks", tier="peer") for host in hosts]
    for host in reversed(hosts):
        assert host.file(kept_apart).read_bytes() == kept_apart.content
    assert [host.metric("acstor_read_chunks", tier="peer") for host in hosts] == from_peers


def test_missing_certificate_is_named(cloud: Cloud) -> None:
    host = Host(cloud, "h0", {"peer": {"tls_enabled": True, "ca_file": "/nonexistent/ca.pem"}})
    assert host.command("repository", "init").returncode == 0
    result = subprocess.run(
        [str(BIN / "acstor-dataplane"), "--config-file", str(host.config)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert result.returncode != 0
    assert "/nonexistent/ca.pem" in result.stdout + result.stderr
    assert "Traceback" not in result.stdout + result.stderr
