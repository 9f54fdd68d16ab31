"""Masking of passwords in the log, to which services of OpenStack write every option's value."""

import logging
import pathlib

import pytest
from oslo_config import cfg

from acstor import exception
from acstor.cluster.membership import CoordinationSettings, open_coordinator
from acstor.conf import loading, opts
from acstor.drivers.ceilometer import options as ceilometer_options
from acstor.drivers.cinder import options as cinder_options
from acstor.origin.http.driver import HttpOrigin
from acstor.scheduler.nova import options as nova_options

SECRET = "hunter2"
OPTIONS = [
    *opts.list_opts(),
    *nova_options.list_opts(),
    *cinder_options.list_opts(),
    *ceilometer_options.list_opts(),
]
WITHOUT_PASSWORD = {("origin", "url"), ("backend_defaults", "acstor_origin_url")}
"""Places of the data: a URL with a user is refused, and operators want to see the place."""


def may_hold_a_password(group: str, option: cfg.Opt) -> bool:
    name = option.name.replace("-", "_")
    if (group, name) in WITHOUT_PASSWORD or name == "metrics_url":  # of a daemon without users
        return False
    return name.endswith(("url", "password", "secret", "token", "connection"))


@pytest.mark.parametrize(
    ("group", "option"),
    [
        pytest.param(group, option, id=f"{group}-{option.name}")
        for group, options in OPTIONS
        for option in options
        if may_hold_a_password(group, option)
    ],
)
def test_logged_values_hold_no_password(
    group: str, option: cfg.Opt, caplog: pytest.LogCaptureFixture
) -> None:
    conf = cfg.ConfigOpts()
    conf.register_opt(option, group=group)
    conf([], default_config_files=[], default_config_dirs=[])
    conf.set_override(option.name, f"redis://user:{SECRET}@host", group=group)
    with caplog.at_level(logging.DEBUG):
        conf.log_opt_values(logging.getLogger("acstor"), logging.DEBUG)
    assert option.dest in caplog.text
    assert SECRET not in caplog.text


def test_refused_value_of_a_secret_option_is_not_quoted(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "acstor.conf"
    path.write_text(f"[coordination]\nbackend_url = redis://user:{SECRET}$x@host\n")
    with pytest.raises(exception.ConfigurationError, match="backend_url") as caught:
        loading.load("test", ["--config-file", str(path)])
    assert SECRET not in str(caught.value)


@pytest.mark.parametrize(
    "url",
    [
        f"nothing://user:{SECRET}@host",
        f"nothing://host?sentinel_password={SECRET}&db=1",
        f"nothing://{SECRET}@host",
    ],
)
def test_backend_that_cannot_be_used_is_named_without_its_password(url: str) -> None:
    with pytest.raises(exception.UnsupportedError, match="host") as caught:
        open_coordinator(CoordinationSettings(url, "acstor", 1, 5), "h1")
    assert SECRET not in str(caught.value)


def test_origin_with_a_password_is_refused_without_quoting_it() -> None:
    with pytest.raises(exception.InvalidError, match="host, port and path") as caught:
        HttpOrigin(f"http://user:{SECRET}@host/")
    assert SECRET not in str(caught.value)
