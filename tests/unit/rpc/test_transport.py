"""Opening the message transport."""

import pathlib

import pytest
from oslo_config import cfg

from acstor import exception
from acstor.conf import loading
from acstor.rpc import transport


def test_transport_counts_only_where_the_operator_names_one(
    conf: cfg.ConfigOpts, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert transport.is_configured(conf)
    bare = loading.load("test", [])
    assert not transport.is_configured(bare)
    monkeypatch.setenv("OS_DEFAULT__TRANSPORT_URL", "fake://")
    assert transport.is_configured(bare)


def test_missing_transport_says_what_to_set() -> None:
    with pytest.raises(exception.ConfigurationError) as caught:
        transport.open_transport(loading.load("test", []))
    assert "transport_url" in caught.value.hint


@pytest.mark.parametrize("url", ["carrier-pigeon://loft", "rabbit://user:secret@host:nonsense/"])
def test_unusable_transport_is_a_wrong_value_and_shows_no_password(
    tmp_path: pathlib.Path, url: str
) -> None:
    path = tmp_path / "acstor.conf"
    path.write_text(f"[DEFAULT]\ntransport_url = {url}\n")
    conf = loading.load("test", ["--config-file", str(path)])
    with pytest.raises(exception.ConfigurationError) as caught:
        transport.open_transport(conf).cleanup()
    assert "secret" not in f"{caught.value} {caught.value.hint}"


def test_global_configuration_that_was_reset_is_read_again(
    conf: cfg.ConfigOpts, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cfg.CONF, "project", "acstor", raising=False)
    cfg.CONF.reset()
    opened = transport.open_transport(conf)
    try:
        assert list(cfg.CONF.config_file or []) == list(conf.config_file or [])
    finally:
        opened.cleanup()


def test_configuration_of_a_foreign_process_is_left_alone(
    conf: cfg.ConfigOpts, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cfg.CONF, "project", "nova")
    with pytest.raises(exception.InternalError, match="nova"):
        transport.open_transport(conf)
    assert cfg.CONF.project == "nova"
