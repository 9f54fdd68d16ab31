"""``acstor assignment ...``: volumes and the members of the origin that their logs are in."""

import argparse
import contextlib
import sys
from collections.abc import Iterator
from typing import Any

from cliff import command, lister

from acstor import exception
from acstor.cli import repository_access
from acstor.cli.columns import Size
from acstor.cli.origin import opened_members
from acstor.origin.replicated.driver import ReplicatedOrigin
from acstor.origin.replicated.power.states import PowerState
from acstor.origin.replicated.states import MemberState
from acstor.repository.repository import Repository
from acstor.repository.volumes import doorbells
from acstor.repository.volumes.durability import DurabilityClass
from acstor.repository.volumes.epoch_log import sealer_of
from acstor.repository.volumes.recovery_points import RecoveryPoint, RecoveryPoints
from acstor.repository.volumes.store import VolumeStore

COLUMNS = ("Volume", "Member", "Assigned", "Owed", "Recovery Point Age (s)", "Problem")


@contextlib.contextmanager
def _opened(conf: Any) -> Iterator[tuple[ReplicatedOrigin, VolumeStore]]:
    """Open all members and the records of volumes."""
    with opened_members(conf) as origin:
        yield origin, VolumeStore(Repository.open(origin))


class ListAssignments(lister.Lister):
    """List the volumes with the member of the origin that each writes to, and is to write to.

    Owed: bytes of its log that one member alone has. Recovery point age: that of the first of them;
    who loses that member loses what was written since. Both by the listings of this moment.
    """

    def take_action(self, parsed_args: argparse.Namespace) -> tuple[tuple[str, ...], list[Any]]:
        """Return the table."""
        with _opened(repository_access.configuration(self.app)) as (origin, store):
            home = origin.view.home
            points = RecoveryPoints(origin)
            rows = [
                (
                    volume.id,
                    volume.record.member or home,
                    volume.record.assigned or home,
                    *_columns(points.of(volume)),
                )
                for volume in sorted(store.list(), key=lambda one: one.id)
            ]
        return COLUMNS, rows


def _columns(point: RecoveryPoint) -> tuple[Any, ...]:
    age = point.age_seconds
    owed = None if point.owed_bytes is None else Size(point.owed_bytes)
    return owed, None if age is None else round(age), point.error


class MoveVolumes(command.Command):
    """Have volumes write to another member of the origin, from their next epoch on.

    Of a volume that no host may attach that is at once; of one that is in use its host begins it
    within a minute, and requests wait for a moment; of others it is when they are opened next. What
    was written before stays where it is, and is copied to the other members.
    """

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        """Describe the arguments."""
        parser: argparse.ArgumentParser = super().get_parser(prog_name)
        parser.add_argument("volumes", metavar="VOLUME", nargs="+", help="UUID of a volume")
        parser.add_argument("member", metavar="MEMBER", help="name of a member")
        return parser

    def take_action(self, parsed_args: argparse.Namespace) -> None:
        """Assign each, and tell its owner."""
        with _opened(repository_access.configuration(self.app)) as (origin, store):
            member = _active(origin, parsed_args.member)
            for volume in parsed_args.volumes:
                self._move(origin, store, volume, member)

    def _move(self, origin: ReplicatedOrigin, store: VolumeStore, volume: str, member: str) -> None:
        home = origin.view.home
        store.assign(volume, None if member == home else member)
        record = store.move_unused(volume, sealer_of(origin)).after
        if (record.member or home) == member and record.epoch:
            self.app.stdout.write(f"volume {volume} writes to {member}\n")
            return
        when = "when it is opened next"
        if record.owner is not None:
            when = f"within a minute, by its host {record.owner}"
            if DurabilityClass.NONE in record.durability.classes:
                when = "when it is opened next: parts of it never leave their host"
            try:
                doorbells.ring(origin, record.owner)
            except exception.AcstorError as error:
                sys.stderr.write(f"host {record.owner} is not told: {error.message}\n")
        self.app.stdout.write(f"volume {volume} goes to {member} {when}\n")


def _active(origin: ReplicatedOrigin, name: str) -> str:
    """Return a member that volumes may be assigned to.

    :raises NotFoundError: when the origin has no such member.
    :raises ConflictError: when it is not active.
    """
    state = origin.view.state(name)
    if state is None:
        raise exception.NotFoundError(
            f"the origin has no member {name}", hint="'acstor origin list' shows all"
        )
    if state is not MemberState.ACTIVE:
        raise exception.ConflictError(
            f"member {name} is {state.value}, and nothing new is assigned to it",
            hint="wait until it is active ('acstor origin list'), give up draining it "
            f"('acstor origin keep {name}'), or name another one",
        )
    power = origin.view.power_state(name)
    if power is not PowerState.ACTIVE:
        raise exception.ConflictError(
            f"member {name} is {power.value}, and nothing new is assigned to it",
            hint=f"wake it ('acstor origin wake {name}'), and wait until it is in use "
            "('acstor origin power'), or name another one",
        )
    return name
