"""Checks of coordination and messages."""

import socket

import pytest
from oslo_config import cfg
from oslo_upgradecheck.upgradecheck import Code

from acstor import version
from acstor.checks import dependencies
from acstor.cluster.member import Member
from acstor.cluster.membership import CoordinationSettings, open_coordinator
from tests.unit.checks.conftest import Configure, text


def join(conf: cfg.ConfigOpts, name: str, release: str) -> None:
    settings = CoordinationSettings(conf.coordination.backend_url, "acstor", 1, 60)
    coordinator = open_coordinator(settings, name)
    if name == "h0":
        coordinator.create_group(b"acstor").get()
    member = Member(name, "10.0.0.1:7420", "127.0.0.1:1", 20 << 30, release)
    coordinator.join_group(b"acstor", member.to_capabilities()).get()


def test_shared_coordination_is_fine(configure: Configure) -> None:
    conf = configure()
    join(conf, "h0", version.release())
    result = dependencies.check_coordination(conf)
    assert (result.code, text(result)) == (Code.SUCCESS, "1 hosts are members of group acstor")


def test_default_coordination_is_for_one_machine(configure: Configure) -> None:
    conf = configure()
    conf.set_override("config_file", [])
    result = dependencies.check_coordination(conf)
    assert result.code is Code.WARNING
    assert "is for one machine" in text(result)


def test_coordination_that_is_down_is_a_failure_without_its_password(configure: Configure) -> None:
    conf = configure("[coordination]\nbackend_url = nonesuch://user:secret@127.0.0.1:1/\n")
    for check in (dependencies.check_coordination, dependencies.check_agents):
        result = check(conf)
        assert result.code is Code.FAILURE
        assert "secret" not in text(result)


def test_agents_of_other_releases_are_named(configure: Configure) -> None:
    conf = configure()
    join(conf, "h0", version.release())
    assert dependencies.check_agents(conf).code is Code.SUCCESS
    for number in range(1, 12):
        join(conf, f"h{number}", "0.0.1")
    result = dependencies.check_agents(conf)
    assert result.code is Code.WARNING
    assert "(0.0.1)" in text(result)
    assert "h0 " not in text(result)
    assert "and 3 more" in text(result)


def test_no_broker_is_a_warning(configure: Configure) -> None:
    assert dependencies.check_messages(configure()).code is Code.WARNING


@pytest.mark.parametrize(
    ("written", "code", "said"),
    [
        ("", Code.SUCCESS, "nobody calls agents"),
        ("[DEFAULT]\ntransport_url = fake://\n", Code.WARNING, "everybody who may send"),
        (
            "[DEFAULT]\ntransport_url = fake://\n[rpc]\nsecrets = 0123456789abcdef,second\n",
            Code.FAILURE,
            "fewer than 16 characters",
        ),
        (
            "[DEFAULT]\ntransport_url = fake://\n[rpc]\nsecrets = 0123456789abcdef\n",
            Code.SUCCESS,
            "signed calls only",
        ),
    ],
)
def test_calls_of_everybody_are_warned_of(
    configure: Configure, written: str, code: Code, said: str
) -> None:
    result = dependencies.check_calls(configure(written))
    assert result.code is code
    assert said in text(result)
    assert "0123456789abcdef" not in text(result)


def test_broker_that_takes_messages(configure: Configure, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dependencies, "_CALL_TIMEOUT", 0.2)
    result = dependencies.check_messages(configure("[DEFAULT]\ntransport_url = fake://\n"))
    assert (result.code, text(result)) == (Code.SUCCESS, "the broker takes messages")


@pytest.mark.timeout(60)
def test_broker_that_is_down_is_a_failure_without_its_password(configure: Configure) -> None:
    with socket.socket() as taken:  # bound, not listening: refuses
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
        url = f"rabbit://acstor:secret@127.0.0.1:{port}/"
        result = dependencies.check_messages(configure(f"[DEFAULT]\ntransport_url = {url}\n"))
    assert result.code is Code.FAILURE
    assert "secret" not in text(result)
