"""Learning in which order boots read: from this host's data plane, to the origin, back to it."""

import contextlib
import logging
import os
import random
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from acstor import exception, native, untrusted_json
from acstor.agent.handing_over import hand_over
from acstor.agent.pass_thread import PassThread
from acstor.agent.reconciler import HostSnapshot
from acstor.control import bitmap, protocol, rank_list
from acstor.control.chunk_set import CHUNK_COUNT_MAX
from acstor.exception import ErrorKind
from acstor.repository.images import boot_profile
from acstor.repository.images.boot_kinds import Boot
from acstor.repository.images.boot_profile import BootProfile

LOG = logging.getLogger(__name__)

ANSWERS_MAX = 16
"""Answers of a data plane that are taken in one round: 64 MiB of chunks at most."""
_JITTER = 0.1
_SOONER = 10
_PASSING = frozenset({ErrorKind.FENCED, ErrorKind.OVERLOADED, ErrorKind.EXHAUSTED})
"""Kinds of errors after which a boot is kept, to be reported again."""


@dataclass(frozen=True)
class ToldBoot:
    """One boot as a data plane tells it (``bootprofile.recorded``)."""

    number: int
    image_id: str
    chunk_count: int
    order: rank_list.Order

    @classmethod
    def parse(cls, fields: Mapping[str, Any]) -> "ToldBoot":
        """Read one element of the answer.

        :raises CorruptError: when it is not what a data plane tells.
        """
        try:
            number = untrusted_json.whole(fields["number"], "number", 1, protocol.BOOT_NUMBER_MAX)
            chunk_count = untrusted_json.whole(
                fields["chunk_count"], "chunk_count", 0, CHUNK_COUNT_MAX
            )
            content = bitmap.inflate(str(fields["order"]), rank_list.len_max(1))
            orders = rank_list.decode(content, chunk_count)
            if len(orders) != 1:
                raise ValueError("a boot has one order")
            return cls(number, str(fields["image"]), chunk_count, orders[0])
        except (ValueError, TypeError, KeyError) as error:
            raise exception.CorruptError(f"the data plane tells nonsense: {error}") from error


class BootProfiles:
    """Reconciler: reports the boots of this host, and takes over what all hosts learnt.

    The work is done on a thread of its own, every ``interval`` seconds, and of an image when it is
    first offered or the data plane is a new process. A boot is acknowledged once it is merged, or
    can never be: a lost answer or a killed agent loses none, and one that is told again is known by
    its host and number.

    :param directory: of the agent's state.
    :param clock: monotonic seconds.
    """

    name = "boot profiles"

    def __init__(
        self, directory: str, interval: float, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._directory = os.path.join(directory, "boot-profiles")
        self._interval = interval
        self._clock = clock
        self._thread = PassThread("boot-profiles", self.act)
        self._process = 0.0
        self._acknowledged = 0
        self._done: set[int] = set()
        """Numbers above the acknowledged one that need not be told again either."""
        self._report_due = 0.0
        self._due: dict[str, float] = {}  # image -> when it is looked at next
        self._known: dict[str, tuple[str, BootProfile]] = {}  # image -> (token, profile)
        self._given: dict[str, tuple[float, bytes]] = {}  # image -> (process, digest of the orders)
        self._problems: dict[str, str] = {}

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def reconcile(self, snapshot: HostSnapshot) -> Mapping[str, str]:
        """Have the thread act on a pass; return what was wrong when it acted last."""
        self._thread.show(snapshot)
        return self._problems

    def stop(self, timeout: float) -> None:
        """End the thread within ``timeout`` seconds."""
        self._thread.stop(timeout)

    def act(self, snapshot: HostSnapshot) -> None:
        """Act on one pass; what fails is listed at the next and tried again in the next round."""
        if snapshot.status is None or snapshot.origin is None:
            return
        process = float(snapshot.status.get("started_at") or 0.0)
        if process != self._process:
            self._process = process
            self._report_due = 0.0
            self._due.clear()
        try:
            if self._clock() >= self._report_due:
                self._report_due = self._clock() + self._pause(self._report(snapshot))
            self._take_over_due(snapshot)
        except (exception.AcstorError, OSError) as error:
            # Whoever is away, the next images would only wait for it as well.
            self._problems = {**self._problems, self.name: exception.one_line(error)}
        else:
            self._problems = _without(self._problems, self.name)

    def _pause(self, is_complete: bool) -> float:
        interval = self._interval if is_complete else self._interval / _SOONER
        return interval * random.uniform(1 - _JITTER, 1 + _JITTER)

    # Reporting

    def _report(self, snapshot: HostSnapshot) -> bool:
        """Report what the data plane has recorded; return whether nothing is left."""
        for _ in range(ANSWERS_MAX):
            told = self._recorded(snapshot)
            fresh = [boot for boot in told if boot.number not in self._done]
            for image_id in sorted({boot.image_id for boot in fresh}):
                boots = [boot for boot in fresh if boot.image_id == image_id]
                self._report_image(snapshot, image_id, boots)
            before = self._acknowledged
            for boot in told:
                if boot.number not in self._done:
                    break
                self._acknowledged = boot.number
            self._done = {number for number in self._done if number > self._acknowledged}
            if not told:
                return True
            if self._acknowledged == before:
                return False
        return False

    def _recorded(self, snapshot: HostSnapshot) -> list[ToldBoot]:
        try:
            told = snapshot.data_plane.call("bootprofile.recorded", acknowledged=self._acknowledged)
        except exception.UnsupportedError:
            return []  # an older release, which records none
        if not isinstance(told, list):
            raise exception.CorruptError("the data plane tells nonsense: no list of boots")
        return [ToldBoot.parse(fields) for fields in told]

    def _report_image(
        self, snapshot: HostSnapshot, image_id: str, told: Iterable[ToldBoot]
    ) -> None:
        """Merge boots of one image, or note that they are not to be."""
        boots = list(told)
        numbers = {boot.number for boot in boots}
        if snapshot.registered is None:
            return  # the pass itself says so
        if image_id not in snapshot.registered:
            self._done |= numbers  # withdrawn: nobody boots it again
            return
        assert snapshot.origin is not None
        what = f"boots of image {image_id}"
        for chunk_count in sorted({boot.chunk_count for boot in boots}):
            found = [
                Boot(snapshot.host, boot.number, boot.order)
                for boot in boots
                if boot.chunk_count == chunk_count
            ]
            try:
                boot_profile.add(snapshot.origin, image_id, chunk_count, found)
            except exception.UnavailableError:
                raise
            except exception.AcstorError as error:
                self._problems = {**self._problems, what: exception.one_line(error)}
                if error.kind in _PASSING:
                    return
            else:
                self._problems = _without(self._problems, what)
        self._known.pop(image_id, None)
        self._due.pop(image_id, None)
        self._done |= numbers
        LOG.debug("image %s: reported %d boots", image_id, len(numbers))

    # Taking over

    def _take_over_due(self, snapshot: HostSnapshot) -> None:
        for image_id in sorted(snapshot.offered):
            if self._clock() < self._due.get(image_id, 0.0):
                continue
            what = f"boot profile of image {image_id}"
            try:
                self._take_over(snapshot, image_id)
            except exception.UnavailableError:
                raise
            except (exception.AcstorError, OSError) as error:
                self._problems = {**self._problems, what: exception.one_line(error)}
            else:
                self._problems = _without(self._problems, what)
            self._due[image_id] = self._clock() + self._pause(is_complete=True)
        if snapshot.registered is not None:
            for known in (self._due, self._known, self._given):
                for image_id in known.keys() - snapshot.registered:
                    known.pop(image_id, None)

    def _take_over(self, snapshot: HostSnapshot, image_id: str) -> None:
        assert snapshot.origin is not None
        ref = snapshot.origin.get_ref(boot_profile.boot_profile_ref(image_id))
        if ref is None:
            self._known.pop(image_id, None)
            if image_id in self._given:
                self._give(snapshot, image_id, BootProfile(0))
            return
        token, known = self._known.get(image_id, ("", None))
        if known is None or token != ref.token:
            known = BootProfile.parse(ref.content, image_id)
            self._known[image_id] = (ref.token, known)
        self._give(snapshot, image_id, known)

    def _give(self, snapshot: HostSnapshot, image_id: str, profile: BootProfile) -> None:
        """Have the data plane use a profile, if it does not already."""
        orders = [order for kind in profile.used if (order := kind.order())]
        content = rank_list.encode(orders)
        digest = native.digest(content)
        if self._given.get(image_id) == (self._process, digest):
            return
        path = os.path.join(self._directory, f"{image_id}.orders")
        hand_over(snapshot.data_plane, path, content)
        try:
            snapshot.data_plane.call("bootprofile.set", image=image_id, path=path)
        except exception.UnsupportedError:
            LOG.debug("the data plane is of a release without boot profiles")
        finally:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(path)
        self._given[image_id] = (self._process, digest)
        lengths = ", ".join(str(len(order)) for order in orders) or "no"
        LOG.info("boots of image %s are expected to read %s chunks in order", image_id, lengths)


def _without(problems: Mapping[str, str], what: str) -> dict[str, str]:
    return {key: text for key, text in problems.items() if key != what}
