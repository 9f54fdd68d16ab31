"""``acstor origin sleep``, ``wake`` and ``power``: members that sleep."""

import argparse
import contextlib
import dataclasses
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from cliff import lister, show

from acstor import exception
from acstor.cli import repository_access
from acstor.cli.columns import Fields
from acstor.cli.origin import MemberCommand, opened_home
from acstor.cluster.decision_journal import read_records
from acstor.origin import ref_replacement
from acstor.origin.base import Origin
from acstor.origin.replicated.members_status import PowerStatus, read_status
from acstor.origin.replicated.power.deciding import (
    PowerDecision,
    PowerInputs,
    decide,
    load_policy,
)
from acstor.origin.replicated.power.machines import MachineSettings
from acstor.origin.replicated.power.power_keeping import RECORD_KIND, inputs_of
from acstor.origin.replicated.power.record import (
    ALL_AWAKE,
    AWAKE,
    POWER_REF,
    Desired,
    PowerEntry,
    PowerRecord,
    read_power,
)
from acstor.origin.replicated.power.replaying import replay_power
from acstor.origin.replicated.power.states import SYNCHRONISED, PowerEvent, PowerState
from acstor.origin.replicated.view import MembersView
from acstor.registrar.member_power import PowerParts, power_parts
from acstor.repository.volumes.log_places import RecordedLogs

_UNKNOWN_STATUS = PowerStatus("", "", "", None, None, "", "no registrar has decided anything yet")

Table = tuple[tuple[str, ...], list[Any]]


@dataclasses.dataclass(frozen=True)
class _Members:
    """Members of the origin as a command sees them."""

    home: Origin
    view: MembersView
    parts: PowerParts

    def require(self, name: str) -> MachineSettings | None:
        """Return the machine of a member.

        :raises NotFoundError: when there is no such member.
        :raises ConflictError: when it is the home.
        """
        if name not in self.view.used:
            raise exception.NotFoundError(
                f"the origin has no member {name}", hint="see 'acstor origin list'"
            )
        if name == self.view.home:
            raise exception.ConflictError(
                f"{name} is the home of the refs", hint="the home is always on"
            )
        return self.parts.machines.get(name)

    def change(self, name: str, changed: Callable[[PowerRecord], PowerEntry]) -> PowerEntry:
        """Change the entry of a member, and return it."""
        entry = AWAKE

        def content(before: bytes | None) -> bytes:
            nonlocal entry
            record = ALL_AWAKE if before is None else PowerRecord.parse(before)
            entry = changed(record)
            return record.with_entry(name, entry).encode()

        ref_replacement.change(self.home, POWER_REF, content)
        return entry

    def inputs(self) -> PowerInputs:
        """Return what a decision would be made from now, the budget included."""
        status = read_status(self.home)
        seen = {} if status is None else status.members
        away = {
            name: one.error
            for name, one in seen.items()
            if not one.is_reachable and one.power in SYNCHRONISED
        }
        kept = self.parts.budget()
        budget = None if kept is None else kept.read().value
        record, _ = read_power(self.home)
        parts = self.parts
        return inputs_of(
            self.view,
            record,
            parts.machines,
            parts.settings,
            budget,
            time.time(),
            away,
            self.written,
        )

    @property
    def written(self) -> Callable[[str], bool]:
        """Says whether volumes write to a member, by their records at this moment."""
        logs = RecordedLogs(self.home, lambda: self.view.home)
        logs.refresh()
        return logs.is_written


@contextlib.contextmanager
def _members(app: Any) -> Iterator[_Members]:
    conf = repository_access.configuration(app)
    with opened_home(conf) as (name, home):
        yield _Members(home, MembersView(name, home), power_parts(conf))


class SleepMember(MemberCommand):
    """Have a member sleep, until it is woken: what it alone has is copied away, then it is off.

    The registrar that leads does it; 'acstor origin power' shows how far it is. An alarm of the
    member is cleared, so that it is tried again.
    """

    def take_action(self, parsed_args: argparse.Namespace) -> None:
        """Change the record."""
        name = parsed_args.name
        with _members(self.app) as members:
            machine = members.require(name)
            if machine is None or machine.driver is None:
                raise exception.ConflictError(
                    f"nobody can switch member {name}: it has no driver",
                    hint="describe its machine in the file of [power] members_file",
                )

            if members.written(name):
                raise exception.ConflictError(
                    f"volumes write to member {name}, or are to",
                    hint="'acstor assignment list' shows them; move them with 'acstor assignment "
                    "move', and open them again or have them settled",
                )

            def asleep(record: PowerRecord) -> PowerEntry:
                _require_enough(members, record, name)
                return dataclasses.replace(record.entry(name), desired=Desired.ASLEEP, alarm="")

            entry = members.change(name, asleep)
        self.app.stdout.write(f"member {name} is {entry.state.value}, and shall sleep\n")


def _require_enough(members: _Members, record: PowerRecord, name: str) -> None:
    """Refuse to have fewer members on than always are.

    :raises ConflictError: then.
    """
    least = members.parts.settings.members_min
    others = [
        one
        for one in members.view.used
        if one != name
        and record.state(one) is PowerState.ACTIVE
        and record.entry(one).desired is not Desired.ASLEEP
    ]
    if len(others) < least:
        raise exception.ConflictError(
            f"without member {name} {len(others)} would be on, and {least} always are",
            hint="wake another one first, or lower [power] members_min",
        )


class WakeMember(MemberCommand):
    """Have a member be on, whatever the budget says; with --auto: leave it to the policy again.

    An alarm of the member is cleared, so that it is tried again.
    """

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        """Describe the arguments."""
        parser = super().get_parser(prog_name)
        parser.add_argument(
            "--auto", action="store_true", help="have the policy decide of it from now on"
        )
        return parser

    def take_action(self, parsed_args: argparse.Namespace) -> None:
        """Change the record."""
        name = parsed_args.name
        desired = None if parsed_args.auto else Desired.AWAKE

        def awake(record: PowerRecord) -> PowerEntry:
            entry = dataclasses.replace(record.entry(name), desired=desired, alarm="")
            if entry.state is PowerState.STUCK:
                entry = entry.after(PowerEvent.WAKE, time.time())
            return entry

        with _members(self.app) as members:
            members.require(name)
            entry = members.change(name, awake)
        by = "as the policy decides" if parsed_args.auto else "and shall be on"
        self.app.stdout.write(f"member {name} is {entry.state.value}, {by}\n")


class ShowPower(show.ShowOne):
    """Show the budget of power as the registrar that leads knows it, and who sleeps.

    A budget that is unknown has all members woken.
    """

    def take_action(
        self, parsed_args: argparse.Namespace
    ) -> tuple[tuple[str, ...], tuple[Any, ...]]:
        """Return the fields."""
        del parsed_args
        with _members(self.app) as members:
            status, (record, _) = read_status(members.home), read_power(members.home)
            power = (status.power if status is not None else None) or _UNKNOWN_STATUS
            shown = {
                name: _shown(record.entry(name), members.parts.machines.get(name))
                for name in members.view.used
            }
        known = [one["watts"] for one in shown.values() if one["power"] != PowerState.OFF]
        watts = sum(known) if None not in known else None
        return (
            "policy", "budget", "unit", "source", "age_seconds", "problem", "reason", "watts_on",
            "members",
        ), (
            power.policy, power.budget, power.unit, power.source, power.age_seconds, power.error,
            power.reason, watts, Fields(shown),
        )  # fmt: skip


def _shown(entry: PowerEntry, machine: MachineSettings | None) -> dict[str, Any]:
    return {
        "power": entry.state.value,
        "seconds": round(max(0.0, time.time() - entry.since)) if entry.since else None,
        "watts": None if machine is None else machine.watts,
        "is_switchable": machine is not None and machine.driver is not None,
        "desired": None if entry.desired is None else entry.desired.value,
        "attempts": entry.attempts,
        "alarm": entry.alarm,
    }


class ExplainPower(lister.Lister):
    """Explain why each member shall be on or off: what would be decided now, or was decided last.

    Changes nothing.
    """

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        """Take the journal."""
        parser: argparse.ArgumentParser = super().get_parser(prog_name)
        parser.add_argument(
            "--journal", metavar="FILE", help="explain the last decision in this journal"
        )
        return parser

    def take_action(self, parsed_args: argparse.Namespace) -> Table:
        """Return the table."""
        if parsed_args.journal:
            found = None
            for record in read_records(parsed_args.journal):
                found = record if record.get("kind") == RECORD_KIND else found
            if found is None:
                raise exception.NotFoundError(f"{parsed_args.journal} has no such decision")
            replayed = replay_power(found)
            return self.explained(replayed.inputs, replayed.decision)
        with _members(self.app) as members:
            inputs = members.inputs()
            return self.explained(inputs, decide(inputs, members.parts.policy))

    def explained(self, inputs: PowerInputs, decision: PowerDecision) -> Table:
        """Return the table of a decision."""
        self.app.stderr.write(f"{decision.reason}\n")
        return ("Name", "Power", "For (s)", "Watts", "Shall Be", "Why", "Now"), [
            (
                one.name,
                one.state.value,
                round(one.seconds) if one.seconds < time.time() / 2 else None,
                one.watts,
                "on" if decision.members[one.name].is_on else "off",
                decision.members[one.name].why.value,
                _now(decision, one.name),
            )
            for one in inputs.members
        ]


def _now(decision: PowerDecision, name: str) -> str:
    """Return what is done about a member now."""
    if decision.change is not None and decision.change[0] == name:
        return decision.change[1].value
    waits_for = decision.members[name].waits_for
    return f"waits: {waits_for}" if waits_for else ""


class DryRunPower(ExplainPower):
    """Show what would be decided with another budget, policy or minimum. Changes nothing."""

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        """Take what shall be otherwise."""
        parser: argparse.ArgumentParser = lister.Lister.get_parser(self, prog_name)
        parser.add_argument("--budget", type=float, metavar="N", help="in the unit of the budget")
        parser.add_argument("--policy", metavar="NAME", help="plug-in; default: [power] policy")
        parser.add_argument("--members-min", type=int, metavar="N", help="members always on")
        return parser

    def take_action(self, parsed_args: argparse.Namespace) -> Table:
        """Return the table."""
        changes: Mapping[str, Any] = {
            "policy": parsed_args.policy, "members_min": parsed_args.members_min
        }  # fmt: skip
        given = {name: value for name, value in changes.items() if value is not None}
        with _members(self.app) as members:
            inputs = members.inputs()
        settings = dataclasses.replace(inputs.settings, **given)
        budget = inputs.budget if parsed_args.budget is None else parsed_args.budget
        inputs = dataclasses.replace(inputs, settings=settings, budget=budget)
        return self.explained(inputs, decide(inputs, load_policy(settings.policy)))


class ReplayPower(lister.Lister):
    """Compute the decisions of a journal again, and tell where something else comes out.

    For a journal of this release and its plug-ins nothing does. The exit status is 1 where
    something did.
    """

    has_differences = False

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        """Take the journal."""
        parser: argparse.ArgumentParser = super().get_parser(prog_name)
        parser.add_argument(
            "journal", nargs="?", help="by default [power] journal_path on this machine"
        )
        return parser

    def take_action(self, parsed_args: argparse.Namespace) -> Table:
        """Return the table."""
        conf = repository_access.configuration(self.app)
        rows = []
        for record in read_records(parsed_args.journal or conf.power.journal_path):
            if record.get("kind") != RECORD_KIND:
                continue
            found = replay_power(record)
            change = found.recorded.get("change")
            now = "; ".join(found.differences[:5]) or "same"
            rows.append((found.at_ms, " ".join(change or ("nothing",)), now))
        self.has_differences = any(row[-1] != "same" for row in rows)
        return ("At ms", "Change", "Now"), rows

    def run(self, parsed_args: argparse.Namespace) -> int:
        """Run; the status tells whether everything came out the same."""
        status = int(super().run(parsed_args) or 0)
        return 1 if self.has_differences else status
