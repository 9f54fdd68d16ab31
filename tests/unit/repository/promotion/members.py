"""A cloud whose origin is in three members, for tests of promotions."""

import uuid
from collections.abc import Sequence
from typing import TypeVar

from acstor import exception
from acstor.origin import base
from acstor.origin.memory import MemoryOrigin
from acstor.origin.replicated.driver import ReplicatedOrigin
from acstor.origin.replicated.member import Member
from acstor.origin.replicated.members import MemberAddress
from acstor.origin.replicated.membership import Membership
from acstor.origin.replicated.sync.keeping import MemberKeeping
from acstor.registrar.member_upkeep import check_readable, manifests_of
from acstor.repository.promotion.promotion import MEMBER_SECONDS, Promotion
from acstor.repository.promotion.survey import Survey
from acstor.repository.upgrade import note_format
from acstor.repository.volumes.store import NewVolume
from testbed.doubles.virtual_time import VirtualTime
from tests.unit.repository.copying.cloud import Cloud, check, sealer_of
from tests.unit.repository.interleaving import Killed

Answer = TypeVar("Answer")
WRITTEN_ON, NEW = (str(uuid.UUID(int=number)) for number in (110, 111))
NOW = 1_000_000.0


class Store(MemoryOrigin):
    """A store that a process is killed at, or whose answer is lost, after so many changes."""

    changes_left: float = float("inf")
    answers_left: float = float("inf")

    def swap_ref(self, name: str, expected: str | None, content: bytes | None) -> str | None:
        self._count()
        return self._answer(super().swap_ref(name, expected, content))

    def put_if_absent(self, key: str, buffers: Sequence[base.Buffer]) -> bool:
        self._count()
        return self._answer(super().put_if_absent(key, buffers))

    def _count(self) -> None:
        if self.changes_left <= 0:
            raise Killed
        self.changes_left -= 1

    def _answer(self, answer: Answer) -> Answer:
        self.answers_left -= 1
        if self.answers_left == -1:  # this one alone: the store goes on
            raise exception.UnavailableError("the answer is lost")
        return answer

    def copied(self) -> "Store":
        """Return another store with the same content."""
        made = Store()
        made._objects.update(self._objects)
        made._refs.update(self._refs)
        made._tokens = self._tokens  # no token comes twice
        return made


class Members:
    """A cloud whose origin is in three members, the others of which have what the home has."""

    def __init__(self) -> None:
        self.clock = VirtualTime()
        self.stores = {name: Store() for name in ("home", "near", "far")}
        self.cloud = Cloud(self.stores["home"])
        self._add_volumes()
        note_format(self.stores["home"])
        Membership("home", self.stores).create()
        self.lead()
        self.lead()

    def _add_volumes(self) -> None:
        """Make a volume that was written on after its last fold, and one that nobody owned."""
        owner = self.cloud.owner(WRITTEN_ON, "c")
        owner.write("seven ")
        owner.fold()
        owner.write("eight ")
        self.cloud.store.create(NewVolume(NEW, 4096))

    def open(self, *names: str) -> ReplicatedOrigin:
        """Open the origin, the home first."""
        addresses = [MemberAddress(name, name) for name in names]
        return ReplicatedOrigin(addresses, lambda url: self.stores[url], clock=self.clock)

    def lead(self, *names: str) -> None:
        """Make a pass of the process that leads."""
        origin = self.open(*(names or ("home", "near", "far")))
        self.clock.now += 61.0
        self.keeping(origin).run()

    def keeping(self, origin: ReplicatedOrigin) -> MemberKeeping:
        """Return the passes of a process that leads."""
        return MemberKeeping(
            origin, check_readable, 1 << 30, "r",
            needed=manifests_of, clock=self.clock, now=lambda: NOW,
        )  # fmt: skip

    def promotion(self, *names: str) -> Promotion:
        """Return the promotion of the first, with these members at hand."""
        members = {name: Member(name, self.stores[name], MEMBER_SECONDS) for name in names}
        return Promotion(names[0], members, sealer_of=sealer_of, check=check)

    def promote(self, *names: str, reverts_volumes: bool = True) -> Survey:
        """Promote the first."""
        promotion = self.promotion(*names)
        survey = promotion.survey()
        promotion.run(survey, reverts_volumes=reverts_volumes)
        return survey


def lost_names(survey: Survey) -> set[str]:
    return {one.name for one in survey.lost}
