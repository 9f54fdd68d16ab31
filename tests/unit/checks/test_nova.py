"""Checks of Nova's configuration."""

import pathlib
import socket

import pytest
from oslo_config import cfg
from oslo_upgradecheck.upgradecheck import Code

from acstor.agent.reconcilers.local_files import known_files
from acstor.agent.reconcilers.local_files.known_files import KnownFile, KnownFiles
from acstor.agent.reconcilers.local_files.states import LocalFileState
from acstor.checks import nova
from acstor.origin import mounts
from tests.unit.checks.conftest import Configure, text

IMAGE = "00000000-0000-0000-0000-000000000001"
OTHER = "00000000-0000-0000-0000-000000000002"
SCHEDULER = """
[filter_scheduler]
weight_classes = nova.scheduler.weights.all_weighers,{weigher}
available_filters = nova.scheduler.filters.all_filters
available_filters = {filter}
enabled_filters = ComputeFilter,DataPlaneFilter
"""


@pytest.fixture
def nova_conf(tmp_path: pathlib.Path) -> pathlib.Path:
    path = tmp_path / "nova.conf"
    (tmp_path / "nova" / "instances").mkdir(parents=True)
    path.write_text(f"[DEFAULT]\nhost = compute1\nstate_path = {tmp_path}/nova\n")
    return path


@pytest.fixture
def linked(configure: Configure, nova_conf: pathlib.Path) -> cfg.ConfigOpts:
    return configure(f"[image_links]\nenabled = true\nnova_config_file = {nova_conf}\n")


def test_settings_that_links_work_under(linked: cfg.ConfigOpts, tmp_path: pathlib.Path) -> None:
    result = nova.check_image_links(linked)
    assert result.code is Code.SUCCESS
    assert text(result) == f"links are planted in {tmp_path}/nova/instances/_base"


@pytest.mark.parametrize(
    ("written", "said"),
    [
        ("[libvirt]\nimages_type = rbd\n", "images_type = rbd"),
        ("use_cow_images = false\n", "use_cow_images = false"),
        ("force_raw_images = false\n", "force_raw_images = false"),
    ],
)
def test_settings_that_refuse_links_are_a_failure(
    linked: cfg.ConfigOpts, nova_conf: pathlib.Path, written: str, said: str
) -> None:
    nova_conf.write_text(nova_conf.read_text() + written)
    result = nova.check_image_links(linked)
    assert result.code is Code.FAILURE
    assert said in text(result)


def test_absent_nova_configuration_is_a_failure(
    linked: cfg.ConfigOpts, nova_conf: pathlib.Path
) -> None:
    nova_conf.unlink()
    result = nova.check_image_links(linked)
    assert result.code is Code.FAILURE
    assert "[image_links] nova_config_file" in text(result)


def test_links_that_are_off_are_a_warning(compute: cfg.ConfigOpts) -> None:
    assert nova.check_image_links(compute).code is Code.WARNING


def test_absent_instances_path_is_a_warning(linked: cfg.ConfigOpts, tmp_path: pathlib.Path) -> None:
    (tmp_path / "nova" / "instances").rmdir()
    assert nova.check_image_links(linked).code is Code.WARNING


@pytest.fixture
def with_files(configure: Configure, linked: cfg.ConfigOpts) -> cfg.ConfigOpts:
    return configure("[local_files]\nenabled = true\n")


def test_local_files_that_are_off_are_fine(linked: cfg.ConfigOpts) -> None:
    assert nova.check_local_files(linked).code is Code.SUCCESS


def test_local_files_without_links_are_a_warning(configure: Configure) -> None:
    conf = configure("[local_files]\nenabled = true\n")
    assert nova.check_local_files(conf).code is Code.WARNING


def test_local_file_that_cannot_be_made_is_a_warning(with_files: cfg.ConfigOpts) -> None:
    assert text(nova.check_local_files(with_files)).startswith("0 of 0 local files")
    waiting = KnownFile(LocalFileState.WAITING, "a" * 64, reason="there is no room")
    linked = KnownFile(LocalFileState.LINKED, "a" * 64)
    path = known_files.path_in(with_files.state_path)
    known_files.save(path, KnownFiles("/base", {IMAGE: linked}))
    assert text(nova.check_local_files(with_files)).startswith("1 of 1 local files")
    known_files.save(path, KnownFiles("/base", {IMAGE: linked, OTHER: waiting}))
    result = nova.check_local_files(with_files)
    assert result.code is Code.WARNING
    assert f"{OTHER} is waiting: there is no room" in text(result)


def test_base_files_that_hosts_share_are_a_failure(
    with_files: cfg.ConfigOpts, monkeypatch: pytest.MonkeyPatch
) -> None:
    shared = mounts.Mount("nfs4", "/", {})
    monkeypatch.setattr(mounts, "find_mount", lambda path: shared)
    result = nova.check_local_files(with_files)
    assert result.code is Code.FAILURE
    assert "nfs4" in text(result)


def test_names_that_differ_are_a_warning(
    linked: cfg.ConfigOpts, nova_conf: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert nova.check_host_name(linked).code is Code.SUCCESS
    nova_conf.write_text(nova_conf.read_text().replace("compute1", "compute1.example.org"))
    result = nova.check_host_name(linked)
    assert result.code is Code.WARNING
    assert "Nova calls this host compute1.example.org" in text(result)
    # The schedulers know the node's name too.
    monkeypatch.setattr(socket, "gethostname", lambda: "compute1")
    assert nova.check_host_name(linked).code is Code.SUCCESS


def test_scheduler_that_names_weigher_and_filter(
    linked: cfg.ConfigOpts, nova_conf: pathlib.Path
) -> None:
    assert "does not name the weigher" in text(nova.check_scheduler(linked))
    nova_conf.write_text(SCHEDULER.format(weigher=nova.WEIGHER, filter=nova.FILTER))
    assert nova.check_scheduler(linked).code is Code.SUCCESS


@pytest.mark.parametrize(
    ("taken_out", "code"),
    [
        ("available_filters = {filter}\n", Code.FAILURE),
        ("available_filters = nova.scheduler.filters.all_filters\n", Code.WARNING),
        ("nova.scheduler.weights.all_weighers,", Code.WARNING),
    ],
)
def test_scheduler_that_lacks_a_part(
    linked: cfg.ConfigOpts, nova_conf: pathlib.Path, taken_out: str, code: Code
) -> None:
    without = SCHEDULER.replace(taken_out, "")
    assert without != SCHEDULER
    nova_conf.write_text(without.format(weigher=nova.WEIGHER, filter=nova.FILTER))
    assert nova.check_scheduler(linked).code is code


def test_machine_without_nova_is_fine(configure: Configure, tmp_path: pathlib.Path) -> None:
    conf = configure(f"[image_links]\nnova_config_file = {tmp_path}/none.conf\n")
    for check in (nova.check_image_links, nova.check_host_name, nova.check_scheduler):
        assert check(conf).code is Code.SUCCESS


def test_names_are_those_of_the_code() -> None:
    """Nova is not installed where most tests run, so the files are read instead of imported."""
    root = pathlib.Path(__file__).parents[3]
    for dotted in (nova.WEIGHER, nova.FILTER):
        module, _, name = dotted.rpartition(".")
        source = root / (module.replace(".", "/") + ".py")
        assert f"class {name}(" in source.read_text()
