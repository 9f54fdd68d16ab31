"""The check of certificates, with some that an operator would make."""

import pathlib
import subprocess

import pytest
from oslo_config import cfg
from oslo_upgradecheck.upgradecheck import Code

from acstor.checks import peer_tls
from tests.unit.checks.conftest import Configure, text

KEY = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")


def make_authority(folder: pathlib.Path, name: str = "ca") -> None:
    folder.mkdir(exist_ok=True)
    openssl(
        folder, "req", "-x509", *KEY, "-keyout", f"{name}.key", "-out", f"{name}.pem",
        "-days", "300", "-subj", "/CN=test",
    )  # fmt: skip


def make_certificate(
    folder: pathlib.Path, alternative: str = "DNS:compute1", days: int = 90, authority: str = "ca"
) -> None:
    openssl(
        folder, "req", *KEY, "-keyout", "host.key", "-out", "host.csr", "-subj", "/CN=x",
        "-addext", f"subjectAltName={alternative}",
    )  # fmt: skip
    openssl(
        folder, "x509", "-req", "-in", "host.csr", "-CA", f"{authority}.pem",
        "-CAkey", f"{authority}.key", "-CAcreateserial", "-copy_extensions", "copy",
        "-days", str(days), "-out", "host.pem",
    )  # fmt: skip


def openssl(folder: pathlib.Path, *arguments: str) -> None:
    subprocess.run(["openssl", *arguments], cwd=folder, check=True, capture_output=True, timeout=60)


@pytest.fixture
def tls(tmp_path: pathlib.Path, compute: cfg.ConfigOpts) -> pathlib.Path:
    folder = tmp_path / "tls"
    make_authority(folder)
    return folder


@pytest.mark.parametrize("alternative", ["DNS:compute1", "IP:127.0.0.1"])
def test_certificate_of_this_host_is_fine(
    tls: pathlib.Path, compute: cfg.ConfigOpts, alternative: str
) -> None:
    """A peer takes its name or its address."""
    make_certificate(tls, alternative)
    result = peer_tls.check_certificate(compute)
    assert result.code is Code.SUCCESS
    assert f"{tls}/host.pem is valid for 89 more days" in text(result)


def test_certificate_that_ends_soon_is_a_warning(
    tls: pathlib.Path, compute: cfg.ConfigOpts
) -> None:
    make_certificate(tls, days=3)
    result = peer_tls.check_certificate(compute)
    assert result.code is Code.WARNING
    assert "valid for 2 more days" in text(result)


@pytest.mark.parametrize("days", [-1, 0])
def test_certificate_that_has_ended_is_a_failure(
    tls: pathlib.Path, compute: cfg.ConfigOpts, days: int
) -> None:
    openssl(
        tls, "req", "-x509", *KEY, "-keyout", "host.key", "-out", "host.pem", "-subj", "/CN=x",
        "-addext", "subjectAltName=DNS:compute1", "-days", "1",
    )  # fmt: skip
    make_certificate(tls, days=days)
    assert peer_tls.check_certificate(compute).code is Code.FAILURE


def test_certificate_of_another_host_is_a_failure(
    tls: pathlib.Path, compute: cfg.ConfigOpts
) -> None:
    make_certificate(tls, "DNS:compute2")
    result = peer_tls.check_certificate(compute)
    assert result.code is Code.FAILURE
    assert "mismatch" in text(result).lower()


def test_certificate_of_another_authority_is_a_failure(
    tls: pathlib.Path, compute: cfg.ConfigOpts
) -> None:
    make_authority(tls, "other")
    make_certificate(tls, authority="other")
    assert peer_tls.check_certificate(compute).code is Code.FAILURE


def test_key_of_another_certificate_is_named(tls: pathlib.Path, compute: cfg.ConfigOpts) -> None:
    make_certificate(tls)
    (tls / "ca.key").replace(tls / "host.key")
    result = peer_tls.check_certificate(compute)
    assert result.code is Code.FAILURE
    assert f"{tls}/host.key" in text(result)


def test_absent_file_is_named(compute: cfg.ConfigOpts, tmp_path: pathlib.Path) -> None:
    result = peer_tls.check_certificate(compute)
    assert result.code is Code.FAILURE
    assert f"{tmp_path}/tls/ca.pem: No such file or directory" in text(result)


def test_peers_in_the_clear_are_a_warning(configure: Configure, tmp_path: pathlib.Path) -> None:
    (tmp_path / "store").mkdir()
    result = peer_tls.check_certificate(configure("[peer]\ntls_enabled = false\n"))
    assert result.code is Code.WARNING


def test_controller_needs_no_certificate(configure: Configure) -> None:
    assert peer_tls.check_certificate(configure()).code is Code.SUCCESS


def revocation_list(
    folder: pathlib.Path, *serials: str, is_overdue: bool = False, is_version_2: bool = True
) -> None:
    """Write the list of the authority that revokes certificates, as the guide says."""
    (folder / "index.txt").write_text(
        "".join(f"R\t991231235959Z\t200101000000Z\t{each}\tunknown\t/CN=x\n" for each in serials)
    )
    (folder / "ca.cnf").write_text(
        "[ca]\ndefault_ca = peers\n[peers]\ndatabase = index.txt\ndefault_md = sha256\n"
        + ("crlnumber = crlnumber\ncrl_extensions = extensions\n" if is_version_2 else "")
        + "[extensions]\nauthorityKeyIdentifier = keyid:always\n"
    )
    (folder / "crlnumber").write_text("01\n")
    dates = ["-crldays", "30"]
    if is_overdue:
        dates = ["-crl_lastupdate", "20200101000000Z", "-crl_nextupdate", "20210101000000Z"]
    openssl(
        folder, "ca", "-config", "ca.cnf", "-gencrl", "-cert", "ca.pem", "-keyfile", "ca.key",
        *dates, "-out", "crl.pem",
    )  # fmt: skip


@pytest.fixture
def with_list(tls: pathlib.Path, compute: cfg.ConfigOpts) -> pathlib.Path:
    make_certificate(tls)
    compute.set_override("crl_file", str(tls / "crl.pem"), group="peer")
    return tls


def serial_of(certificate: pathlib.Path) -> str:
    shown = subprocess.run(
        ["openssl", "x509", "-in", str(certificate), "-noout", "-serial"],
        check=True, capture_output=True, timeout=60, text=True,
    )  # fmt: skip
    return shown.stdout.strip().removeprefix("serial=")


def test_revocation_list_of_others_is_fine(
    with_list: pathlib.Path, compute: cfg.ConfigOpts
) -> None:
    revocation_list(with_list, "1234")
    assert peer_tls.check_certificate(compute).code is Code.SUCCESS


def test_certificate_that_is_revoked_is_a_failure(
    with_list: pathlib.Path, compute: cfg.ConfigOpts
) -> None:
    revocation_list(with_list, serial_of(with_list / "host.pem"))
    result = peer_tls.check_certificate(compute)
    assert result.code is Code.FAILURE
    assert "revoked" in text(result)


def test_revocation_list_that_is_overdue_is_a_warning(
    with_list: pathlib.Path, compute: cfg.ConfigOpts
) -> None:
    revocation_list(with_list, is_overdue=True)
    result = peer_tls.check_certificate(compute)
    assert result.code is Code.WARNING
    assert "overdue" in text(result)


def test_revocation_list_of_version_1_is_a_failure(
    with_list: pathlib.Path, compute: cfg.ConfigOpts
) -> None:
    """OpenSSL takes it, and the data plane does not."""
    revocation_list(with_list, "1234", is_version_2=False)
    result = peer_tls.check_certificate(compute)
    assert result.code is Code.FAILURE
    assert "version 1" in text(result)


@pytest.mark.parametrize("content", [None, "", "no list"])
def test_revocation_list_that_is_unusable_is_a_failure(
    with_list: pathlib.Path, compute: cfg.ConfigOpts, content: str | None
) -> None:
    if content is not None:
        (with_list / "crl.pem").write_text(content)
    result = peer_tls.check_certificate(compute)
    assert result.code is Code.FAILURE
    assert "crl_file" in text(result)


def test_revocation_list_of_another_authority_revokes_nobody(
    with_list: pathlib.Path, compute: cfg.ConfigOpts
) -> None:
    other = with_list / "other"
    other.mkdir()
    openssl(
        other, "req", "-x509", *KEY, "-keyout", "ca.key", "-out", "ca.pem", "-subj", "/CN=other",
        "-days", "300",
    )  # fmt: skip
    revocation_list(other, serial_of(with_list / "host.pem"))
    (other / "crl.pem").rename(with_list / "crl.pem")
    assert peer_tls.check_certificate(compute).code is Code.SUCCESS
