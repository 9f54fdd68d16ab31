"""Reconcile passes over all links: the state of each image's link, with its reason."""

import errno
import os
import pathlib
import shutil
import uuid

import pytest

from acstor.drivers.nova.image_links import link_keeper, overlay_scan
from acstor.drivers.nova.image_links.base_names import base_name
from acstor.drivers.nova.image_links.file_operations import FileOperations
from acstor.drivers.nova.image_links.known_links import KnownLink, KnownLinks
from acstor.drivers.nova.image_links.link_keeper import IN_USE, DesiredLinks, LinkKeeper, LinkReport
from acstor.drivers.nova.image_links.link_states import LinkState
from acstor.drivers.nova.image_links.overlay_scan import OverlayScan
from testbed.doubles.faulty_file_operations import NO_SPACE, FaultyFileOperations
from testbed.fixtures.nova_host import NovaHost
from tests.unit.agent.conftest import Clock
from tests.unit.drivers.nova.conftest import IMAGE, OTHER, make_planter
from tests.unit.drivers.nova.test_planting import Holder

pytestmark = pytest.mark.skipif(not shutil.which("qemu-img"), reason="qemu-utils is missing")

SCAN_INTERVAL = 30.0


class Looker:
    """A keeper whose reconcile passes the test makes."""

    def __init__(self, nova: NovaHost, mount: pathlib.Path) -> None:
        self.nova = nova
        self.mount = mount
        self.clock = Clock()
        self.keeper = LinkKeeper(KnownLinks(), SCAN_INTERVAL, self.clock)
        self.report = LinkReport()

    def reconcile(
        self,
        registered: set[str] | None,
        ready: set[str] | None = None,
        *,
        attached: set[str] | None = None,
        refusal: str | None = None,
        closed: set[str] | None = None,
        newest_round: int = 0,
        epoch: str = "",
    ) -> dict[str, LinkState]:
        ready = (registered or set()) if ready is None else ready
        desired = DesiredLinks(
            None if registered is None else frozenset(registered),
            frozenset(ready if attached is None else attached),
            frozenset(ready),
            refusal,
            frozenset(closed or ()),
            newest_round,
            epoch,
        )
        planter = make_planter(self.nova, self.mount)
        self.report = self.keeper.reconcile(self.nova.settings, planter, desired)
        return {image_id: link.state for image_id, link in self.report.known.links.items()}

    def reason(self, image_id: str = IMAGE) -> str:
        return self.report.known.links[image_id].reason

    def restart(self) -> None:
        self.keeper = LinkKeeper(self.report.known, SCAN_INTERVAL, self.clock)


@pytest.fixture
def looker(nova: NovaHost, mount: pathlib.Path) -> Looker:
    return Looker(nova, mount)


def test_link_is_planted_only_when_head_and_tail_are_pinned(looker: Looker) -> None:
    assert looker.reconcile({IMAGE}, set(), attached=set()) == {IMAGE: LinkState.WAITING}
    assert "does not offer" in looker.reason()
    assert looker.reconcile({IMAGE}, set(), attached={IMAGE}) == {IMAGE: LinkState.WAITING}
    assert "not pinned" in looker.reason()
    assert not os.path.lexists(looker.nova.link(IMAGE))
    assert looker.reconcile({IMAGE}) == {IMAGE: LinkState.PLANTED}
    assert looker.nova.link(IMAGE).is_symlink()
    assert looker.report.problems == {}


def test_link_stays_while_a_new_data_plane_process_has_not_pinned_yet(looker: Looker) -> None:
    looker.reconcile({IMAGE})
    assert looker.reconcile({IMAGE}, set()) == {IMAGE: LinkState.PLANTED}


def test_withdrawn_image_without_instances_loses_its_link(looker: Looker) -> None:
    looker.reconcile({IMAGE, OTHER})
    assert looker.reconcile({OTHER}) == {OTHER: LinkState.PLANTED}
    assert not os.path.lexists(looker.nova.link(IMAGE))
    assert looker.report.needed == {OTHER}


def test_withdrawn_image_in_use_keeps_its_link(looker: Looker) -> None:
    """Hazard 6."""
    looker.reconcile({IMAGE})
    looker.nova.add_overlay(IMAGE)  # after the look at the overlays that is remembered
    assert looker.reconcile(set(), {IMAGE}) == {IMAGE: LinkState.KEPT}
    assert looker.reason() == IN_USE
    assert looker.report.needed == {IMAGE}
    looker.clock.now += SCAN_INTERVAL
    looker.reconcile(set(), {IMAGE})
    assert looker.report.used == {IMAGE}
    looker.nova.remove_instances()
    looker.clock.now += SCAN_INTERVAL
    assert looker.reconcile(set(), {IMAGE}) == {}
    assert looker.report.needed == frozenset()


def test_link_of_a_withdrawn_image_in_use_is_planted_again(looker: Looker) -> None:
    """A shelved or stopped instance must start whatever Nova's cache manager did."""
    looker.reconcile({IMAGE})
    looker.nova.add_overlay(IMAGE)
    looker.clock.now += SCAN_INTERVAL
    looker.nova.link(IMAGE).unlink()
    assert looker.reconcile(set(), {IMAGE}) == {IMAGE: LinkState.KEPT}
    assert looker.nova.link(IMAGE).is_symlink()


def test_use_is_known_by_ids_of_former_looks(looker: Looker) -> None:
    """An instance that moves here after its image was withdrawn: nobody else knows its id."""
    looker.reconcile({IMAGE})
    looker.reconcile(set())
    looker.restart()
    looker.nova.add_overlay(IMAGE)
    looker.reconcile(set())
    assert looker.report.used == {IMAGE}


def test_unknown_registration_changes_nothing(looker: Looker) -> None:
    looker.reconcile({IMAGE})
    assert looker.reconcile(None) == {IMAGE: LinkState.PLANTED}
    looker.nova.link(IMAGE).unlink()
    looker.restart()
    assert looker.reconcile(None) == {IMAGE: LinkState.WAITING}
    assert not os.path.lexists(looker.nova.link(IMAGE))


def test_refusal_removes_links_that_nobody_uses(looker: Looker) -> None:
    looker.reconcile({IMAGE, OTHER})
    looker.nova.add_overlay(OTHER)
    states = looker.reconcile({IMAGE, OTHER}, refusal="not wanted")
    assert states == {IMAGE: LinkState.REFUSED, OTHER: LinkState.KEPT}
    assert looker.reason(IMAGE) == "not wanted"
    assert not os.path.lexists(looker.nova.link(IMAGE))
    assert looker.reconcile({IMAGE, OTHER})[IMAGE] is LinkState.PLANTED


def test_nova_that_changes_its_backend_loses_its_links(looker: Looker) -> None:
    """Hazard 10."""
    looker.reconcile({IMAGE})
    looker.nova.configure(libvirt={"images_type": "raw"})
    assert looker.reconcile({IMAGE}) == {IMAGE: LinkState.REFUSED}
    assert "images_type" in looker.reason()
    assert not os.path.lexists(looker.nova.link(IMAGE))


def test_refused_host_gets_no_directories(looker: Looker) -> None:
    looker.reconcile({IMAGE}, refusal="not wanted")
    assert os.listdir(looker.nova.instances) == []


def test_novas_own_file_stays_and_needs_no_image(looker: Looker) -> None:
    looker.reconcile(set())
    looker.nova.base.mkdir(exist_ok=True)
    looker.nova.link(IMAGE).write_bytes(bytes(512))
    looker.nova.add_overlay(IMAGE)
    looker.clock.now += SCAN_INTERVAL
    assert looker.reconcile({IMAGE}) == {IMAGE: LinkState.NOVA_DOWNLOADED}
    assert looker.report.used == frozenset()
    assert looker.report.needed == frozenset()
    assert looker.reconcile(set()) == {}
    assert looker.nova.link(IMAGE).is_file()


def test_lock_of_nova_is_tried_again_at_the_next_look(looker: Looker) -> None:
    looker.reconcile(set())
    with Holder(looker.nova.instances / "locks" / f"nova-{base_name(IMAGE)}"):
        assert looker.reconcile({IMAGE}) == {IMAGE: LinkState.BUSY}
    assert looker.reconcile({IMAGE}) == {IMAGE: LinkState.PLANTED}
    with Holder(looker.nova.instances / "locks" / f"nova-{base_name(IMAGE)}"):
        assert looker.reconcile(set()) == {IMAGE: LinkState.BUSY}
        assert looker.report.needed == {IMAGE}
    assert looker.reconcile(set()) == {}


def test_link_of_somebody_else_is_a_problem(looker: Looker) -> None:
    looker.reconcile(set())
    looker.nova.link(IMAGE).symlink_to("/cache/image")
    assert looker.reconcile({IMAGE, OTHER}) == {IMAGE: LinkState.FOREIGN, OTHER: LinkState.PLANTED}
    assert "/cache/image" in looker.report.problems[f"link of image {IMAGE}"]


def test_problem_of_one_link_leaves_the_others(
    looker: Looker, monkeypatch: pytest.MonkeyPatch
) -> None:
    looker.reconcile(set())
    files = FaultyFileOperations(1, number=NO_SPACE)
    planter = make_planter(looker.nova, looker.mount, files)
    images = frozenset({IMAGE, OTHER})
    report = looker.keeper.reconcile(
        looker.nova.settings, planter, DesiredLinks(images, images, images)
    )
    assert list(report.problems) == [f"link of image {IMAGE}"]
    assert report.known.links[OTHER].state is LinkState.PLANTED
    assert looker.reconcile({IMAGE, OTHER})[IMAGE] is LinkState.PLANTED


def test_incomplete_scan_removes_nothing(looker: Looker, monkeypatch: pytest.MonkeyPatch) -> None:
    looker.reconcile({IMAGE})
    blind = OverlayScan(frozenset(), problem="not readable")
    monkeypatch.setattr(link_keeper, "scan", lambda settings: blind)
    looker.clock.now += SCAN_INTERVAL
    assert looker.reconcile(set()) == {IMAGE: LinkState.KEPT}
    assert "not readable" in looker.reason()
    assert not looker.report.is_use_known
    assert "not readable" in looker.report.problems["overlays"]
    monkeypatch.undo()
    assert looker.reconcile(set()) == {}


def test_nova_that_calls_base_files_otherwise_is_a_problem_until_nobody_uses_them(
    looker: Looker,
) -> None:
    """Its links are planted and never used: nothing else would say so."""
    looker.nova.add_overlay(IMAGE, backing=f"{looker.nova.base}/{'a' * 64}")
    assert looker.reconcile({IMAGE}) == {IMAGE: LinkState.PLANTED}
    assert list(looker.report.problems) == ["names of base files"]
    assert "a" * 64 in looker.report.problems["names of base files"]
    assert looker.report.is_use_known
    looker.nova.remove_instances()
    looker.clock.now += SCAN_INTERVAL
    looker.reconcile({IMAGE})
    assert looker.report.problems == {}


def test_overlays_are_not_looked_at_at_each_look(
    looker: Looker, monkeypatch: pytest.MonkeyPatch
) -> None:
    scans = []
    real = overlay_scan.scan
    monkeypatch.setattr(
        link_keeper,
        "scan",
        lambda settings: scans.append(True) or real(settings),  # type: ignore[func-returns-value]
    )
    looker.reconcile({IMAGE})
    looker.reconcile({IMAGE})
    assert len(scans) == 1
    looker.clock.now += SCAN_INTERVAL
    looker.reconcile({IMAGE})
    assert len(scans) == 2
    looker.reconcile(set())
    assert len(scans) == 3, "before a link is removed, in any case"


def test_hundred_images_are_looked_at_quickly(looker: Looker) -> None:
    images = {str(uuid.UUID(int=number)) for number in range(100)}
    looker.reconcile(images)
    files = FaultyFileOperations(0, number=NO_SPACE)
    planter = make_planter(looker.nova, looker.mount, files)
    ids = frozenset(images)
    report = looker.keeper.reconcile(looker.nova.settings, planter, DesiredLinks(ids, ids, ids))
    assert files.done == [], "a look that finds all in order changes nothing"
    assert set(report.known.links.values()) == {KnownLink(LinkState.PLANTED)}


def test_new_round_is_done_by_a_fresh_look_at_the_overlays(looker: Looker) -> None:
    looker.reconcile({IMAGE})
    looker.nova.add_overlay(IMAGE, "instance-1")
    looker.reconcile({IMAGE})
    assert looker.report.users == {}, "looked at a moment ago"
    looker.reconcile({IMAGE}, newest_round=4)
    assert looker.report.users == {IMAGE: ("instance-1",)}
    assert looker.report.round == 4
    looker.reconcile(None)
    assert looker.report.round == 4, "the origin is away"


def test_closed_image_loses_its_link_where_nothing_uses_it(looker: Looker) -> None:
    looker.reconcile({IMAGE, OTHER})
    looker.nova.add_overlay(OTHER, "instance-1")
    both = {IMAGE, OTHER}
    states = looker.reconcile(set(), both, closed=both, newest_round=2)
    assert states == {OTHER: LinkState.KEPT}
    assert not looker.nova.link(IMAGE).is_symlink()
    assert looker.nova.link(OTHER).is_symlink()
    assert (looker.report.round, set(looker.report.users)) == (2, {OTHER})
    looker.reconcile(both, newest_round=3)
    assert looker.nova.link(IMAGE).is_symlink(), "opened again"


def test_closing_counts_as_a_use_while_nova_holds_the_lock(looker: Looker) -> None:
    looker.reconcile({IMAGE})
    with Holder(looker.nova.instances / "locks" / f"nova-{base_name(IMAGE)}"):
        looker.reconcile(set(), {IMAGE}, closed={IMAGE}, newest_round=2)
        assert looker.nova.link(IMAGE).is_symlink()
        assert looker.report.round == 2
        assert looker.report.users == {IMAGE: ()}
        looker.nova.add_overlay(IMAGE, "instance-1")  # what Nova held it for
    looker.reconcile(set(), {IMAGE}, closed={IMAGE}, newest_round=2)
    assert looker.report.users == {IMAGE: ("instance-1",)}, "seen before it is answered"
    assert looker.report.round == 2


def test_round_is_not_done_by_a_look_that_missed_something(
    looker: Looker, monkeypatch: pytest.MonkeyPatch
) -> None:
    looker.reconcile({IMAGE})
    blind = OverlayScan(frozenset(), problem="not readable")
    monkeypatch.setattr(link_keeper, "scan", lambda settings: blind)
    looker.reconcile({IMAGE}, newest_round=2)
    assert looker.report.round == 0


def test_closed_image_loses_its_link_to_any_mount_point(looker: Looker) -> None:
    """[dataplane] mount_point was changed, or a host that shares instances_path planted it."""
    looker.reconcile({IMAGE})
    looker.mount = looker.mount.with_name("elsewhere")
    looker.reconcile(set(), closed={IMAGE}, newest_round=2)
    assert not os.path.lexists(looker.nova.link(IMAGE))
    assert (looker.report.round, dict(looker.report.users)) == (2, {})


def test_link_to_another_mount_point_stays_while_it_is_in_use(looker: Looker) -> None:
    looker.reconcile({IMAGE})
    looker.mount = looker.mount.with_name("elsewhere")
    looker.nova.add_overlay(IMAGE, "instance-1")
    looker.reconcile(set(), closed={IMAGE}, newest_round=2)
    assert looker.nova.link(IMAGE).is_symlink()
    assert (looker.report.round, dict(looker.report.users)) == (2, {IMAGE: ("instance-1",)})


def test_link_that_cannot_be_removed_keeps_its_image_and_no_other(
    looker: Looker, monkeypatch: pytest.MonkeyPatch
) -> None:
    looker.reconcile({IMAGE, OTHER})
    unlink = FileOperations.unlink

    def refuse(files: FileOperations, path: str) -> None:
        if path == str(looker.nova.link(IMAGE)):
            raise PermissionError(errno.EPERM, "immutable", path)
        unlink(files, path)

    with monkeypatch.context() as patched:
        patched.setattr(FileOperations, "unlink", refuse)
        for newest_round in (2, 3):
            looker.reconcile(set(), closed={IMAGE, OTHER}, newest_round=newest_round)
            assert (looker.report.round, set(looker.report.users)) == (newest_round, {IMAGE})
    assert not os.path.lexists(looker.nova.link(OTHER))
    looker.reconcile(set(), closed={IMAGE}, newest_round=4)
    assert (looker.report.round, dict(looker.report.users)) == (4, {})


def test_round_that_a_backup_undid_is_forgotten(
    looker: Looker, monkeypatch: pytest.MonkeyPatch
) -> None:
    looker.reconcile({IMAGE}, newest_round=50, epoch="former")
    assert (looker.report.round, looker.report.epoch) == (50, "former")
    blind = OverlayScan(frozenset(), problem="not readable")
    monkeypatch.setattr(link_keeper, "scan", lambda settings: blind)
    looker.reconcile({IMAGE}, newest_round=40, epoch="former")
    assert looker.report.round == 40
    looker.reconcile({IMAGE}, newest_round=41, epoch="restored")
    assert (looker.report.round, looker.report.epoch) == (0, "restored")
    monkeypatch.undo()
    looker.reconcile({IMAGE}, newest_round=41, epoch="restored")
    assert (looker.report.round, looker.report.epoch) == (41, "restored")
