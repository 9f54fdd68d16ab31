"""Following the registered images: what is read, what is missed, with and without an index."""

from acstor.agent.reconcilers.registered_images import (
    LISTING_INTERVAL,
    UNINDEXED_RECHECK,
    RegisteredImages,
)
from acstor.origin.base import Ref
from acstor.origin.memory import MemoryOrigin
from acstor.repository import layout
from acstor.repository.images.image_index import INDEX_REF, ImageIndexWriter
from tests.unit.agent.conftest import Clock


def image(number: int) -> str:
    return f"00000000-0000-4000-8000-{number:012x}"


class CountedOrigin(MemoryOrigin):
    """Counts the calls that reach a server."""

    def __init__(self) -> None:
        super().__init__()
        self.listings = 0
        self.reads = 0

    def list_refs(self, prefix: str = "") -> object:  # type: ignore[override]
        self.listings += 1
        return super().list_refs(prefix)

    def get_ref(self, name: str) -> Ref | None:
        self.reads += 1
        return super().get_ref(name)


class Deployment:
    """An origin with images, and a host that follows them."""

    def __init__(self, clock: Clock, count: int, *, has_index: bool = True) -> None:
        self.origin = CountedOrigin()
        self.writer = ImageIndexWriter(self.origin, is_kept=has_index)
        for number in range(count):
            self.put(number)
        self.followed = RegisteredImages(self.origin, has_index=has_index, clock=clock)

    def put(self, number: int) -> None:
        name = layout.image_ref(image(number))
        ref = self.origin.get_ref(name)
        with self.writer.changing(image(number)):
            self.origin.swap_ref(name, ref.token if ref else None, b"a record")

    def remove(self, number: int) -> None:
        name = layout.image_ref(image(number))
        ref = self.origin.get_ref(name)
        assert ref is not None
        with self.writer.changing(image(number)):
            self.origin.swap_ref(name, ref.token, None)

    def refresh(self) -> set[str]:
        """Look once, and return what was read."""
        read = {one for one in self.followed.refresh() if self.followed.is_stale(one)}
        for one in read:
            ref = self.origin.get_ref(layout.image_ref(one))
            self.followed.note_read(one, is_registered=ref is not None)
        return read


def test_first_look_reads_all_and_the_next_one_in_turn(clock: Clock) -> None:
    host = Deployment(clock, 5)
    assert host.refresh() == {image(number) for number in range(5)}
    seen: set[str] = set()
    for _ in range(10):
        (read,) = host.refresh()
        seen.add(read)
    assert seen == {image(number) for number in range(5)}


def test_reads_do_not_grow_with_the_number_of_images(clock: Clock) -> None:
    costs = []
    for count in (10, 1000):
        host = Deployment(clock, count)
        host.refresh()
        host.origin.listings = host.origin.reads = 0
        for _ in range(20):
            host.refresh()
        costs.append((host.origin.listings, host.origin.reads))
    # A look at the index, and the one image whose turn it is.
    assert costs == [(0, 40), (0, 40)]


def test_changes_are_seen_at_the_next_look(clock: Clock) -> None:
    host = Deployment(clock, 3)
    host.refresh()
    host.put(1)
    host.put(7)
    host.remove(2)
    assert {image(1), image(7), image(2)} <= host.refresh()
    assert host.followed.ids == {image(0), image(1), image(7)}


def test_image_that_is_being_changed_is_read_until_it_was(clock: Clock) -> None:
    host = Deployment(clock, 50)
    host.refresh()
    killed = host.writer.changing(image(3))
    killed.__enter__()
    for _ in range(3):
        assert image(3) in host.refresh()
    name = layout.image_ref(image(3))
    ref = host.origin.get_ref(name)
    assert ref is not None
    host.origin.swap_ref(name, ref.token, None)  # and the writer is killed
    assert image(3) in host.refresh()
    assert image(3) not in host.followed.ids


def test_what_could_not_be_read_is_read_at_the_next_look(clock: Clock) -> None:
    host = Deployment(clock, 50)
    host.refresh()
    host.put(3)
    host.followed.refresh()  # and reading it fails
    assert image(3) in host.refresh()


def test_another_index_or_an_older_state_makes_all_read(clock: Clock) -> None:
    host = Deployment(clock, 3)
    host.refresh()
    old = host.origin.get_ref(INDEX_REF)
    assert old is not None
    host.put(0)
    host.refresh()
    present = host.origin.get_ref(INDEX_REF)
    assert present is not None
    host.origin.swap_ref(INDEX_REF, present.token, old.content)  # a backup
    assert len(host.refresh()) == 3
    present = host.origin.get_ref(INDEX_REF)
    assert present is not None
    host.origin.swap_ref(INDEX_REF, present.token, None)
    host.put(1)  # begins another
    assert len(host.refresh()) == 3


def test_malformed_index_makes_every_look_a_listing(clock: Clock) -> None:
    host = Deployment(clock, 3)
    host.refresh()
    ref = host.origin.get_ref(INDEX_REF)
    assert ref is not None
    host.origin.swap_ref(INDEX_REF, ref.token, b"nonsense")
    host.origin.swap_ref(layout.image_ref(image(9)), None, b"a record")
    assert image(9) in host.refresh()
    host.origin.listings = 0
    host.refresh()
    assert host.origin.listings == 1
    host.put(8)  # which begins a new index
    assert image(8) in host.refresh()
    host.origin.listings = 0
    host.refresh()
    assert host.origin.listings == 0


def test_what_was_written_without_the_index_shows_in_the_end(clock: Clock) -> None:
    host = Deployment(clock, 3)
    host.refresh()
    host.origin.swap_ref(layout.image_ref(image(9)), None, b"a record")
    assert image(9) not in host.refresh()
    clock.now += 1.5 * LISTING_INTERVAL
    assert image(9) in host.refresh()


def test_without_an_index_all_are_listed_and_read_once_a_minute(clock: Clock) -> None:
    host = Deployment(clock, 3, has_index=False)
    assert len(host.refresh()) == 3
    host.put(7)
    assert host.refresh() == {image(7)}
    clock.now += UNINDEXED_RECHECK
    assert len(host.refresh()) == 4
    assert host.origin.get_ref(INDEX_REF) is None
