"""Promotions with bad luck: what an attack on them has shown, each as it went wrong."""

import dataclasses
import random
import uuid

import pytest

from acstor import exception
from acstor.origin.replicated import ref_copy
from acstor.origin.replicated.member_records import MEMBER_REF
from acstor.origin.replicated.membership import Membership
from acstor.origin.replicated.promotion.new_home import HomeState
from acstor.origin.replicated.states import MemberEvent
from acstor.repository import disk_manifest, layout
from acstor.repository.copying.object_check import check_object
from acstor.repository.gc.compaction import Compactor
from acstor.repository.gc.garbage import Collector
from acstor.repository.promotion.surviving_objects import SurvivingObjects
from acstor.repository.repository import Repository
from acstor.repository.upgrade import note_format
from acstor.repository.volumes.log_range import EPOCH_MAX
from acstor.repository.volumes.record import VolumeRecord
from acstor.repository.volumes.store import NewVolume, VolumeStore
from testbed.doubles.virtual_time import VirtualTime
from testbed.fixtures.usage_records import write_usage
from tests.unit.repository.copying.cloud import FOLDED, volume_text
from tests.unit.repository.images import disk, image_id, read_back, register
from tests.unit.repository.promotion.members import NOW, Members, Store, lost_names
from tests.unit.repository.test_compaction import KEPT, LIMITS, sparse
from tests.unit.repository.test_compressed_images import put_golden
from tests.unit.repository.volumes.hosts import CHUNK_SIZE, Owner

OTHER, CLONE = (str(uuid.UUID(int=number)) for number in (500, 501))
ABSENT = f"packs/ff/{'f' * 64}"


def home_volumes(members: Members) -> VolumeStore:
    return VolumeStore(Repository.open(members.stores["home"]), wait=lambda seconds: None)


def owner_of(members: Members, volume_id: str, host: str = "z") -> Owner:
    store = home_volumes(members)
    store.allow_host(volume_id, host)
    owner = Owner(store, members.stores["home"], volume_id, host, random.Random(77))
    owner.acquire()
    return owner


def remove_packs(members: Members, *names: str) -> None:
    for name in names:
        for key in list(members.stores[name].list("packs/")):
            members.stores[name].delete(key)


def images_kept(members: Members) -> list[str]:
    return list(Repository.open(members.stores["near"]).list_image_ids())


def require_readable(members: Members) -> None:
    """Each image that is kept can be read, from the new home alone, too."""
    for origin in (members.open("near", "far"), members.stores["near"]):
        repository = Repository.open(origin)
        for image in repository.list_image_ids():
            assert read_back(repository, uuid.UUID(image).int - 1)


@pytest.mark.parametrize("with_manifest", [True, False])
def test_clone_whose_logs_are_lost_is_not_taken_for_whole(
    members: Members, with_manifest: bool
) -> None:
    home_volumes(members).create(NewVolume(OTHER, CHUNK_SIZE))
    owner = owner_of(members, OTHER)
    owner.write("alpha ")
    if with_manifest:
        owner.fold()
        owner.write("beta ")
    owner.release()
    home_volumes(members).clone(NewVolume(CLONE, CHUNK_SIZE), OTHER)
    members.clock.now += 3601
    members.lead()
    members.lead()
    survey = members.promotion("near", "far").survey()
    assert layout.volume_ref(CLONE) in lost_names(survey)


def test_volume_of_an_image_that_was_never_folded_is_lost(members: Members) -> None:
    repository = Repository.open(members.stores["home"])
    manifest = repository.get_image(image_id(1)).record.manifest
    home_volumes(members).create_from_manifest(NewVolume(OTHER, 1 << 20), manifest)
    owner = owner_of(members, OTHER)
    owner.write("data ")
    owner.release()
    members.lead()
    survey = members.promotion("near", "far").survey()
    assert layout.volume_ref(OTHER) in lost_names(survey)


def test_volume_that_was_just_folded_is_there_as_it_was_before(members: Members) -> None:
    """No change log names what a host folds: the copy of its record waits for the objects."""
    keeping = members.keeping(members.open("home", "near", "far"))
    keeping.run()
    members.clock.now += 61
    keeping.run()
    owner = owner_of(members, FOLDED, "b")
    owner.write("fresh ")
    owner.fold()
    owner.release()
    members.clock.now += 61
    status = keeping.run()
    assert status.members["near"].refs_behind
    going_on = members.stores
    members.stores = {name: store.copied() for name, store in going_on.items()}
    members.promote("near", "far")
    assert volume_text(members.open("near", "far"), FOLDED) == "five six "
    members.stores = going_on
    for _ in range(6):
        members.clock.now += 61
        status = keeping.run()
    assert not status.members["near"].refs_behind, "listings are compared soon"
    members.promote("near", "far")
    assert volume_text(members.open("near", "far"), FOLDED) == "five six fresh "


def test_ref_whose_manifest_is_nowhere_is_copied(members: Members) -> None:
    owner = owner_of(members, FOLDED, "b")
    owner.write("fresh ")
    owner.fold()
    key = layout.manifest_key(str(home_volumes(members).get(FOLDED).record.manifest))
    members.stores["home"].delete(key)
    members.lead()
    status = members.keeping(members.open("home", "near", "far")).run()
    assert not status.members["near"].refs_behind


@pytest.mark.parametrize("begun", [True, False])
def test_there_is_no_second_home(members: Members, begun: bool) -> None:
    if begun:
        members.promotion("near", "far").home.begin()
    else:
        members.promote("near")
    second = members.promotion("far", "near")
    for step in (second.survey, second.home.begin):
        with pytest.raises(exception.ConflictError, match="promotion of near was begun"):
            step()


def test_slower_process_undoes_nothing(members: Members) -> None:
    slow, fast = members.promotion("near", "far"), members.promotion("near", "far")
    survey = slow.survey()
    begin = slow.home.begin

    def overtaken() -> None:
        begin()
        fast.run(fast.survey(), reverts_volumes=True)
        repository = Repository.open(members.open("near", "far"))
        register(repository, 7, disk(9, 9))
        VolumeStore(repository).create(NewVolume(OTHER, CHUNK_SIZE))

    slow.home.begin = overtaken  # type: ignore[method-assign] # the other process, at the worst time
    with pytest.raises(exception.ConflictError, match="another process"):
        slow.run(survey, reverts_volumes=True)
    assert image_id(7) in images_kept(members)
    assert VolumeStore(Repository.open(members.stores["near"])).get(OTHER)


def test_member_that_was_given_up_does_not_count(members: Members) -> None:
    Membership("home", members.stores).change("far", MemberEvent.FAIL)
    members.lead()
    remove_packs(members, "near")
    members.promote("near", "far")
    assert images_kept(members) == []


def test_store_that_is_no_member_does_not_count(members: Members) -> None:
    ref = members.stores["far"].get_ref(MEMBER_REF)
    assert ref is not None
    members.stores["far"].swap_ref(MEMBER_REF, ref.token, None)
    remove_packs(members, "near")
    members.promote("near", "far")
    assert images_kept(members) == []


def test_store_of_the_former_home_does_not_count(members: Members) -> None:
    home = members.stores["home"]
    for name in list(home.list_refs()):
        ref = home.get_ref(name)
        assert ref is not None
        home.swap_ref(name, ref.token, None)
    remove_packs(members, "near", "far")
    members.promote("near", "far", "home")
    assert images_kept(members) == []


def test_member_from_a_backup_does_not_follow(members: Members) -> None:
    former = members.stores["far"].copied()
    for _ in range(3):
        Membership("home", members.stores).advance("far")
    members.lead()
    members.stores["far"] = former
    members.promote("near", "far")
    with pytest.raises(exception.UnavailableError):
        members.open("near", "far").get(ABSENT, 1 << 20)


def test_repeated_command_lets_no_backup_in(members: Members) -> None:
    members.promote("near", "far")
    former = members.stores["far"].copied()
    for _ in range(3):
        stores = {name: members.stores[name] for name in ("near", "far")}
        Membership("near", stores).advance("far")
    members.stores["far"] = former
    members.promotion("near", "far").follow()
    with pytest.raises(exception.UnavailableError):
        members.open("near", "far").get(ABSENT, 1 << 20)


@pytest.mark.parametrize("which", ["near", "far"])
def test_manifest_that_one_member_has_rotten_is_taken_from_another(
    members: Members, which: str
) -> None:
    key = layout.manifest_key(str(home_volumes(members).get(FOLDED).record.manifest))
    store = members.stores[which]
    content = store.get(key, 1 << 20)
    store.delete(key)
    store.put_if_absent(key, [content[:-1] + bytes([content[-1] ^ 1])])
    members.promote("near", "far")
    assert members.stores["near"].get(key, 1 << 20) == content
    assert volume_text(members.stores["near"], FOLDED) == "five six "


def test_home_has_all_that_is_kept_before_anybody_opens_it(members: Members) -> None:
    """As for Cinder, which opens the home alone."""
    near = members.stores["near"]
    for key in [*near.list("packs/"), *near.list("manifests/")]:
        near.delete(key)
    members.promote("near", "far")
    assert len(images_kept(members)) == 2
    require_readable(members)
    store = VolumeStore(Repository.open(near), wait=lambda seconds: None)
    store.clone(NewVolume(CLONE, CHUNK_SIZE), FOLDED)


class CompactedMembers(Members):
    """Members of a compacted repository, one of them without the lists of what was moved."""

    def __init__(self) -> None:
        self.clock = VirtualTime()
        self.stores = {name: Store() for name in ("home", "near", "far")}
        sparse(self.stores["home"])
        note_format(self.stores["home"])
        Membership("home", self.stores).create()
        self.lead()
        self.lead()
        home = Repository.open(self.open("home", "near", "far"))
        assert Compactor(home, "a", LIMITS).compact().moved > 0
        self.clock.now += 3601
        self.lead()
        self.lead()
        self.collect(home)
        lists = list(self.stores["near"].list("moved/"))
        assert lists
        for key in lists:
            self.stores["near"].delete(key)

    def collect(self, repository: Repository) -> None:
        for _ in range(3):
            Collector(repository, "w", 0.0, clock=lambda: 1.0).collect()


def test_lists_of_what_was_moved_come_along() -> None:
    members = CompactedMembers()
    survey = members.promote("near", "far")
    assert survey.count(layout.IMAGE_PREFIX) == 1
    for _ in range(3):
        members.clock.now += 3601
        members.lead("near", "far")
    repository = Repository.open(members.open("near", "far"))
    members.collect(repository)
    assert read_back(repository, 1) == disk(*KEPT)


def test_copies_go_when_a_killed_promotion_is_repeated(members: Members) -> None:
    promotion = members.promotion("near", "far")
    survey = promotion.survey()
    members.stores["near"].delete(layout.FORMAT_KEY)
    finish = promotion.home.finish

    def killed() -> None:
        finish()
        raise KeyboardInterrupt

    promotion.home.finish = killed  # type: ignore[method-assign,assignment] # after its effect
    with pytest.raises(KeyboardInterrupt):
        promotion.run(survey, reverts_volumes=True)
    again = members.promotion("near", "far")
    assert again.home.state() is HomeState.HOME
    again.follow()
    assert len(list(members.stores["near"].list_refs(ref_copy.COPIES_PREFIX))) == 1
    assert len(images_kept(members)) == 2


def test_record_that_cannot_go_on_is_lost_and_stops_nothing(members: Members) -> None:
    home = members.stores["home"]
    ref = home.get_ref(layout.volume_ref(FOLDED))
    assert ref is not None
    record = dataclasses.replace(VolumeRecord.parse(ref.content, FOLDED), epoch=EPOCH_MAX - 10)
    home.swap_ref(layout.volume_ref(FOLDED), ref.token, record.encode())
    members.lead()
    survey = members.promote("near", "far")
    assert layout.volume_ref(FOLDED) in lost_names(survey)
    assert len(images_kept(members)) == 2


class ReadOnlyStore(Store):
    """A store that can be read only."""

    def swap_ref(self, name: str, expected: str | None, content: bytes | None) -> str | None:
        raise exception.UnavailableError("read-only file system")


def test_member_that_cannot_be_written_follows_later(members: Members) -> None:
    usual = members.stores["far"]
    far = ReadOnlyStore()
    far._objects.update(usual._objects)
    far._refs.update(usual._refs)
    members.stores["far"] = far
    members.promote("near", "far")
    members.stores["far"] = usual
    record = members.promotion("near", "far").follow()
    assert members.promotion("near", "far").home.strangers(record) == ()


def test_what_is_left_of_withdrawn_images_is_kept(members: Members) -> None:
    home = members.stores["home"]
    repository = Repository.open(home)
    manifests = {}
    for number in (5, 6):
        register(repository, number, disk(10 * number, 10 * number + 1))
        manifests[repository.get_image(image_id(number)).record.manifest] = image_id(number)
    write_usage(home, "h9", manifests=manifests)
    needed = repository.load_manifest(next(iter(manifests))).references().values()
    for number in (5, 6):
        repository.remove_image(image_id(number))
    members.clock.now += 3601
    members.lead()
    members.lead()
    for name in ("near", "far"):
        for key in needed:
            members.stores[name].delete(key)
    assert "usage/h9" in members.promotion("near", "far").survey().refs


def test_second_home_that_is_lost_at_once_is_followed(members: Members) -> None:
    members.promote("near", "far")
    with pytest.raises(exception.AcstorError):
        members.promotion("far", "near").survey()
    members.promotion("far").home.begin()


def test_code_tells_one_loss_from_another(members: Members) -> None:
    first = members.promotion("near", "far").survey()
    assert members.promotion("near", "far").survey().code == first.code
    assert first.as_of == NOW
    assert members.promotion("near").survey().code != first.code
    members.stores["near"].swap_ref("ref-copies/" + "0" * 64, None, b"damaged")
    assert members.promotion("near", "far").survey().code != first.code


def test_volume_of_an_image_that_was_removed_is_not_shown_as_that(members: Members) -> None:
    repository = Repository.open(members.stores["home"])
    register(repository, 5, disk(50, 51))
    manifest = repository.get_image(image_id(5)).record.manifest
    home_volumes(members).create_from_manifest(NewVolume(OTHER, 1 << 20), manifest)
    owner = owner_of(members, OTHER)
    owner.write("data ")
    owner.release()
    repository.remove_image(image_id(5))
    members.clock.now += 3601
    members.lead()
    members.lead()
    assert layout.volume_ref(OTHER) in lost_names(members.promotion("near", "far").survey())


def test_folded_source_of_a_clone_falls_back_to_its_fold(members: Members) -> None:
    home_volumes(members).clone(NewVolume(CLONE, CHUNK_SIZE), FOLDED)
    owner = owner_of(members, FOLDED, "b")
    owner.write("fresh ")
    owner.release()
    members.clock.now += 3601
    members.lead()
    members.lead()
    survey = members.promotion("near", "far").survey()
    assert FOLDED in survey.reverted
    assert layout.volume_ref(CLONE) in survey.refs


@pytest.mark.parametrize("is_begun", [False, True])
def test_late_begin_does_not_take_the_home_back(members: Members, is_begun: bool) -> None:
    if is_begun:
        members.promotion("near", "far").home.begin()
    slow, fast = members.promotion("near", "far"), members.promotion("near", "far")
    survey = slow.survey()
    look, calls = slow.home._look, []

    def overtaken() -> object:
        found = look()
        calls.append(found)
        if len(calls) == 1:
            fast.run(fast.survey(), reverts_volumes=True)
            register(Repository.open(members.open("near", "far")), 7, disk(9, 9))
        return found

    slow.home._look = overtaken  # type: ignore[method-assign,assignment] # at the worst time
    with pytest.raises(exception.ConflictError):
        slow.run(survey, reverts_volumes=True)
    assert image_id(7) in images_kept(members)
    assert members.promotion("near", "far").home.state() is HomeState.HOME
    require_readable(members)


class StoreWithABadSector(Store):
    """A store that cannot read one object."""

    bad = ""

    def readinto(self, key: str, offset: int, buffer: memoryview) -> int:
        if key == self.bad:
            raise exception.UnavailableError(f"reading {key}: Input/output error")
        return super().readinto(key, offset, buffer)


@pytest.mark.parametrize("which", ["near", "far"])
def test_bad_sector_costs_one_object_at_most(members: Members, which: str) -> None:
    usual = members.stores[which]
    store = StoreWithABadSector()
    store._objects.update(usual._objects)
    store._refs.update(usual._refs)
    members.stores[which] = store
    store.bad = layout.manifest_key(str(home_volumes(members).get(FOLDED).record.manifest))
    if which == "far":
        members.stores["near"].delete(store.bad)
    survey = members.promote("near", "far")
    assert (layout.volume_ref(FOLDED) in lost_names(survey)) == (which == "far")
    assert len(images_kept(members)) == 2


def test_delta_is_copied_beside_a_base_that_another_member_has() -> None:
    near, far = Store(), Store()
    put_golden(near, "sparse", "dense")
    (delta,) = put_golden(far, "delta")
    objects = SurvivingObjects({"near": near, "far": far}, check_object)
    objects.copy(layout.manifest_key(delta))
    disk_manifest.load_manifest(near, delta)
