import logging
import pathlib

import pytest
from oslo_config import types

from acstor import exception
from acstor.conf import loading, opts


def load(directory: pathlib.Path, text: str) -> object:
    path = directory / "acstor.conf"
    path.write_text(text)
    return loading.load("test", ["--config-file", str(path)])


@pytest.mark.parametrize(
    ("group", "name", "value", "allowed"),
    [
        ("store", "capacity", "5x", "a size from 64 MiB to 16 TiB, such as 20GiB"),
        ("store", "capacity", "1K", "a size from 64 MiB to 16 TiB, such as 20GiB"),
        ("store", "eviction", "mru", "one of s3fifo, fifo, lru, lfu"),
        ("readpath", "read_deadline", "nan", "a number from 0.1 to 600"),
        ("readpath", "read_deadline", "1e9", "a number from 0.1 to 600"),
        ("readpath", "distance_threshold", "256", "a whole number from 0 to 255"),
        ("dataplane", "fuse_threads", "0", "a whole number from 1 to 64"),
        ("dataplane", "allow_other", "perhaps", "true or false"),
        ("peer", "listen_port", "70000", "a whole number from 0 to 65535"),
        ("peer", "listen_address", "a/b", "an IP address or a host name"),
        ("agent", "ring_vnodes", "100", "a power of two from 16 to 4194304"),
        ("registrar", "visibility", "publik", "one or more of public, community, shared, private"),
        ("registrar", "visibility", "", "one or more of public, community, shared, private"),
        ("DEFAULT", "host", "A B", "text that matches [a-z0-9][a-z0-9_.-]*"),
    ],
)
def test_wrong_value_is_named_with_what_is_allowed(
    tmp_path: pathlib.Path, group: str, name: str, value: str, allowed: str
) -> None:
    with pytest.raises(exception.ConfigurationError) as caught:
        load(tmp_path, f"[{group}]\n{name} = {value}\n")
    assert str(caught.value) == (
        f"[{group}] {name} = {value!r} is not {allowed} ({tmp_path}/acstor.conf)"
    )


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[DEFAULT]\nstate_path = here\n", "state_path = 'here' is not an absolute path"),
        ("[readpath]\nread_deadline = 1\n", "origin_deadline = 10 is more than read_deadline = 1"),
        ("[coordination]\nmember_timeout = 3\n", "more than half of member_timeout = 3"),
        ("[peer]\nkey_file = k\n", "[peer] key_file = 'k' is not an absolute path"),
        ("[peer]\ncrl_file = c\n", "[peer] crl_file = 'c' is not an absolute path"),
        (
            "[policy]\nmetrics_ca_file = /ca.pem\n",
            "[policy] metrics_ca_file = '/ca.pem' needs metrics_cert_file",
        ),
        ("[dataplane]\nadmin_socket = /" + "x" * 107, "is longer than 107 bytes"),
        ("[store]\npath = $nothing/x\n", "refers to an option that does not exist"),
        ("no section\n", "configuration file is malformed"),
    ],
)
def test_values_that_do_not_fit_together_are_refused(
    tmp_path: pathlib.Path, text: str, message: str
) -> None:
    with pytest.raises(exception.ConfigurationError) as caught:
        load(tmp_path, text)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_missing_file_is_named() -> None:
    with pytest.raises(exception.ConfigurationError, match="/nonexistent/acstor"):
        loading.load("test", ["--config-file", "/nonexistent/acstor.conf"])


def test_defaults_are_valid() -> None:
    conf = loading.load("test", [])
    assert conf.store.capacity == 20 << 30
    assert conf.dataplane.mount_point == f"{conf.state_path}/images"


def test_unknown_option_is_a_warning(
    tmp_path: pathlib.Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "acstor.conf"
    path.write_text("[store]\ncapacty = 5G\n[oslo_messaging_rabbit]\nwhatever = 1\n")
    conf = loading.load("test", ["--config-file", str(path)])
    with caplog.at_level(logging.WARNING):
        assert loading.warn_of_unknown(conf) == ["[store] capacty"]
    assert "[store] capacty" in caplog.text


def test_every_option_has_a_help_text_and_a_bounded_type() -> None:
    for group, options in opts.list_opts():
        for option in options:
            assert option.help, f"[{group}] {option.name}"
            assert loading.describe_allowed(option.type)
            if isinstance(option.type, types.Number):
                assert option.type.min is not None, f"[{group}] {option.name}"
                assert option.type.max is not None, f"[{group}] {option.name}"


def test_options_of_keystoneauth_are_known_and_typing_errors_are_not(
    tmp_path: pathlib.Path,
) -> None:
    path = tmp_path / "acstor.conf"
    path.write_text(
        "[keystone]\nauth_type = password\nauth_url = http://k/v3\nusernme = a\n"
        "application_credential_id = x\n"
        "[glance]\nregion_name = here\nendpoint_override = http://g\nattempts = 3\nregion = x\n"
        "[nova]\nvalid_interfaces = internal\nrgion_name = there\n"
    )
    conf = loading.load("test", ["--config-file", str(path)])
    assert loading.warn_of_unknown(conf) == [
        "[glance] region",
        "[keystone] usernme",
        "[nova] rgion_name",
    ]


def test_paths_of_the_registrar_are_absolute(tmp_path: pathlib.Path) -> None:
    for group, name in (("registrar", "spool_path"), ("glance", "filesystem_store_datadir")):
        with pytest.raises(exception.ConfigurationError, match=f"{name} = 'here' is not an abso"):
            load(tmp_path, f"[{group}]\n{name} = here\n")
