"""Options of a one-box: kept with it, overrides over its options."""

import pathlib

import pytest

from testbed.exception import TestbedError
from testbed.onebox.configuration.acstor import Origin
from testbed.onebox.configuration.writer import Override
from testbed.onebox.directory import OneBoxDirectory
from testbed.onebox.settings import Settings

INTERVAL = Override("nova-compute", "image_cache", "manager_interval", "30")


@pytest.fixture
def directory() -> OneBoxDirectory:
    return OneBoxDirectory(pathlib.Path("/nowhere"))


def test_load_returns_what_was_saved(tmp_path: pathlib.Path, directory: OneBoxDirectory) -> None:
    directory.settings = tmp_path / "settings.json"
    settings = Settings(
        compute_hosts=3, with_acstor=False, origin=Origin.CEPH, overrides=(INTERVAL,)
    )
    settings.save(directory)
    assert Settings.load(directory) == settings


def test_settings_of_before_have_the_origin_of_before(
    tmp_path: pathlib.Path, directory: OneBoxDirectory
) -> None:
    directory.settings = tmp_path / "settings.json"
    directory.settings.write_text('{"compute_hosts": 1, "overrides": []}')
    assert Settings.load(directory).origin is Origin.POSIX


def test_origin_is_chosen_once(tmp_path: pathlib.Path, directory: OneBoxDirectory) -> None:
    """Another one would begin empty, without a word."""
    directory.settings = tmp_path / "settings.json"
    settings = Settings().with_origin(Origin.CEPH, directory)
    assert settings.with_ceph
    settings.save(directory)
    assert settings.with_origin(Origin.CEPH, directory) == settings
    with pytest.raises(TestbedError, match="has its origin in ceph") as caught:
        settings.with_origin(Origin.POSIX, directory)
    assert "take it down" in caught.value.hint


def test_load_without_a_one_box_says_what_to_do(directory: OneBoxDirectory) -> None:
    with pytest.raises(TestbedError, match="no one-box in /nowhere") as caught:
        Settings.load(directory)
    assert "tools/onebox up" in caught.value.hint


def test_override_changes_its_file_only() -> None:
    settings = Settings(overrides=(INTERVAL, Override("nova-compute", "new", "a", "1")))
    before = {"image_cache": {"manager_interval": "2400", "kept": "x"}}
    after = settings.override("nova-compute", before)
    assert after == {"image_cache": {"manager_interval": "30", "kept": "x"}, "new": {"a": "1"}}
    assert before["image_cache"]["manager_interval"] == "2400"
    assert settings.override("nova", before) == before


def test_newest_override_of_an_option_wins() -> None:
    newer = Override("nova-compute", "image_cache", "manager_interval", "60")
    other = Override("nova", "image_cache", "manager_interval", "5")
    assert Settings().with_overrides([INTERVAL, other, newer]).overrides == (newer, other)


def test_compute_hosts_have_bounds() -> None:
    assert Settings(compute_hosts=2).compute_names == ["compute1", "compute2"]
    for count in (0, 9):
        with pytest.raises(TestbedError):
            _ = Settings(compute_hosts=count).compute_names
