"""The origin of a data plane that is in several members, and what changes of these."""

import logging
import random
import threading
import time
from collections.abc import Callable

from oslo_config import cfg

from acstor import abandoned_call, exception
from acstor.dataplane.attachments import Attachments
from acstor.dataplane.member_readers import MemberReader, open_members
from acstor.dataplane.origin_source import OriginSource
from acstor.native import DataPlane
from acstor.origin.base import RefStore
from acstor.origin.opening import open_driver
from acstor.origin.replicated.member_records import MembersRecord
from acstor.origin.replicated.members import MemberAddress, parse_members
from acstor.origin.replicated.membership import read_record
from acstor.origin.replicated.power.record import ALL_AWAKE, PowerRecord, read_power
from acstor.origin.replicated.power.states import ASKED
from acstor.origin.replicated.states import USED, MemberState

LOG = logging.getLogger(__name__)

READ_SECONDS = 5.0
"""Longest time for which the start of a data plane waits for the home."""
FOLLOW_SECONDS = 60.0
"""Time between two looks at the home, which generations members have by now."""

OpenRefs = Callable[[str], RefStore]


def open_configured(
    conf: cfg.ConfigOpts, attachments: Attachments, open_refs: OpenRefs = open_driver
) -> OriginSource:
    """Return the members that ``[origin] members`` names and the home knows.

    The home need not be there: what it said before is kept on this host.

    :param open_refs: opens the refs of the store at a URL.
    :raises AcstorError: at the first start, when the home cannot be read.
    """
    addresses = parse_members(conf.origin.members)
    record, power = _record(addresses[0], attachments, open_refs)
    active = {name for name, one in record.members.items() if one.state is MemberState.ACTIVE}
    deadline = conf.readpath.origin_deadline
    source = open_members(addresses, record, active, deadline, open_refs)
    for one in _readers(source):
        if power.state(one.name) not in ASKED:
            one.asleep.set()
    return source


def _readers(source: OriginSource) -> list[MemberReader]:
    return [one for one in source.members if isinstance(one, MemberReader)]


def _record(
    home: MemberAddress, attachments: Attachments, open_refs: OpenRefs
) -> tuple[MembersRecord, PowerRecord]:
    try:
        record, power = _read_in_time(home, open_refs)
    except exception.ConfigurationError:
        raise
    except exception.AcstorError as error:
        kept = attachments.members()
        if kept is None:
            raise
        LOG.warning(
            "the home of the members cannot be read, so what it said before counts: %s",
            exception.one_line(error),
        )
        return MembersRecord.parse(kept), ALL_AWAKE
    attachments.keep_members(record.encode())
    return record, power


def _read_in_time(home: MemberAddress, open_refs: OpenRefs) -> tuple[MembersRecord, PowerRecord]:
    """Read what the home says, on a thread that may hang with it.

    :raises DeadlineError: when it does not answer in time.
    """
    try:
        return abandoned_call.within(READ_SECONDS, lambda: _read(home, open_refs))
    except TimeoutError as error:
        raise exception.DeadlineError(
            f"member {home.name}, the home of the refs, did not answer within {READ_SECONDS:g} s",
            hint="check its store and that its file system is mounted",
        ) from error


def _read(home: MemberAddress, open_refs: OpenRefs) -> tuple[MembersRecord, PowerRecord]:
    refs = open_refs(home.url)
    try:
        return read_record(home.name, refs), read_power(refs)[0]
    finally:
        refs.close()


class MemberFollower:
    """Tells a data plane which generations its members have by now, and which of them sleep.

    :param conf: with the members.
    :param source: what the data plane reads.
    :param runtime: the data plane.
    :param attachments: keeps what the home said.
    """

    def __init__(
        self,
        conf: cfg.ConfigOpts,
        source: OriginSource,
        runtime: Callable[[], DataPlane],
        attachments: Attachments,
        open_refs: OpenRefs = open_driver,
    ) -> None:
        self._home = parse_members(conf.origin.members)[0]
        self._readers = _readers(source)
        self._used = {one.name for one in source.members}
        self._told = {one.name: one.generation for one in source.members}
        self._runtime = runtime
        self._attachments = attachments
        self._open_refs = open_refs
        self._thread = threading.Thread(target=self._run, name="member-follower", daemon=True)

    def start(self) -> None:
        """Look now and then, until the process ends."""
        self._thread.start()

    def look(self) -> None:
        """Read what the home says, and tell the data plane what has changed.

        :raises AcstorError: when the home cannot be read.
        """
        record, power = _read(self._home, self._open_refs)
        self._tell_who_sleeps(record, power)
        used = {name for name, one in record.members.items() if one.state in USED}
        if used != self._used:
            LOG.warning(
                "the members of the origin are %s now: restart this data plane to read of these",
                ", ".join(sorted(used)),
            )
            self._used = used
        for name, told in self._told.items():
            entry = record.members.get(name)
            if entry is None or entry.state not in USED or entry.generation == told:
                continue
            self._runtime().set_member_generation(name, entry.generation)
            self._told[name] = entry.generation
        self._attachments.keep_members(record.encode())

    def _tell_who_sleeps(self, record: MembersRecord, power: PowerRecord) -> None:
        """Have members not be read that sleep, and be read that are back."""
        for one in self._readers:
            is_asleep, entry = power.state(one.name) not in ASKED, record.members.get(one.name)
            if is_asleep == one.asleep.is_set() or entry is None:
                continue
            (one.asleep.set if is_asleep else one.asleep.clear)()
            LOG.info("member %s of the origin %s", one.name, "sleeps" if is_asleep else "is on")
            # Has the generation be looked at before the next read, which tells.
            self._runtime().set_member_generation(one.name, entry.generation)
            self._told[one.name] = entry.generation

    def _run(self) -> None:
        while True:
            time.sleep(FOLLOW_SECONDS * random.uniform(0.5, 1.0))
            try:
                self.look()
            except exception.AcstorError as error:
                LOG.debug("the home of the members: %s", exception.one_line(error))
            except Exception:
                LOG.exception("the members cannot be followed")
