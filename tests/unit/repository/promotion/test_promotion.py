"""A member becomes the home: what its copies name is there, and there are never two homes."""

import contextlib
import uuid

import pytest

from acstor import exception
from acstor.origin import base
from acstor.origin.replicated import ref_copy
from acstor.origin.replicated.member_records import read_mark
from acstor.origin.replicated.membership import Membership, read_record
from acstor.origin.replicated.promotion.new_home import HomeState
from acstor.origin.replicated.states import MemberState
from acstor.repository import layout
from acstor.repository.repository import Repository
from acstor.repository.volumes.store import VolumeStore
from tests.unit.repository.copying.cloud import (
    FOLDED,
    IMAGES,
    IN_USE,
    LASTING,
    SNAPSHOT,
    TRANSIENT,
    volume_text,
)
from tests.unit.repository.images import image_id, read_back, register
from tests.unit.repository.interleaving import Killed
from tests.unit.repository.promotion.members import NEW, NOW, WRITTEN_ON, Members, lost_names


def test_survey_says_what_is_kept_and_what_is_lost(members: Members) -> None:
    before = members.stores["near"].copied()
    survey = members.promotion("near", "far").survey()
    assert survey.as_of == NOW
    assert (survey.count(layout.IMAGE_PREFIX), survey.count_lost(layout.IMAGE_PREFIX)) == (2, 0)
    assert survey.reverted == [WRITTEN_ON]
    assert lost_names(survey) == {layout.volume_ref(IN_USE), layout.snapshot_ref(SNAPSHOT)}
    assert {layout.volume_ref(FOLDED), layout.volume_ref(NEW)} <= survey.refs.keys()
    assert set(LASTING) <= survey.refs.keys()
    assert not set(TRANSIENT) & survey.refs.keys()
    assert (survey.copies_damaged, list(survey.unknown)) == (0, [])
    assert members.stores["near"]._refs == before._refs, "nothing is changed"


def test_origin_goes_on_with_its_new_home(members: Members) -> None:
    members.promote("near", "far")
    origin = members.open("near", "far")
    repository = Repository.open(origin)
    assert repository.format == members.cloud.repository.format
    for number in (0, 1):
        assert read_back(repository, number) == IMAGES[number]
    assert volume_text(origin, FOLDED) == "five six "
    assert volume_text(origin, WRITTEN_ON) == "seven "
    store = VolumeStore(repository)
    for lost in (IN_USE, str(uuid.uuid4())):
        with pytest.raises(exception.NotFoundError):
            store.get(lost)
    register(repository, 2, IMAGES[2])
    members.lead("near", "far")
    assert read_back(Repository.open(members.stores["near"]), 2) == IMAGES[2]
    copies = set(members.stores["near"].list_refs(ref_copy.COPIES_PREFIX))
    assert len(copies) == 1, "by which members that come back are known"
    assert members.open("near", "far").view.state("home") is MemberState.FAILED


def test_volume_is_taken_by_a_host_again(members: Members) -> None:
    before = members.cloud.store.get(WRITTEN_ON).record
    members.promote("near", "far")
    store = VolumeStore(Repository.open(members.stores["near"]))
    record = store.get(WRITTEN_ON).record
    assert record.epoch > before.epoch + 1000, "no host has a log of this epoch"
    assert (record.owner, record.logs) == (None, ())
    after = store.acquire(WRITTEN_ON, "c").after
    assert after.owner == "c"


def test_copies_of_its_log_are_not_counted(members: Members) -> None:
    """Some of them may be lacking: what is above what was folded has a hole then."""
    for key in sorted(members.stores["home"].list(layout.VOLUME_LOG_PREFIX)):
        members.stores["near"].put_if_absent(key, [members.stores["home"].get(key, 1 << 20)])
    members.promote("near", "far")
    record = VolumeStore(Repository.open(members.stores["near"])).get(WRITTEN_ON).record
    assert record.logs == ()
    assert volume_text(members.stores["near"], WRITTEN_ON) == "seven "


def test_volumes_are_left_out_if_asked_for(members: Members) -> None:
    members.promote("near", "far", reverts_volumes=False)
    store = VolumeStore(Repository.open(members.stores["near"]))
    with pytest.raises(exception.NotFoundError):
        store.get(WRITTEN_ON)
    assert store.get(FOLDED).record.owner is None


def test_former_home_and_who_believes_it_are_refused(members: Members) -> None:
    members.promote("near", "far")
    former = members.open("home", "near", "far")
    pack = next(iter(members.stores["near"].list("packs/")))
    members.stores["home"].delete(pack)
    with pytest.raises(exception.UnavailableError):
        former.get(pack, 1 << 20)
    with pytest.raises(exception.ConfigurationError):
        members.open("far", "near")


def test_home_that_is_begun_is_nobodys(members: Members) -> None:
    members.promotion("near", "far").home.begin()
    for names in (("near", "far"), ("far", "near")):
        with pytest.raises(exception.ConfigurationError):
            members.open(*names)
    former = members.open("home", "near", "far")
    with pytest.raises(exception.UnavailableError):
        former.get(f"packs/ff/{'f' * 64}", 1 << 20)


def test_member_that_was_away_follows_later(members: Members) -> None:
    members.promote("near")
    assert members.promotion("near").home.strangers(read_record("near", members.stores["near"]))
    missing = members.open("near", "far")
    with pytest.raises(exception.UnavailableError):
        missing.get(f"packs/ff/{'f' * 64}", 1 << 20)
    record = members.promotion("near", "far").follow()
    assert members.promotion("near", "far").home.strangers(record) == ()
    members.lead("near", "far")
    with pytest.raises(exception.NotFoundError):
        members.open("near", "far").get(f"packs/ff/{'f' * 64}", 1 << 20)


def test_objects_that_only_another_member_has_are_kept(members: Members) -> None:
    for key in list(members.stores["near"].list("packs/")):
        members.stores["near"].delete(key)
    survey = members.promote("near", "far")
    assert survey.count(layout.IMAGE_PREFIX) == 2
    assert read_back(Repository.open(members.open("near", "far")), 0) == IMAGES[0]


def test_image_whose_objects_are_gone_is_left_out(members: Members) -> None:
    for store in ("near", "far"):
        manifest = members.cloud.repository.get_image(image_id(1)).record.manifest
        members.stores[store].delete(layout.manifest_key(manifest))
        pack = next(iter(members.stores[store].list("packs/")))
        members.stores[store].delete(pack)
    survey = members.promote("near", "far")
    assert layout.image_ref(image_id(1)) in lost_names(survey)
    kept = {
        layout.image_ref(one) for one in Repository.open(members.stores["near"]).list_image_ids()
    }
    assert kept == {name for name in survey.refs if name.startswith(layout.IMAGE_PREFIX)}


def test_damaged_copy_is_counted(members: Members) -> None:
    near = members.stores["near"]
    name = ref_copy.copy_name(layout.image_ref(image_id(0)))
    ref = near.get_ref(name)
    assert ref is not None
    near.swap_ref(name, ref.token, ref.content[:-1])
    survey = members.promote("near", "far")
    assert survey.copies_damaged == 1
    assert list(Repository.open(near).list_image_ids()) == [image_id(1)]


@pytest.mark.parametrize("lacking", ["members", "format"])
def test_member_without_the_copies_that_it_takes_is_refused(members: Members, lacking: str) -> None:
    near = members.stores["near"]
    ref = near.get_ref(ref_copy.copy_name(lacking))
    assert ref is not None
    near.swap_ref(ref_copy.copy_name(lacking), ref.token, None)
    mark = read_mark(near)
    with pytest.raises(exception.CorruptError, match="no copy"):
        members.promote("near", "far")
    assert read_mark(near) == mark


def test_member_from_a_backup_is_refused(members: Members) -> None:
    former = members.stores["near"].copied()
    for _ in range(2):
        Membership("home", members.stores).advance("near")
    members.lead()
    for name in list(former.list_refs(ref_copy.COPIES_PREFIX)):
        ref, new = former.get_ref(name), members.stores["near"].get_ref(name)
        assert ref is not None
        former.swap_ref(name, ref.token, None if new is None else new.content)
    members.stores["near"] = former
    with pytest.raises(exception.FencedError, match="backup"):
        members.promote("near", "far")


def test_home_that_is_one_is_not_promoted(members: Members) -> None:
    members.promote("near", "far")
    promotion = members.promotion("near", "far")
    assert promotion.home.state() is HomeState.HOME
    with pytest.raises(exception.ConflictError):
        promotion.home.begin()
    with pytest.raises(exception.AcstorError):
        members.promotion("far", "near").home.begin()
    with pytest.raises(exception.AcstorError):
        members.promotion("home")


def test_promotion_killed_anywhere_is_none_and_is_gone_on_with(members: Members) -> None:
    calls, is_killed, opened = 0, True, 0
    begun = {name: store.copied() for name, store in members.stores.items()}
    while is_killed:
        members.stores = {name: store.copied() for name, store in begun.items()}
        near = members.stores["near"]
        near.changes_left = calls
        with contextlib.suppress(Killed):
            members.promote("near", "far")
            is_killed = False
        near.changes_left = float("inf")
        with contextlib.suppress(exception.AcstorError):
            check(members.open("near", "far"))
            opened += 1
        go_on(members)
        calls += 1
    assert calls > 20
    assert 0 < opened < calls, "most of what is left then is to remove the copies"


def test_promotion_whose_answers_are_lost_is_gone_on_with(members: Members) -> None:
    calls, is_lost = 0, True
    begun = {name: store.copied() for name, store in members.stores.items()}
    while is_lost:
        members.stores = {name: store.copied() for name, store in begun.items()}
        near = members.stores["near"]
        near.answers_left = calls
        with contextlib.suppress(exception.UnavailableError):
            members.promote("near", "far")
            is_lost = near.answers_left < 0  # what could not be changed follows, or is told of
        go_on(members)
        calls += 1
    assert calls > 20


def go_on(members: Members) -> None:
    """Repeat the command, and compare what it has made."""
    promotion = members.promotion("near", "far")
    if promotion.home.state() is HomeState.HOME:
        promotion.follow()
    else:
        promotion.run(promotion.survey(), reverts_volumes=True)
    check(members.open("near", "far"))


def check(origin: base.Origin) -> None:
    """Compare what a promotion keeps."""
    repository = Repository.open(origin)
    assert sorted(repository.list_image_ids()) == [image_id(0), image_id(1)]
    for number in (0, 1):
        assert read_back(repository, number) == IMAGES[number]
    assert volume_text(origin, FOLDED) == "five six "
    assert volume_text(origin, WRITTEN_ON) == "seven "
