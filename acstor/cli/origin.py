"""``acstor origin ...``: the members of an origin that is in several stores."""

import argparse
import contextlib
import time
import urllib.parse
from collections.abc import Iterator
from typing import Any

from cliff import command, lister

from acstor import exception
from acstor.cli import repository_access
from acstor.cli.columns import Size
from acstor.origin.base import Origin
from acstor.origin.replicated.driver import ReplicatedOrigin
from acstor.origin.replicated.member_calls.store import open_in_time
from acstor.origin.replicated.member_records import MembersRecord, read_mark
from acstor.origin.replicated.members import MemberAddress, parse_members
from acstor.origin.replicated.members_status import MembersStatus, MemberStatus, read_status
from acstor.origin.replicated.membership import Membership, read_record
from acstor.origin.replicated.power.record import PowerRecord, read_power
from acstor.origin.replicated.power.states import PowerState
from acstor.origin.replicated.sole_objects import find_sole
from acstor.origin.replicated.states import USED, MemberEvent
from acstor.repository.repository import Repository
from acstor.repository.upgrade import note_format
from acstor.repository.volumes.member_use import find_use
from acstor.repository.volumes.store import VolumeStore

COLUMNS = (
    "Name", "State", "Home", "Kind", "Reachable", "Lacks", "Alone Has", "Refs Behind",
    "Refs Age (s)", "Problem",
)  # fmt: skip

Table = tuple[tuple[str, ...], list[Any]]


def configured_members(conf: Any) -> tuple[MemberAddress, ...]:
    """Return the members that the configuration names.

    :raises ConfigurationError: when the origin is one store.
    """
    if not conf.origin.members:
        raise exception.ConfigurationError(
            "the origin is one store: [origin] members is empty",
            hint="name the stores there, the one that holds the repository first",
        )
    return parse_members(conf.origin.members)


@contextlib.contextmanager
def opened_home(conf: Any) -> Iterator[tuple[str, Origin]]:
    """Open the home; yield its name and its store, whose calls end in time."""
    first = configured_members(conf)[0]
    with contextlib.closing(open_in_time(first.name, first.url)) as store:
        yield first.name, store


@contextlib.contextmanager
def opened_members(conf: Any) -> Iterator[ReplicatedOrigin]:
    """Open all members as one origin, whose calls end in time."""
    addresses = configured_members(conf)
    names = {one.url: one.name for one in addresses}
    origin = ReplicatedOrigin(addresses, lambda url: open_in_time(names[url], url))
    with contextlib.closing(origin):
        yield origin


@contextlib.contextmanager
def _membership(conf: Any, *names: str) -> Iterator[tuple[Membership, MembersRecord]]:
    """Open the home and the stores of these members; yield what changes them."""
    urls = {one.name: one.url for one in configured_members(conf)}
    unknown = [name for name in names if name not in urls]
    if unknown:
        raise exception.ConfigurationError(
            f"{unknown[0]} is not in [origin] members of this host",
            hint=f"add {unknown[0]}=URL there, on all hosts",
        )
    with opened_home(conf) as (home, store), contextlib.ExitStack() as opened:
        stores = {home: store}
        for name in set(names) - {home}:
            found = open_in_time(name, urls[name])
            stores[name] = opened.enter_context(contextlib.closing(found))
        yield Membership(home, stores), read_record(home, store)


class ListMembers(lister.Lister):
    """List the members of the origin, and how far each is.

    Lacks: bytes of objects that the member shall have and has not yet. Alone has: bytes that would
    be lost with it. Both as the registrar that leads saw them in its last pass, which is told.
    """

    def take_action(self, parsed_args: argparse.Namespace) -> Table:
        """Return the table."""
        conf = repository_access.configuration(self.app)
        kinds = {
            one.name: urllib.parse.urlsplit(one.url).scheme for one in configured_members(conf)
        }
        with opened_home(conf) as (home, store):
            record, status = read_record(home, store), read_status(store)
            power, _ = read_power(store)
        self._tell(status)
        found = {} if status is None else status.members
        return COLUMNS, [
            (
                name,
                _state(record, power, name),
                name == home,
                kinds.get(name, "not configured"),
                *_seen(found.get(name)),
            )
            for name in record.names
        ]

    def _tell(self, status: MembersStatus | None) -> None:
        if status is None:
            self.app.stderr.write("no registrar has looked at the members yet\n")
            return
        age = max(0.0, time.time() - status.updated_at)
        self.app.stderr.write(f"as {status.leader} saw it {age:.0f} s ago; {_certainty(status)}\n")


def _state(record: MembersRecord, power: PowerRecord, name: str) -> str:
    """Return the state of a member, with what of its sleep it is in."""
    state, found = record.members[name].state.value, power.state(name)
    return state if found is PowerState.ACTIVE else f"{state}, {found.value}"


def _certainty(status: MembersStatus) -> str:
    """Return how far the figures of a status are to be believed."""
    if status.compared_at is None:
        return "listings are not compared yet, so it may be more"
    return f"listings were compared {max(0.0, time.time() - status.compared_at):.0f} s ago"


def _seen(status: MemberStatus | None) -> tuple[Any, ...]:
    if status is None:
        return (None, None, None, None, None, "")
    age = status.refs_age_seconds
    return (
        status.is_reachable, Size(status.owed_bytes), Size(status.sole_bytes), status.refs_behind,
        None if age is None else round(age), status.error,
    )  # fmt: skip


class CreateMembers(command.Command):
    """Make the stores of [origin] members one origin; the first is its home.

    It holds the repository. The others must be empty, and are filled by the registrar that leads.
    Repeating it does no harm. Restart the services of all hosts afterwards.
    """

    def take_action(self, parsed_args: argparse.Namespace) -> None:
        """Mark them."""
        addresses = configured_members(repository_access.configuration(self.app))
        with contextlib.ExitStack() as opened:
            stores = {
                one.name: opened.enter_context(contextlib.closing(open_in_time(one.name, one.url)))
                for one in addresses
            }
            home = addresses[0].name
            Repository.open(stores[home])
            note_format(stores[home])
            for name in set(stores) - {home}:
                _require_empty(name, stores[name])
            record = Membership(home, stores).create()
        self.app.stdout.write(f"origin {record.origin} has {len(record.members)} members\n")
        for name in stores.keys() - record.members.keys():
            self.app.stdout.write(f"{name} is none of them: 'acstor origin join {name}'\n")


def _require_empty(name: str, store: Origin) -> None:
    """Refuse a store in which is anything; one that is a member already is none of these.

    :raises ConflictError: when there is, also what an interrupted copy has left.
    """
    if read_mark(store)[0] is not None:
        return
    found = next(iter(store.list()), None) or next(iter(store.list_refs()), None)
    if found is not None:
        raise exception.ConflictError(
            f"the store of member {name} is not empty: there is {found}",
            hint="a member begins empty: name another directory or namespace",
        )


def _volumes_in(home: Origin, name: str) -> list[str]:
    """Return the volumes that write to a member, or are to."""
    records = VolumeStore(Repository.open(home))
    return [one.id for one in records.list() if name in one.record.written_members]


class MemberCommand(command.Command):
    """Base of those that name one member."""

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        """Describe the arguments."""
        parser: argparse.ArgumentParser = super().get_parser(prog_name)
        parser.add_argument("name", metavar="NAME", help="name of the member")
        return parser

    def _change(self, name: str, event: MemberEvent) -> None:
        """Change the state of a member, and say it."""
        with _membership(repository_access.configuration(self.app)) as (membership, _):
            state = membership.change(name, event).members[name].state
        self.app.stdout.write(f"member {name} is {state.value}\n")


class JoinMember(MemberCommand):
    """Make one more store a member; it is filled, and then in use.

    Name it in [origin] members on all hosts before; restart the data planes once it is active.
    """

    def take_action(self, parsed_args: argparse.Namespace) -> None:
        """Mark it."""
        name = parsed_args.name
        conf = repository_access.configuration(self.app)
        with _membership(conf, name) as (membership, _):
            url = next(one.url for one in configured_members(conf) if one.name == name)
            with contextlib.closing(open_in_time(name, url)) as store:
                _require_empty(name, store)
            membership.join(name)
        self.app.stdout.write(f"member {name} is joining; 'acstor origin list' shows how far\n")


class DrainMember(MemberCommand):
    """Have a member get nothing new; what it alone has is copied to the others.

    Volumes that write to it go on there until they are moved: 'acstor assignment move'.
    """

    def take_action(self, parsed_args: argparse.Namespace) -> None:
        """Change its state, and say which volumes have to leave it."""
        name = parsed_args.name
        self._change(name, MemberEvent.DRAIN)
        with opened_home(repository_access.configuration(self.app)) as (_, store):
            volumes = _volumes_in(store, name)
        if volumes:
            self.app.stdout.write(
                f"{len(volumes)} volumes write to it or are to, {volumes[0]} for one: "
                "'acstor assignment move' has them go elsewhere when they are opened next\n"
            )


class KeepMember(MemberCommand):
    """Give up draining a member: it is in use again."""

    def take_action(self, parsed_args: argparse.Namespace) -> None:
        """Change its state."""
        self._change(parsed_args.name, MemberEvent.KEEP)


class RemoveMember(MemberCommand):
    """Take a member away that is drained, failed or joining. Its name is never used again.

    Refused while it alone has something of an image or a volume, or volumes write to it. Then take
    it out of [origin] members on all hosts and restart their services; last, its store may be
    deleted.
    """

    def take_action(self, parsed_args: argparse.Namespace) -> None:
        """Look what it alone has, and change its state."""
        name = parsed_args.name
        conf = repository_access.configuration(self.app)
        with _membership(conf) as (_, record):
            entry = record.members.get(name)
        if entry is not None and entry.state in USED:
            _require_drained(conf, name)
        self._change(name, MemberEvent.REMOVE)


def _require_drained(conf: Any, name: str) -> None:
    """Refuse to take a member away that alone has something.

    :raises ConflictError: when it has.
    """
    with opened_members(conf) as origin:
        found = find_sole(origin, name)
        use = find_use(origin, name)
    if use.volumes:
        raise exception.ConflictError(
            f"{len(use.volumes)} volumes write to member {name}, seal a log in it or are to write "
            f"to it, {use.volumes[0]} for one",
            hint="move them ('acstor assignment move'), and open them again, or have them settled",
        )
    if use.sole_logs:
        raise exception.ConflictError(
            f"{use.sole_logs} objects of logs are in member {name} alone, {use.example} for one",
            hint="wait until the registrar that leads has copied them: 'acstor assignment list'",
        )
    if found.count:
        raise exception.ConflictError(
            f"{found.count} objects are in member {name} alone, {found.example} for one",
            hint="wait until the registrar that leads has copied them: 'acstor origin list'",
        )


class FailMember(MemberCommand):
    """Give a member up for lost. What it alone has is lost with it.

    Say how much that is, as 'acstor origin list' shows it: nobody is asked afterwards. Volumes that
    write to it are lost as a whole: where their logs end, nobody else can say. Their snapshots stay
    as far as other members have them.
    """

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        """Describe the arguments."""
        parser = super().get_parser(prog_name)
        parser.add_argument(
            "--lost-bytes",
            type=int,
            metavar="N",
            help="bytes that are lost with it, to confirm that you know",
        )
        parser.add_argument(
            "--lost-volumes",
            type=int,
            default=0,
            metavar="N",
            help="volumes that cannot be opened any more, likewise; 0 where none writes to it",
        )
        return parser

    def take_action(self, parsed_args: argparse.Namespace) -> None:
        """Compare what was confirmed with what is known, and change its state."""
        name = parsed_args.name
        with opened_home(repository_access.configuration(self.app)) as (_, store):
            status = read_status(store)
            volumes = _sealed_in(VolumeStore(Repository.open(store)), name)
        seen = None if status is None else status.members.get(name)
        if seen is None or status is None:
            lost, more = 0, "what it alone has is not known: no registrar has looked at it"
        else:
            lost = seen.sole_bytes
            more = f"{lost} bytes of images and volumes are lost with it; {_certainty(status)}"
        confirmation = f"--lost-bytes {lost}"
        if volumes:
            confirmation += f" --lost-volumes {len(volumes)}"
            more += (
                f"; {len(volumes)} volumes that write to it, {volumes[0]} for one, cannot be "
                "opened any more"
            )
        if (parsed_args.lost_bytes, parsed_args.lost_volumes) != (lost, len(volumes)):
            raise exception.ConflictError(
                f"giving up member {name} was not confirmed: {more}",
                hint=f"if it is gone for good, repeat this with {confirmation}",
            )
        self._change(name, MemberEvent.FAIL)


def _sealed_in(store: VolumeStore, name: str) -> list[str]:
    """Return the volumes whose last epoch can be ended in one member alone.

    One that is to write there next, and does not yet, can be assigned to another one.
    """
    return sorted(
        one.id for one in store.list() if name in (one.record.member, one.record.unsealed_member)
    )
