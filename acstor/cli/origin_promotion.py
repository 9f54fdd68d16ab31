"""``acstor origin promote``: another member becomes the home, after the home was lost."""

import argparse
import contextlib
import datetime
import json
import pathlib
from collections.abc import Sequence

from acstor import exception
from acstor.cli import repository_access
from acstor.cli.origin import MemberCommand, configured_members
from acstor.origin.replicated.member_calls.store import ANSWER_SECONDS, MemberOrigin, open_in_time
from acstor.origin.replicated.member_records import MembersRecord, read_mark
from acstor.origin.replicated.members import MemberAddress
from acstor.origin.replicated.promotion.new_home import HomeState
from acstor.repository import layout, progress
from acstor.repository.promotion.promotion import MEMBER_SECONDS, Promotion
from acstor.repository.promotion.survey import Survey

NAMES_SHOWN = 20
"""Names of what is lost that are shown of each kind; --report writes all."""
UNKNOWN_TIME = "unknown"
_KINDS = (
    ("images", layout.IMAGE_PREFIX),
    ("volumes", layout.VOLUME_PREFIX),
    ("snapshots", layout.SNAPSHOT_PREFIX),
    ("versions", layout.VERSION_PREFIX),
)


class PromoteMember(MemberCommand):
    """Make a member the home of the refs, after the home was lost for good.

    First without --confirm: it says what is kept and what is lost, and changes nothing. The former
    home must be off, and stay off; so must all services and data planes that use it. Its volumes'
    logs are lost: volumes fall back to their last fold, or are left out. Afterwards name this
    member first in [origin] members on all hosts, take the former home out, and start them again.
    """

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        """Describe the arguments."""
        parser = super().get_parser(prog_name)
        parser.add_argument(
            "--confirm",
            metavar="CODE",
            help="code that this command shows, to confirm that you know what is lost; another "
            "loss has another code",
        )
        parser.add_argument(
            "--volumes",
            choices=("revert", "leave"),
            help="revert: volumes whose logs are lost fall back to their last fold; leave: they "
            "are left out, and what was stored of them is collected",
        )
        parser.add_argument(
            "--report",
            metavar="FILE",
            help="write the names of all that is lost or falls back to this file, as JSON",
        )
        return parser

    def take_action(self, parsed_args: argparse.Namespace) -> None:
        """Say what is lost, compare it with what was confirmed, and promote."""
        name = parsed_args.name
        addresses = configured_members(repository_access.configuration(self.app))
        stores, silent = _reachable(addresses)
        for one, reason in silent.items():
            self.app.stdout.write(f"{one} is not used: {reason}\n")
        with contextlib.ExitStack() as opened:
            for store in stores.values():
                opened.callback(store.close)
            if name not in stores:
                raise exception.UnavailableError(
                    f"member {name} cannot be reached, or is not in [origin] members of this host",
                    hint="promote a member that can",
                )
            shown = opened.enter_context(progress.for_stream(self.app.stderr))
            members = {one: store.member for one, store in stores.items()}
            promotion = Promotion(name, members, progress=shown)
            self._promote(promotion, set(stores), parsed_args)

    def _promote(
        self, promotion: Promotion, answering: set[str], arguments: argparse.Namespace
    ) -> None:
        name = arguments.name
        if promotion.home.state() is HomeState.HOME:
            self._say(name, promotion.follow(), promotion)
            return
        survey = promotion.survey()
        for one in sorted(answering - set(survey.members)):
            self.app.stdout.write(f"{one} is not used: it is not the member of that name\n")
        self._show(survey)
        if arguments.report is not None:
            _write_report(arguments.report, survey)
        _require_confirmed(name, survey, arguments)
        record = promotion.run(survey, reverts_volumes=arguments.volumes == "revert")
        for key, reason in promotion.damages.items():
            self.app.stdout.write(f"{key} is in no member as it should be: {reason}\n")
        self._say(name, record, promotion)

    def _show(self, survey: Survey) -> None:
        write = self.app.stdout.write
        write(f"copies of the refs as of {_time(survey)} or later\n")
        write(f"members: {', '.join(survey.members)}\n")
        for kind, prefix in _KINDS:
            lost = survey.count_lost(prefix)
            write(f"{kind}: {survey.count(prefix)} kept, {lost} lost\n")
        if survey.reverted:
            write(f"volumes that fall back to their last fold: {len(survey.reverted)}\n")
            self._show_names(survey.reverted)
        if survey.lost:
            write("lost:\n")
            self._show_names([f"{one.name}: {one.what}" for one in survey.lost])
        if survey.copies_damaged:
            write(f"damaged copies of refs, whose names are not known: {survey.copies_damaged}\n")
        if survey.unknown:
            write("left out, as this release does not know what they are:\n")
            self._show_names(survey.unknown)

    def _show_names(self, names: Sequence[str]) -> None:
        for name in names[:NAMES_SHOWN]:
            self.app.stdout.write(f"  {name}\n")
        if len(names) > NAMES_SHOWN:
            self.app.stdout.write(f"  and {len(names) - NAMES_SHOWN} more: see --report\n")

    def _say(self, name: str, record: MembersRecord, promotion: Promotion) -> None:
        self.app.stdout.write(
            f"member {name} is the home of origin {record.origin}\n"
            f"name it first in [origin] members on all hosts, without {promotion.former_home}, "
            "and start services and data planes again; if it is the only one that is left, make it "
            "[origin] url, and members empty\n"
        )
        for stranger in promotion.home.strangers(record):
            self.app.stdout.write(
                f"{stranger} does not follow yet: repeat this once it is there as it should be\n"
            )


def _reachable(
    addresses: tuple[MemberAddress, ...],
) -> tuple[dict[str, MemberOrigin], dict[str, str]]:
    """Return the stores that answer, and of the others the reasons why they do not."""
    found, silent = {}, {}
    for one in addresses:
        try:
            store = open_in_time(one.name, one.url, call_seconds=MEMBER_SECONDS)
        except exception.AcstorError as error:
            silent[one.name] = exception.one_line(error)
            continue
        try:
            store.member.call(read_mark, seconds_max=ANSWER_SECONDS)
        except exception.AcstorError as error:
            store.close()
            silent[one.name] = exception.one_line(error)
        else:
            found[one.name] = store
    return found, silent


def _write_report(path: str, survey: Survey) -> None:
    """Write what is lost or falls back, with all names.

    :raises InvalidError: when the file cannot be written.
    """
    fields = {
        "as_of": _time(survey),
        "members": list(survey.members),
        "reverted": list(survey.reverted),
        "lost": {one.name: one.what for one in survey.lost},
        "unknown": list(survey.unknown),
    }
    try:
        pathlib.Path(path).write_text(json.dumps(fields, indent=2) + "\n")
    except OSError as error:
        raise exception.InvalidError(f"{path}: {error.strerror}") from error


def _require_confirmed(name: str, survey: Survey, arguments: argparse.Namespace) -> None:
    """Compare what was confirmed with what is lost.

    :raises ConflictError: when it was not confirmed.
    """
    if survey.reverted and arguments.volumes is None:
        raise exception.ConflictError(
            f"what becomes of {len(survey.reverted)} volumes whose logs are lost was not said",
            hint="repeat this with --volumes revert, or --volumes leave, which has what was "
            "stored of them collected",
        )
    if arguments.confirm != survey.code:
        raise exception.ConflictError(
            f"the promotion of {name} was not confirmed: what is said above is lost, and what was "
            f"written since {_time(survey)}",
            hint="if the home is gone for good and switched off, repeat this with --confirm "
            f"{survey.code}",
        )


def _time(survey: Survey) -> str:
    if survey.as_of is None:
        return UNKNOWN_TIME
    moment = datetime.datetime.fromtimestamp(survey.as_of, datetime.UTC)
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ")
