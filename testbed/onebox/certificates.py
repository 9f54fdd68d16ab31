"""Certificates of the data planes: one authority for the one-box, made as an operator would."""

import pathlib

from testbed import processes
from testbed.onebox import network
from testbed.onebox.directory import OneBoxDirectory

DAYS = 365
_KEY = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")
_SECRET = 0o600


def make(directory: OneBoxDirectory, host: str) -> None:
    """Make a host's certificate, unless it is there, where ACStor looks for it.

    :raises ToolFailedError: when openssl fails.
    """
    authority = _make_authority(directory.host(network.CONTROLLER) / "authority")
    folder = directory.etc(host) / "acstor" / "tls"
    if (folder / "host.pem").exists():
        return
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "ca.pem").write_text((authority / "ca.pem").read_text())
    _openssl(
        folder, "req", *_KEY, "-keyout", "host.key", "-out", "host.csr", "-subj", f"/CN={host}",
        "-addext", f"subjectAltName=DNS:{host}",
    )  # fmt: skip
    (folder / "host.key").chmod(_SECRET)
    _openssl(
        folder, "x509", "-req", "-in", "host.csr", "-CA", "ca.pem", "-CAkey", "ca.key",
        "-set_serial", network.address_of(host).rpartition(".")[2], "-copy_extensions", "copy",
        "-days", str(DAYS), "-out", "host.pem", authority=authority,
    )  # fmt: skip


def _make_authority(folder: pathlib.Path) -> pathlib.Path:
    if not (folder / "ca.pem").exists():
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        _openssl(
            folder, "req", "-x509", *_KEY, "-keyout", "ca.key", "-out", "ca.pem",
            "-days", str(DAYS), "-subj", "/CN=one-box",
        )  # fmt: skip
    return folder


def _openssl(folder: pathlib.Path, *arguments: str, authority: pathlib.Path | None = None) -> None:
    """Run openssl with the names of files as paths below a folder."""

    def path(argument: str) -> str:
        if not argument.endswith((".pem", ".key", ".csr")):
            return argument
        of_authority = authority is not None and argument.startswith("ca.")
        return str((authority if of_authority and authority else folder) / argument)

    processes.run(["openssl", *(path(argument) for argument in arguments)])
