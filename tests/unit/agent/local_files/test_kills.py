"""Kills and failures at every step: what is left is gone on with, no half file is ever linked."""

import itertools
import pathlib

import pytest

from acstor.drivers.nova.image_links.local_directory import file_name
from testbed.doubles.faulty_file_operations import KilledError
from testbed.doubles.local_files.faulty_file_maker import NO_SPACE, FaultyFileMaker
from tests.unit.agent.conftest import Clock
from tests.unit.agent.local_files.conftest import IMAGE, LocalFilesHost
from tests.unit.agent.local_files.test_reconciler import PINNED


def assert_no_half_file_is_linked(host: LocalFilesHost) -> None:
    for image_id in host.files.linkable() | host.links.leading:
        assert host.maker.files[file_name(image_id)] == IMAGE.disk


def is_killed(host: LocalFilesHost) -> bool:
    try:
        host.settle(**PINNED)
        host.settle()  # the preload is stopped
    except KilledError:
        return True
    return False


@pytest.mark.parametrize("is_after", [False, True])
def test_kill_at_any_step_is_gone_on_with(tmp_path: pathlib.Path, is_after: bool) -> None:
    for step in itertools.count():
        host = LocalFilesHost(tmp_path / str(step), Clock())
        host.start(FaultyFileMaker(host.maker, step, is_after=is_after))
        if not is_killed(host):
            break
        assert_no_half_file_is_linked(host)
        host.start()
        host.reconcile(**PINNED)
        assert_no_half_file_is_linked(host)
        host.clock.now += 3600
        assert host.settle(**PINNED) == {}
        assert (host.state(), host.content()) == ("linked", IMAGE.disk)
        assert set(host.maker.files) == {file_name(IMAGE.id)}
    assert step > 5, "there are more steps"


def test_full_disk_at_any_step_is_waited_for(tmp_path: pathlib.Path) -> None:
    for step in itertools.count():
        host = LocalFilesHost(tmp_path / str(step), Clock())
        faulty = FaultyFileMaker(host.maker, step, number=NO_SPACE)
        host.start(faulty)
        host.settle(**PINNED)
        assert_no_half_file_is_linked(host)
        for _ in range(2):
            host.clock.now += 3600
            host.settle(**PINNED)
        assert (host.state(), host.content()) == ("linked", IMAGE.disk)
        if len(faulty.done) <= step:
            break
