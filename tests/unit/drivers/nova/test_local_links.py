"""Links that lead to local files: moved there and back, under Nova's lock, at one stroke."""

import contextlib
import os
import pathlib
import shutil

import pytest

from acstor.drivers.nova.image_links.base_names import base_name
from acstor.drivers.nova.image_links.known_links import KnownLinks
from acstor.drivers.nova.image_links.link_keeper import DesiredLinks, LinkKeeper, LinkReport
from acstor.drivers.nova.image_links.link_states import LinkEvent, LinkState
from acstor.drivers.nova.image_links.local_directory import local_path
from acstor.drivers.nova.image_links.planting import TO_LOCAL_FILE
from testbed.doubles.faulty_file_operations import EVERY_STEP, FaultyFileOperations, KilledError
from testbed.fixtures.nova_host import NOVA_USER, NovaHost
from tests.unit.drivers.nova.conftest import IMAGE, make_planter
from tests.unit.drivers.nova.test_planting import Holder, leftovers, not_used

pytestmark = pytest.mark.skipif(not shutil.which("qemu-img"), reason="qemu-utils is missing")


def add_local_file(nova: NovaHost) -> pathlib.Path:
    path = pathlib.Path(local_path(str(nova.base), IMAGE))
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"whole")
    return path


def mounted(mount: pathlib.Path) -> str:
    return f"{mount}/{IMAGE}.raw"


def reconcile(
    nova: NovaHost,
    mount: pathlib.Path,
    *,
    is_local: bool,
    is_registered: bool = True,
    is_attached: bool = True,
) -> LinkReport:
    images = frozenset({IMAGE})
    desired = DesiredLinks(
        images if is_registered else frozenset(),
        images if is_attached else frozenset(),
        images if is_attached else frozenset(),
        local=images if is_local else frozenset(),
    )
    keeper = LinkKeeper(KnownLinks(), 30.0)
    return keeper.reconcile(nova.settings, make_planter(nova, mount), desired)


def test_link_is_moved_to_the_local_file_and_back(nova: NovaHost, mount: pathlib.Path) -> None:
    planter = make_planter(nova, mount)
    planter.prepare()
    planter.plant(IMAGE)
    path = add_local_file(nova)
    outcome = planter.plant(IMAGE, to_local=True)
    assert (outcome.event, outcome.reason, outcome.is_local) == (
        LinkEvent.PLANT, TO_LOCAL_FILE, True,
    )  # fmt: skip
    assert os.readlink(nova.link(IMAGE)) == str(path)
    assert planter.local_images() == planter.planted_images() == {IMAGE}
    assert planter.plant(IMAGE).event is LinkEvent.PLANT
    assert os.readlink(nova.link(IMAGE)) == mounted(mount)
    assert planter.local_images() == frozenset()
    if os.geteuid() == 0:
        assert nova.owner_of(nova.link(IMAGE)) == NOVA_USER


def test_link_never_leads_to_a_local_file_that_is_not_there(
    nova: NovaHost, mount: pathlib.Path
) -> None:
    planter = make_planter(nova, mount)
    planter.prepare()
    planter.plant(IMAGE, to_local=True)
    assert os.readlink(nova.link(IMAGE)) == mounted(mount)
    path = add_local_file(nova)
    planter.plant(IMAGE, to_local=True)
    path.unlink()
    assert planter.plant(IMAGE, to_local=True).is_local is False
    assert os.readlink(nova.link(IMAGE)) == mounted(mount)


def test_link_is_not_moved_while_nova_holds_its_lock(nova: NovaHost, mount: pathlib.Path) -> None:
    planter = make_planter(nova, mount)
    planter.prepare()
    planter.plant(IMAGE)
    add_local_file(nova)
    with Holder(nova.instances / "locks" / f"nova-{base_name(IMAGE)}"):
        outcome = planter.plant(IMAGE, to_local=True)
    assert (outcome.event, outcome.is_local) == (LinkEvent.PLANT, False)
    assert "moved later" in outcome.reason
    assert os.readlink(nova.link(IMAGE)) == mounted(mount)


@pytest.mark.parametrize("is_after", [False, True])
def test_kill_at_any_step_of_a_move_leaves_a_link(
    nova: NovaHost, mount: pathlib.Path, is_after: bool
) -> None:
    make_planter(nova, mount).prepare()
    make_planter(nova, mount).plant(IMAGE)
    path = add_local_file(nova)
    for step in [*range(12), EVERY_STEP]:
        for to_local in (True, False):
            faulty = FaultyFileOperations(step, is_after=is_after)
            with contextlib.suppress(KilledError):
                make_planter(nova, mount, faulty).plant(IMAGE, to_local=to_local)
            assert os.readlink(nova.link(IMAGE)) in (str(path), mounted(mount))
            planter = make_planter(nova, mount)
            planter.prepare()
            planter.plant(IMAGE, to_local=to_local)
            assert os.readlink(nova.link(IMAGE)) == (str(path) if to_local else mounted(mount))
            assert leftovers(nova) == []


def test_removal_knows_a_link_to_a_local_file(nova: NovaHost, mount: pathlib.Path) -> None:
    planter = make_planter(nova, mount)
    planter.prepare()
    add_local_file(nova)
    planter.plant(IMAGE, to_local=True)
    assert planter.remove(IMAGE, not_used).event is LinkEvent.REMOVE
    assert not os.path.lexists(nova.link(IMAGE))


def test_pass_moves_links_as_desired_and_tells(nova: NovaHost, mount: pathlib.Path) -> None:
    add_local_file(nova)
    report = reconcile(nova, mount, is_local=True)
    assert report.local == report.needed == {IMAGE}
    assert report.known.links[IMAGE].state is LinkState.PLANTED
    assert report.known.links[IMAGE].reason == TO_LOCAL_FILE
    report = reconcile(nova, mount, is_local=False)
    assert report.local == frozenset()
    assert report.needed == {IMAGE}


def test_link_stays_at_the_local_file_while_the_mount_does_not_offer_the_image(
    nova: NovaHost, mount: pathlib.Path
) -> None:
    add_local_file(nova)
    reconcile(nova, mount, is_local=True)
    assert reconcile(nova, mount, is_local=False, is_attached=False).local == {IMAGE}


def test_withdrawn_image_in_use_is_moved_back(nova: NovaHost, mount: pathlib.Path) -> None:
    add_local_file(nova)
    reconcile(nova, mount, is_local=True)
    nova.add_overlay(IMAGE)
    report = reconcile(nova, mount, is_local=False, is_registered=False)
    assert report.local == frozenset()
    assert report.used == {IMAGE}
    assert report.known.links[IMAGE].state is LinkState.KEPT
    assert os.readlink(nova.link(IMAGE)) == mounted(mount)


def test_withdrawn_image_that_is_not_used_loses_its_link(
    nova: NovaHost, mount: pathlib.Path
) -> None:
    add_local_file(nova)
    reconcile(nova, mount, is_local=True)
    report = reconcile(nova, mount, is_local=False, is_registered=False)
    assert (report.local, report.needed) == (frozenset(), frozenset())
    assert not os.path.lexists(nova.link(IMAGE))
