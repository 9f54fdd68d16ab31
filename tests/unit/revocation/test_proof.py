"""Asking hosts until they are rid of an image: those that lie, are silent, or come late."""

import threading

import pytest

from acstor import exception
from acstor.repository.images.revocation import HostProof, Revocation
from acstor.repository.progress import Progress
from acstor.revocation.answers import PageAnswer, ProofState
from acstor.revocation.proof import CHECK, DROP, Proof, excluded, merged
from tests.unit.repository import images

IMAGE = images.image_id(1)
PAGES = (3, 2)


class Host:
    """A host with chunks of each page; the test says how it answers."""

    def __init__(self, *held: int) -> None:
        self.held = list(held) or [0, 0]
        self.busy_rounds = 0
        self.attached = False
        self.error: Exception | None = None
        self.answer: object = None
        self.calls: list[tuple[str, object]] = []

    def call(self, method: str, page: int | None) -> object:
        self.calls.append((method, page))
        if self.error is not None:
            raise self.error
        if self.answer is not None:
            return self.answer
        if page is None:
            return PageAnswer(0, 0, 0, self.attached).to_answer()
        held = self.held[page]
        if method == DROP and self.busy_rounds == 0:
            self.held[page] = 0
        elif method == DROP and page == len(PAGES) - 1:
            self.busy_rounds -= 1
        return PageAnswer(PAGES[page], held, self.held[page], self.attached).to_answer()


class Cloud:
    """Hosts by name; time goes on only while somebody waits."""

    def __init__(self, **hosts: Host) -> None:
        self.hosts = hosts
        self.now = 0.0
        self._lock = threading.Lock()

    def call(self, host: str, method: str, **arguments: object) -> object:
        assert arguments.pop("image") == IMAGE
        page = arguments.pop("page")
        assert not arguments
        assert page is None or isinstance(page, int)
        return self.hosts[host].call(method, page)

    def wait(self, seconds: float) -> bool:
        with self._lock:
            self.now += seconds
        return False

    def prove(self, pages: tuple[int, ...] = PAGES, **options: object) -> dict[str, HostProof]:
        found = Revocation(IMAGE, "leaked", "", 0, pages, ("ab" * 32,) * len(pages))
        proof = Proof(
            self,
            found,
            timeout=30.0,
            wait=self.wait,
            clock=lambda: self.now,
            wall_clock=lambda: 0.0,
            **options,  # type: ignore[arg-type]
        )
        return proof.run(self.hosts)


def test_hosts_discard_every_page_and_are_asked_again() -> None:
    cloud = Cloud(h1=Host(3, 1), h2=Host(0, 0))
    found = cloud.prove()
    time = "1970-01-01T00:00:00+00:00"
    assert found == {
        "h1": HostProof("absent", 4, 4, 0, time),
        "h2": HostProof("absent", 0, 0, 0, time),
    }
    assert cloud.hosts["h1"].calls == [(DROP, 0), (DROP, 1), (CHECK, 0), (CHECK, 1)]
    assert cloud.now == 0.0


def test_chunks_that_are_read_are_asked_for_again() -> None:
    host = Host(2, 2)
    host.busy_rounds = 2
    found = Cloud(h1=host).prove()["h1"]
    assert (found.state, found.held, found.dropped, found.left) == ("absent", 4, 4, 0)
    assert len(host.calls) == 3 * 4


def test_host_that_never_gets_rid_of_them_is_told_when_the_time_is_over() -> None:
    host = Host(2, 2)
    host.busy_rounds = 1000
    cloud = Cloud(h1=host)
    found = cloud.prove()["h1"]
    assert (found.state, found.held, found.dropped, found.left) == ("held", 4, 0, 4)
    assert cloud.now < 30.0


def test_host_with_instances_of_the_image_proves_nothing() -> None:
    host = Host(2, 0)
    host.attached = True
    found = Cloud(h1=host).prove()["h1"]
    assert (found.state, found.dropped, found.left) == ("attached", 2, 0)


def test_host_that_is_away_holds_up_no_other() -> None:
    away = Host(1, 1)
    away.error = exception.DeadlineError("host h1 did not answer in 60 s")
    found = Cloud(h1=away, h2=Host(1, 1)).prove()
    assert [one.state for one in found.values()] == ["unreachable", "absent"]
    assert "did not answer" in found["h1"].note
    assert len(away.calls) == 1


@pytest.mark.parametrize(
    "answer",
    [
        "nonsense",
        {},
        PageAnswer(2, 0, 0, False).to_answer(),
        PageAnswer(3, 4, 0, False).to_answer(),
        PageAnswer(3, 0, 4, False).to_answer(),
        {**PageAnswer(3, 0, 0, False).to_answer(), "attached": None},
        {**PageAnswer(3, 0, 0, False).to_answer(), "held": True},
        {**PageAnswer(3, 0, 0, False).to_answer(), "left": -1},
        {**PageAnswer(3, 0, 0, False).to_answer(), "asked": "3"},
    ],
)
def test_answer_about_something_else_proves_nothing(answer: object) -> None:
    host = Host()
    host.answer = answer
    found = Cloud(h1=host).prove()["h1"]
    assert found.state == "failed"


def test_host_of_an_older_release_is_told() -> None:
    host = Host()
    host.error = exception.UnsupportedError("the agent of host h1 does not know revocation_drop")
    found = Cloud(h1=host).prove()["h1"]
    assert (found.state, "does not know" in found.note) == ("failed", True)


def test_image_without_chunks_of_its_own_may_still_be_attached() -> None:
    attached = Host()
    attached.attached = True
    found = Cloud(h1=attached, h2=Host()).prove(pages=())
    assert [one.state for one in found.values()] == ["attached", "absent"]


def test_no_hosts_prove_nothing() -> None:
    assert Cloud().prove() == {}


def test_each_page_of_each_host_is_told_once() -> None:
    class Told(Progress):
        total = done = 0

        def begin(self, what: str, total: int) -> None:
            self.total = total

        def advance(self, count: int) -> None:
            self.done += count

    told = Told()
    host = Host(1, 1)
    host.busy_rounds = 1
    Cloud(h1=host).prove(progress=told)
    assert (told.total, told.done) == (4, 4)


def test_first_count_and_all_that_was_discarded_stay_known() -> None:
    known = {"h1": HostProof("held", 5, 3, 2), "h2": HostProof("unreachable")}
    fresh = {
        "h1": HostProof("absent", 2, 2, 0, "now"),
        "h2": HostProof("absent", 7, 7, 0),
        "h3": HostProof("absent", 1, 1, 0),
    }
    assert merged(known, fresh) == {
        "h1": HostProof("absent", 5, 5, 0, "now"),
        "h2": HostProof("absent", 7, 7, 0),
        "h3": HostProof("absent", 1, 1, 0),
    }


def test_host_that_is_left_out_is_settled() -> None:
    assert ProofState(excluded(lambda: 0.0).state).is_settled
