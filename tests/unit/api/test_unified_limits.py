"""Limits by oslo.limit itself, over its double of Keystone."""

import pathlib
from collections.abc import Iterator

import pytest
from oslo_config import cfg
from oslo_limit import fixture

from acstor.api import assembly
from acstor.api.errors import QuotaError
from acstor.api.quotas import (
    EXPORT_MIB,
    SCHEDULES,
    VERSION_MIB,
    VERSIONS,
    UnifiedLimits,
    UsageCounter,
)
from acstor.repository.versions.record import DeltaCounts
from testbed.fixtures.api_callers import project_id
from tests.unit.api.setting import Setting


@pytest.fixture
def quotas(api: Setting, tmp_path: pathlib.Path) -> Iterator[UnifiedLimits]:
    """Return limits of Keystone: of the project, and registered ones; MiB have none."""
    file = tmp_path / "acstor.conf"
    file.write_text("[oslo_limit]\nendpoint_id = e\n")
    registered = {VERSIONS: 5, SCHEDULES: -1, EXPORT_MIB: 8}
    with fixture.LimitFixture(registered, {api.project: {VERSIONS: 1}}):
        # It reads the global configuration, which no other program of ours does.
        yield UnifiedLimits(assembly._enforcer_opener([str(file)]), UsageCounter(api.stores), 60.0)
    cfg.CONF.clear()
    cfg.CONF.reset()


def test_limit_of_the_project_comes_before_the_registered_one(
    api: Setting, quotas: UnifiedLimits
) -> None:
    assert quotas.limits(api.project) == {
        "versions": 1,
        "version_mib": 0,
        "schedules": -1,
        "export_mib": 8,
    }
    assert quotas.limits(project_id())["versions"] == 5


def test_what_is_reached_passes_and_what_is_more_does_not(
    api: Setting, quotas: UnifiedLimits
) -> None:
    api.add_version()
    quotas.require(api.project, [VERSIONS, SCHEDULES])
    api.add_version()
    with pytest.raises(QuotaError) as caught:
        quotas.require(api.project, [VERSIONS])
    assert caught.value.code == "acstor.quota.versions"
    assert "2 of 1 versions" in caught.value.message


def test_without_a_registered_limit_the_limit_is_zero(api: Setting, quotas: UnifiedLimits) -> None:
    quotas.require(api.project, [VERSION_MIB])  # 0 of 0
    api.add_version(delta=DeltaCounts(stored_bytes=1))
    with pytest.raises(QuotaError):
        quotas.require(api.project, [VERSION_MIB])
