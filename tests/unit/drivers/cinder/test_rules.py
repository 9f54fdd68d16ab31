"""Pure parts: who may attach, limits, errors, calls of many hosts."""

import uuid
from typing import Any
from unittest import mock

import oslo_messaging
import pytest
from cinder import exception as cinder_exception
from hypothesis import given
from hypothesis import strategies as st
from oslo_config import cfg

from acstor import exception
from acstor.drivers.cinder import back_end, failures, limits
from acstor.drivers.cinder import hosts as hosts_module
from acstor.drivers.cinder.attachment_rules import Access, Attached, Present, access_of, is_shared
from acstor.drivers.cinder.hosts import AgentHosts, call_each, first_error
from acstor.drivers.cinder.limits import Limits
from acstor.rpc.signature import CONTEXT_KEY, Signer, Verifier

HOSTS = ("h1", "h2", "h3")
INSTANCES = ("i1", "i2", None)

attached = st.builds(
    Attached,
    id=st.uuids().map(str),
    instance=st.sampled_from(INSTANCES),
    host=st.sampled_from((*HOSTS, None)),
)
present = st.builds(
    Present,
    hosts=st.sets(st.sampled_from(HOSTS), max_size=2).map(lambda found: tuple(sorted(found))),
    owner=st.sampled_from((*HOSTS, None)),
    is_standby_allowed=st.booleans(),
)


@given(st.sampled_from(HOSTS), present, st.lists(attached, max_size=4), st.booleans())
def test_second_host_gets_in_only_for_one_instance_on_its_way(
    host: str, found: Present, attachments: list[Attached], is_multiattach: bool
) -> None:
    others = [one for one in found.hosts if one != host]
    refusal: exception.ConflictError | None
    try:
        access = access_of("v", host, found, attachments, is_multiattach)
    except exception.ConflictError as error:
        refusal = error
    else:
        refusal = None
    if refusal is not None:
        assert others
        assert host not in found.hosts
        assert others[0] in refusal.message
        assert refusal.hint
        return
    if access is Access.OWNER:
        assert not others or (host in found.hosts and found.owner not in others)
    elif host not in found.hosts:
        instances = {one.instance for one in attachments}
        assert len(attachments) == 2
        assert len(instances) == 1
        assert instances != {None}


@given(st.sampled_from(HOSTS), st.lists(attached, max_size=4))
def test_shared_means_more_than_one_attachment_on_the_host(
    host: str, attachments: list[Attached]
) -> None:
    assert is_shared(host, attachments) == (len([1 for one in attachments if one.host == host]) > 1)


@given(st.integers(0, 1 << 40), st.integers(0, 1 << 40))
def test_limits_are_kept_as_they_were(iops: int, bytes_per_s: int) -> None:
    specs = {"acstor:iops": str(iops), "acstor:bytes_per_s": str(bytes_per_s)}
    found = limits.from_type(specs, None)
    assert found == Limits(iops, bytes_per_s)
    kept = {key: value for key, value in found.to_metadata().items() if value is not None}
    assert limits.from_metadata(kept) == found


@pytest.mark.parametrize("value", ["", "x", "-1", "1.5", "1e3", "٣", str((1 << 40) + 1), "9" * 99])
def test_bad_limits_are_refused_with_their_name(value: str) -> None:
    with pytest.raises(exception.InvalidError, match="acstor:iops"):
        limits.from_type({"acstor:iops": value}, None)
    assert limits.from_metadata({"iops": value}) == Limits()


@pytest.mark.parametrize("kind", list(exception.ErrorKind))
def test_every_kind_of_error_becomes_one_of_cinder_with_what_to_do(
    kind: exception.ErrorKind,
) -> None:
    error = exception.CLASS_OF_KIND[kind]("it failed", hint="do this")
    told = failures.as_cinder_error(error, "trying")
    assert isinstance(
        told,
        (cinder_exception.VolumeBackendAPIException, cinder_exception.VolumeDriverException),
    )
    assert "trying: it failed; do this" in str(told)
    with pytest.raises(type(told)), failures.map_errors("trying"):
        raise error


def test_errors_of_others_are_left_alone() -> None:
    @failures.reported("trying {thing}")
    def act(thing: str) -> None:
        raise NotImplementedError

    with pytest.raises(NotImplementedError):
        act("x")


def test_calls_run_beside_each_other_and_keep_their_names() -> None:
    def refuse() -> None:
        raise exception.NotFoundError("no")

    answers = call_each({"a": lambda: 1, "b": refuse, "c": lambda: 3})
    assert (answers["a"], answers["c"]) == (1, 3)
    assert isinstance(first_error(answers), exception.NotFoundError)
    assert first_error({"a": 1}) is None
    assert call_each({}) == {}


def test_agents_are_called_over_cinders_transport(cinder_settings: cfg.ConfigOpts) -> None:
    opened = []

    def open_transport() -> Any:
        opened.append(1)
        return oslo_messaging.get_rpc_transport(cinder_settings, url="fake://")

    hosts = AgentHosts(open_transport, 0.5)
    assert opened == []
    for timeout in (None, 0.4, None):
        with pytest.raises(exception.UnavailableError):
            hosts.call("h1", "volume_status", timeout=timeout, volume=str(uuid.uuid4()))
    assert opened == [1]


def test_calls_of_agents_are_signed_with_the_back_ends_secret(
    cinder_settings: cfg.ConfigOpts, monkeypatch: pytest.MonkeyPatch
) -> None:
    contexts: list[dict[str, Any]] = []

    class Client:
        """Signs, and calls nobody."""

        def __init__(self, opened: object, timeout: float, signer: Signer) -> None:
            self._signer = signer

        def call(self, host: str, method: str, **arguments: object) -> None:
            contexts.append(self._signer.context(host, method, arguments))

    monkeypatch.setattr(hosts_module, "AgentClient", Client)
    options = {"acstor_agent_timeout": 10.0, "acstor_transport_url": "fake://"}
    secret = "a secret of the cloud"
    for written in (None, secret):
        configuration = mock.Mock(safe_get={**options, "acstor_rpc_secret": written}.get)
        back_end._agent_hosts(configuration, cinder_settings).call(
            "h1", "volume_status", volume="v"
        )
    unsigned, signed = contexts
    assert unsigned == {}
    verifier = Verifier("h1", (secret,), clock=lambda: signed[CONTEXT_KEY]["signed_at"] / 1000)
    verifier.check(signed, "volume_status", {"volume": "v"})
    short = mock.Mock(safe_get={**options, "acstor_rpc_secret": "short"}.get)
    with pytest.raises(exception.ConfigurationError):
        back_end._agent_hosts(short, cinder_settings)
