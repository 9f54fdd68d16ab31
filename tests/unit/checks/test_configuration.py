"""Checks of the configuration files."""

import pytest
from oslo_config import cfg
from oslo_upgradecheck.upgradecheck import Code

from acstor.checks import configuration
from tests.unit.checks.conftest import Configure, text


def test_valid_configuration_is_fine(configure: Configure) -> None:
    conf = configure()
    assert configuration.check_values(conf).code is Code.SUCCESS
    assert configuration.check_names(conf).code is Code.SUCCESS


def test_wrong_value_is_a_failure_that_names_it(configure: Configure) -> None:
    result = configuration.check_values(configure("[store]\ncapacity = 20 apples\n"))
    assert result.code is Code.FAILURE
    assert "[store] capacity = '20 apples' is not a size" in text(result)


@pytest.mark.parametrize(
    ("written", "named"),
    [
        ("[store]\ncapacityy = 20GiB\n", "[store] capacityy"),
        ("[stor]\ncapacity = 20GiB\n", "[stor]"),
    ],
)
def test_unknown_option_is_a_warning(configure: Configure, written: str, named: str) -> None:
    result = configuration.check_names(configure(written))
    assert result.code is Code.WARNING
    assert f"{named};" in text(result)


def test_groups_of_libraries_are_known(configure: Configure) -> None:
    conf = configure(
        "[oslo_messaging_rabbit]\nrabbit_quorum_queue = true\n"
        "[keystone]\nauth_type = password\nauth_url = http://controller:5000\n"
        "[nova]\nregion_name = RegionOne\n"
    )
    assert configuration.check_names(conf).code is Code.SUCCESS


def test_former_name_is_a_warning_with_the_new_one(
    configure: Configure, monkeypatch: pytest.MonkeyPatch
) -> None:
    renamed = cfg.StrOpt("directory", deprecated_opts=[cfg.DeprecatedOpt("path", group="store")])
    path = cfg.StrOpt("path", deprecated_for_removal=True, deprecated_reason="nobody needs it")
    monkeypatch.setattr(
        "acstor.conf.opts.list_opts",
        lambda: [("store", [renamed]), ("gc", [path]), ("DEFAULT", []), ("origin", [])],
    )
    former = configuration._former_names(configure("[store]\npath = /x\n[gc]\npath = y\n"))
    assert list(former) == ["[store] path (now [store] directory)", "[gc] path (nobody needs it)"]
