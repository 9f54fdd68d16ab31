"""The program as a person meets it: help, errors, exit statuses."""

import io
import json
import pathlib
from collections.abc import Callable

import pytest

from acstor import exception
from acstor.cli.app import Application, describe
from acstor.cluster.member import Member
from acstor.cluster.membership import CoordinationSettings, open_coordinator
from acstor.native import RingHost, build_ring
from acstor.origin.opening import open_origin
from acstor.origin.posix import PosixOrigin
from acstor.repository.repository import Repository

COMMANDS = (
    "host list", "host show", "host drain", "host undrain", "host restart-dataplane",
    "host stop-dataplane", "host forget", "links list", "links files", "links remove",
    "ring show", "ring export", "ring analyze", "dataplane status", "dataplane images",
    "dataplane volumes",
    "trace start", "trace show", "trace stop", "top",
    "registry list", "registry show", "registry retry",
    "image register", "image list", "image show", "image verify", "image remove", "image profile",
    "image users", "host usage",
)  # fmt: skip

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(tmp_path: pathlib.Path) -> Run:
    (tmp_path / "origin").mkdir()
    Repository.init(PosixOrigin(f"{tmp_path}/origin"))
    config = tmp_path / "acstor.conf"
    config.write_text(
        f"""
[DEFAULT]
host = h1
state_path = {tmp_path}
[origin]
url = posix://{tmp_path}/origin
timeout = 0.1
[dataplane]
admin_socket = {tmp_path}/admin.sock
[coordination]
backend_url = file://{tmp_path}/coordination
"""
    )

    def run(*arguments: str) -> tuple[int, str, str]:
        out, err = io.StringIO(), io.StringIO()
        status = Application(out, err).run(["--config-file", str(config), *arguments])
        return status, out.getvalue(), err.getvalue()

    return run


@pytest.fixture
def deployed(tmp_path: pathlib.Path) -> None:
    """One member that is alive, and a ring with another host too."""
    settings = CoordinationSettings(f"file://{tmp_path}/coordination", "acstor", 1, 60)
    coordinator = open_coordinator(settings, "h1")
    coordinator.create_group(b"acstor").get()
    member = Member("h1", "10.0.0.1:7420", "127.0.0.1:1", 20 << 30, "1.0")
    coordinator.join_group(b"acstor", member.to_capabilities()).get()
    ring = build_ring([RingHost(name, f"10.0.0.{name[1]}:7420", 100) for name in ("h1", "h2")], 64)
    open_origin(f"posix://{tmp_path}/origin", 1).swap_ref("ring", None, ring.encode())


def test_every_command_is_listed_and_explained(capsys: pytest.CaptureFixture[str]) -> None:
    names = {name for name, _ in Application().command_manager}
    assert set(COMMANDS) <= names
    for name in COMMANDS:
        assert Application().run([*name.split(), "--help"]) == 0
        assert f"usage: acstor {name} " in capsys.readouterr().out


def test_hosts_are_listed_with_those_that_are_gone(run: Run, deployed: None) -> None:
    status, out, _ = run("host", "list", "-f", "json")
    assert status == 0
    rows = {row["Name"]: row for row in json.loads(out)}
    assert rows["h1"]["State"] == "serving"
    assert rows["h1"]["Capacity"] == 20 << 30
    assert rows["h2"]["State"] == "gone"
    assert rows["h2"]["Ring share"] == 0.5


def test_table_is_for_people(run: Run, deployed: None) -> None:
    _, out, _ = run("host", "list")
    assert "20.0 GiB" in out
    assert "50.00 %" in out


def test_host_is_shown(run: Run, deployed: None) -> None:
    status, out, _ = run("host", "show", "h1", "-f", "json")
    assert status == 0
    shown = json.loads(out)
    assert shown["wanted"] == "serving"
    assert shown["ring_vnodes"] == 32


def test_drain_of_a_host_that_does_not_follow_says_so(run: Run, deployed: None) -> None:
    status, _, err = run("host", "drain", "h1", "--wait", "0.1")
    assert status == exception.DeadlineError("x").exit_status
    assert err.startswith(
        "acstor: error: host h1 has not followed in 0.1 s; the desired state is kept"
    )
    assert json.loads(run("host", "show", "h1", "-f", "json")[1])["wanted"] == "drained"


def test_drain_without_waiting_succeeds(run: Run, deployed: None) -> None:
    assert run("host", "drain", "h1", "--wait", "0") == (0, "", "")
    assert run("host", "undrain", "h1") == (0, "", "")


@pytest.mark.parametrize("command", ["show", "drain", "undrain"])
def test_unknown_host_is_not_found(run: Run, deployed: None, command: str) -> None:
    status, out, err = run("host", command, "h9")
    assert (status, out) == (4, "")
    assert err == "acstor: error: there is no host h9; 'acstor host list' shows the hosts\n"


def test_ring_is_shown_exported_analyzed(run: Run, deployed: None) -> None:
    shown = json.loads(run("ring", "show", "-f", "json")[1])
    assert shown["generation"] == 1
    assert [host["vnodes"] for host in shown["hosts"]] == [32, 32]
    assert run("ring", "export")[1].startswith("acstor-ring 1\ngeneration 1\n")
    assert "arcs 0 " in run("ring", "export", "--full")[1]
    analyzed = json.loads(run("ring", "analyze", "-f", "json")[1])
    assert [row["Share"] for row in analyzed] == [0.5, 0.5]


def test_no_ring_yet_tells_what_to_start(run: Run) -> None:
    status, _, err = run("ring", "show")
    assert status == 4
    assert "start acstor-agent" in err


def test_absent_data_plane_is_one_line_with_its_socket(run: Run, tmp_path: pathlib.Path) -> None:
    status, out, err = run("dataplane", "status")
    assert (status, out) == (5, "")
    assert err.count("\n") == 1
    assert f"{tmp_path}/admin.sock cannot be reached" in err


@pytest.mark.parametrize("command", [("start",), ("show",), ("stop",)])
def test_trace_of_no_image_is_refused(run: Run, command: tuple[str, ...]) -> None:
    status, _, err = run("trace", *command, "not-a-uuid")
    assert status == 3
    assert "'not-a-uuid' is no UUID" in err


def test_top_without_hosts_tells_what_to_start(run: Run) -> None:
    status, _, err = run("top", "--once")
    assert status == 4
    assert "start acstor-agent" in err


def test_top_once_shows_the_unreachable_host_too(run: Run, deployed: None) -> None:
    status, out, _ = run("top", "--once", "--interval", "0.1", "-f", "json")
    assert status == 0
    (row,) = json.loads(out)
    assert row["host"] == "h1"
    assert "refused" in row["problem"]


def test_wrong_configuration_is_one_line(run: Run, tmp_path: pathlib.Path) -> None:
    bad = tmp_path / "bad.conf"
    bad.write_text("[store]\ncapacity = much\n")
    err = io.StringIO()
    status = Application(io.StringIO(), err).run(["--config-file", str(bad), "ring", "show"])
    assert status == 3
    assert err.getvalue().startswith("acstor: error: [store] capacity = 'much' is not a size")
    assert err.getvalue().count("\n") == 1


@pytest.mark.parametrize(
    "arguments", [["top", "--interval", "0"], ["host", "drain", "h", "--wait", "-1"]]
)
def test_values_out_of_range_are_usage_errors(run: Run, arguments: list[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        run(*arguments)
    assert caught.value.code == 2


def test_unknown_command_suggests(run: Run) -> None:
    status, out, _ = run("host", "lst")
    assert status == 2
    assert "host list" in out


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (exception.NotFoundError("no x", hint="do y"), "no x; do y"),
        (FileNotFoundError(2, "No such file", "/x"), "/x: No such file"),
        (RuntimeError("a\nb"), "RuntimeError: a b (--debug shows where)"),
    ],
)
def test_errors_are_one_line(error: Exception, text: str) -> None:
    assert describe(error) == text


@pytest.mark.parametrize(
    ("former", "name"), [(("catalogue", "list"), "registry"), (("ledger", "stop", "x"), "trace")]
)
def test_former_names_of_commands_still_work(run: Run, former: tuple[str, ...], name: str) -> None:
    for words in (former, (*former[:2], "--help"), ("help", *former[:2])):
        now = tuple(name if word == former[0] else word for word in words)
        status, out, err = run(*words)
        assert (status, out) == run(*now)[:2]
        assert f"'acstor {former[0]}' is called 'acstor {name}' now" in err
