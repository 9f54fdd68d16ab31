"""The programs refuse what they cannot do, in one line."""

import pathlib
import subprocess
import sys

import pytest

CALL = "import sys; from acstor.cmd import {0}; sys.exit({0}.main())"


def run(program: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", CALL.format(program), *arguments],
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip


@pytest.mark.parametrize("program", ["agent", "dataplane", "registrar"])
def test_wrong_value_ends_with_the_configuration_status(
    tmp_path: pathlib.Path, program: str
) -> None:
    config = tmp_path / "acstor.conf"
    config.write_text("[readpath]\nkeep = perhaps\n")
    result = run(program, "--config-file", str(config))
    assert result.returncode == 78
    assert result.stderr.splitlines() == [
        f"acstor-{program}: error: [readpath] keep = 'perhaps' is not one of never, second-touch, "
        f"always ({config}); correct the value in the configuration file and start again"
    ]


def test_holder_reads_its_socket_from_the_configuration(tmp_path: pathlib.Path) -> None:
    config = tmp_path / "acstor.conf"
    config.write_text("[dataplane]\nholder_socket = relative\n")
    result = run("holder", "--config-file", str(config), "--", "true")
    assert result.returncode == 78
    assert "holder_socket = 'relative' is not an absolute path" in result.stderr


def test_data_plane_imports_nothing_heavy_before_it_serves() -> None:
    """Guests wait while it starts."""
    modules = subprocess.run(
        [
            sys.executable,
            "-c",
            "import sys, acstor.cmd.dataplane, acstor.dataplane.host, oslo_log.log,"
            "acstor.dataplane.origin_source; print(*sys.modules)",
        ],
        capture_output=True, text=True, timeout=60, check=True,
    ).stdout.split()  # fmt: skip
    heavy = {
        "tooz",
        "oslo_messaging",
        "prometheus_client",
        "rich",
        "cliff",
        "eventlet",
        "keystoneauth1",
    }
    assert not heavy & set(modules)


def test_registrar_without_credentials_says_what_to_set(tmp_path: pathlib.Path) -> None:
    config = tmp_path / "acstor.conf"
    config.write_text(f"[DEFAULT]\nstate_path = {tmp_path}\n")
    result = run("registrar", "--config-file", str(config))
    assert result.returncode == 78
    told = result.stdout + result.stderr
    assert "no credentials for the other services are configured; set [keystone]" in told
