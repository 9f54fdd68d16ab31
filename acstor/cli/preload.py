"""``acstor image preload`` and ``acstor preload ...``: images on hosts before they are needed."""

import argparse
import math
import re
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from cliff import lister

from acstor import exception
from acstor.cli import deployment, preload_view
from acstor.cli.columns import Share, Size
from acstor.cluster import member_list
from acstor.cluster.member import Member
from acstor.conf.types import KIB, ByteSize
from acstor.control.protocol import PRELOAD_RATE_MAX, PreloadWhat
from acstor.preload import admission, many_hosts
from acstor.preload.admission import Reason, Verdict
from acstor.preload.many_hosts import HostPreload, Progress
from acstor.preload.request import DEADLINE_MAX, DEADLINE_MIN, RATE_MIN, PreloadRequest
from acstor.preload.states import AdmittedPreloadState
from acstor.repository import layout
from acstor.repository.images import working_set
from acstor.repository.repository import Repository
from acstor.rpc import transport
from acstor.rpc.agent_client import AgentClient
from acstor.rpc.signature import Signer, secrets_of

LOOK_SECONDS = 0.5
PROGRESS_TIMEOUT_MAX = 5.0
"""Longest wait for one host's progress, seconds; it is asked again."""

_DURATION = re.compile(r"(?:(\d+)h)?(?:(\d+)m)?(?:(\d+(?:\.\d+)?)s?)?")
COLUMNS = (
    "Host", "Image", "What", "State", "Done", "Bytes", "Remaining", "Rate", "Limit", "To go s",
    "Deadline s", "Pinned", "Note",
)  # fmt: skip


def rows(hosts: Sequence[HostPreload]) -> list[tuple[Any, ...]]:
    """Return the table's rows."""
    return [
        (
            host.host,
            host.image,
            host.what,
            str(host.state),
            Share(round(host.share, 4)),
            Size(host.total_bytes),
            Size(host.remaining_bytes),
            Size(host.recent_bytes_per_s),
            Size(host.rate_bytes_per_s),
            None if host.eta_s is None else round(host.eta_s, 1),
            None if host.deadline_s is None else round(host.deadline_s, 1),
            host.pin,
            preload_view.note(host),
        )
        for host in hosts
    ]


@contextmanager
def _agents(conf: Any, timeout: float) -> Iterator[AgentClient]:
    secrets = secrets_of(conf)
    with transport.opened(conf) as opened:
        yield AgentClient(opened, timeout, Signer(secrets[0] if secrets else None))


def _add_hosts(parser: argparse.ArgumentParser, *, is_required: bool) -> None:
    chosen = parser.add_mutually_exclusive_group(required=is_required)
    chosen.add_argument(
        "--hosts", type=_names, metavar="HOST[,HOST...]", help="as 'acstor host list' shows them"
    )
    chosen.add_argument(
        "--aggregate", metavar="NAME", help="the hosts of a host aggregate of Nova, name or number"
    )
    chosen.add_argument(
        "--all-hosts", action="store_true", help="every host that is alive and not drained"
    )


def _hosts(
    conf: Any, parsed_args: argparse.Namespace, members: dict[str, Member], *, default_all: bool
) -> list[str]:
    """Return the names of the hosts that a command is about."""
    if parsed_args.hosts:
        return list(parsed_args.hosts)
    if parsed_args.aggregate:
        from acstor.cli import aggregates

        return aggregates.hosts_of(conf, parsed_args.aggregate)
    found = sorted(
        name for name, member in members.items() if default_all or not member.is_draining
    )
    if not found:
        raise exception.NotFoundError("no host is alive", hint="start acstor-agent on the hosts")
    return found


class PreloadImage(lister.Lister):
    """Bring an image, or what its boots read, to hosts before instances need it.

    Each host first says whether it can be done in time, and nothing begins anywhere unless all can.
    '--rate' is per host. With a deadline and no rate, each host takes the rate that the deadline
    needs, and catches up what its guests have cost. Guests always go first.

    Exit status 5 when a host has failed, or has missed the deadline. Interrupting the command
    leaves the preload running: see 'acstor preload list' and 'acstor preload stop'.
    """

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        """Describe the arguments."""
        parser: argparse.ArgumentParser = super().get_parser(prog_name)
        parser.add_argument("image", metavar="UUID", help="id of the image")
        _add_hosts(parser, is_required=True)
        what = parser.add_mutually_exclusive_group()
        what.add_argument(
            "--working-set",
            dest="what",
            action="store_const",
            const=PreloadWhat.WORKING_SET,
            default=PreloadWhat.WORKING_SET,
            help="what boots of the image have read so far (this is the default)",
        )
        what.add_argument(
            "--full",
            dest="what",
            action="store_const",
            const=PreloadWhat.FULL,
            help="the whole image",
        )
        parser.add_argument(
            "--rate",
            type=_rate,
            metavar="BYTES",
            help="most bytes per second of each host, such as 50MiB; a rate that is given is kept",
        )
        parser.add_argument(
            "--deadline",
            type=duration,
            metavar="TIME",
            help="time from now until everything must be there: 90, 90s, 10m or 1h30m",
        )
        parser.add_argument(
            "--pin",
            action="store_true",
            help="keep it on the hosts until 'acstor preload stop', whatever else comes",
        )
        parser.add_argument(
            "--wait",
            action=argparse.BooleanOptionalAction,
            default=True,
            help="wait until all hosts have it, showing progress on stderr (default: --wait)",
        )
        return parser

    def take_action(self, parsed_args: argparse.Namespace) -> tuple[Any, Any]:
        """AdmittedPreload, begin, wait; return the table."""
        conf = deployment.configuration(self.app)
        request = PreloadRequest(
            image=layout.canonical_image_id(parsed_args.image),
            what=parsed_args.what,
            rate_bytes_per_s=parsed_args.rate,
            deadline_s=parsed_args.deadline,
            pin=parsed_args.pin,
        )
        transport.require(conf)
        _check_image(conf, request)
        members = member_list.list_members(conf)
        hosts = _hosts(conf, parsed_args, members, default_all=False)
        with _agents(conf, conf.preload.call_timeout) as agents:
            verdicts = many_hosts.ask(agents, request, hosts, members)
            if any(verdict.reason is not None for verdict in verdicts):
                self._refuse(request, verdicts)
            begun = many_hosts.begin(agents, request, hosts)
        self._found = list(begun.values())
        if parsed_args.wait:
            timeout = min(conf.preload.call_timeout, PROGRESS_TIMEOUT_MAX)
            with _agents(conf, timeout) as agents:
                self._found = self._follow(agents, request, begun)
        return COLUMNS, rows(self._found)

    def run(self, parsed_args: argparse.Namespace) -> int:
        """Print the table, then fail if a host has."""
        super().run(parsed_args)
        failed = [host for host in self._found if _has_failed(host)]
        if failed:
            what = "; ".join(preload_view.line(host) for host in failed[:3])
            raise exception.DeadlineError(
                f"{len(failed)} of {len(self._found)} hosts have not completed it: {what}",
                hint=f"'acstor preload show {failed[0].image}' shows how they are",
            )
        return 0

    def _refuse(self, request: PreloadRequest, verdicts: Sequence[Verdict]) -> None:
        refusing = [verdict for verdict in verdicts if verdict.reason is not None]
        for verdict in refusing:
            self.app.stderr.write(f"{verdict.host}: refused: {verdict.text}\n")
        raise _error(refusing)(
            f"{len(refusing)} of {len(verdicts)} hosts cannot admit it, nothing was begun",
            hint=hint(request, verdicts),
        )

    def _follow(
        self, agents: AgentClient, request: PreloadRequest, begun: dict[str, HostPreload]
    ) -> list[HostPreload]:
        progress = Progress(agents, begun)
        try:
            with preload_view.for_stream(self.app.stderr) as view:
                view.show(progress.hosts)
                while not progress.is_settled:
                    time.sleep(LOOK_SECONDS)
                    progress.poll()
                    view.show(progress.hosts)
        except KeyboardInterrupt:
            self.app.stderr.write(
                f"\nthe preload goes on: 'acstor preload show {request.image}' shows it, "
                f"'acstor preload stop {request.image}' stops it\n"
            )
            raise
        finally:
            progress.close()
        return progress.hosts


class _Told(lister.Lister):
    """Asks hosts for their preloads."""

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        """Take the hosts."""
        parser: argparse.ArgumentParser = super().get_parser(prog_name)
        _add_hosts(parser, is_required=False)
        return parser

    def ask(
        self, parsed_args: argparse.Namespace, method: str, **arguments: object
    ) -> list[HostPreload]:
        """Return what the hosts answer; who does not is named on stderr.

        Answers that there is nothing are left out.

        :raises UnavailableError: when nobody answers.
        """
        conf = deployment.configuration(self.app)
        transport.require(conf)
        members = member_list.list_members(conf)
        hosts = _hosts(conf, parsed_args, members, default_all=True)
        with _agents(conf, conf.preload.call_timeout) as agents:
            answers = agents.call_all(hosts, method, dict.fromkeys(hosts, arguments))
        found: list[HostPreload] = []
        errors = []
        for host, answer in answers.items():
            try:
                if answer.error is not None:
                    raise answer.error
                found += many_hosts.told(host, answer.result)
            except exception.NotFoundError:
                continue
            except exception.AcstorError as error:
                self.app.stderr.write(f"{host}: {error.message}\n")
                errors.append(error)
        if len(errors) == len(hosts):
            raise errors[0]
        return found


class ListPreloads(_Told):
    """List the preloads of all hosts, also those that ended lately."""

    def take_action(self, parsed_args: argparse.Namespace) -> tuple[Any, Any]:
        """Return the table."""
        return COLUMNS, rows(self.ask(parsed_args, "preload_status"))


class _ToldOfImage(_Told):
    """Asks hosts for their preloads of one image."""

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        """Take the image too."""
        parser = super().get_parser(prog_name)
        parser.add_argument("image", metavar="UUID", help="id of the image")
        return parser

    def ask_of_image(
        self, parsed_args: argparse.Namespace, method: str, *, since: str = ""
    ) -> tuple[Any, Any]:
        """Return the table of what the hosts answer.

        :param since: ends the message when there is nothing.
        :raises NotFoundError: when no host has a preload of the image.
        """
        image = layout.canonical_image_id(parsed_args.image)
        found = self.ask(parsed_args, method, image=image)
        if not found:
            raise exception.NotFoundError(
                f"no host preloads image {image}{since}",
                hint="'acstor preload list' shows what is preloaded",
            )
        return COLUMNS, rows(found)


class ShowPreload(_ToldOfImage):
    """Show how far the hosts are with one image."""

    def take_action(self, parsed_args: argparse.Namespace) -> tuple[Any, Any]:
        """Return the table."""
        return self.ask_of_image(parsed_args, "preload_status", since=", or did lately")


class StopPreload(_ToldOfImage):
    """Stop preloading an image, on all hosts or some. What is there stays, but is not pinned."""

    def take_action(self, parsed_args: argparse.Namespace) -> tuple[Any, Any]:
        """Return the hosts that have stopped."""
        return self.ask_of_image(parsed_args, "preload_stop")


def hint(request: PreloadRequest, verdicts: Sequence[Verdict]) -> str:
    """Return what would do, where there is such a thing."""
    suggestion = admission.suggest(request, verdicts)
    ways = []
    if suggestion.rate_bytes_per_s is not None:
        ways.append(f"--rate {_rounded(suggestion.rate_bytes_per_s, verdicts)}")
    if suggestion.deadline_s is not None:
        ways.append(f"--deadline {suggestion.deadline_s:.0f}s")
    if ways:
        return f"{' or '.join(ways)} would do, with the rest as it is"
    reasons = {verdict.reason for verdict in verdicts} - {None}
    if reasons <= {Reason.SILENT, Reason.DRAINING, Reason.ACTIVE}:
        return "leave these hosts out, or see 'acstor host list' and 'acstor preload list'"
    if Reason.UNKNOWN in reasons:
        return "boot one instance from the image first, or use --full; new images take some seconds"
    return "ask for less, or for fewer hosts"


def _rounded(rate: int, verdicts: Sequence[Verdict]) -> str:
    """Return a rate in whole KiB where every host still has that much."""
    up = math.ceil(rate / KIB)
    is_there = all(each.left_rate is None or each.left_rate >= up * KIB for each in verdicts)
    return f"{up}KiB" if is_there else str(rate)


def _check_image(conf: Any, request: PreloadRequest) -> None:
    """Refuse what no host could admit."""
    with deployment.opened_origin(conf) as origin:
        Repository.open(origin).get_image(request.image)
        if (
            request.what is PreloadWhat.WORKING_SET
            and working_set.read(origin, request.image) is None
        ):
            raise exception.NotFoundError(
                f"it is not known what boots of image {request.image} read",
                hint="boot one instance from it first, or use --full",
            )


def _has_failed(host: HostPreload) -> bool:
    if host.is_late or host.is_lost:
        return True
    return host.state.has_ended and host.state is not AdmittedPreloadState.DONE


def _error(refusing: Sequence[Verdict]) -> type[exception.AcstorError]:
    reasons = {verdict.reason for verdict in refusing}
    if reasons <= {Reason.SILENT, Reason.FAILED}:
        return exception.UnavailableError
    if reasons <= {Reason.ROOM, Reason.PIN}:
        return exception.ExhaustedError
    if reasons == {Reason.UNKNOWN}:
        return exception.NotFoundError
    return exception.InvalidError


def _names(text: str) -> list[str]:
    names = list(dict.fromkeys(name.strip().lower() for name in text.split(",") if name.strip()))
    if not names:
        raise argparse.ArgumentTypeError("must name a host")
    return names


def _rate(text: str) -> int:
    try:
        return ByteSize(RATE_MIN, PRELOAD_RATE_MAX)(text.removesuffix("/s"))
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"{text!r} {error}") from error


def duration(text: str) -> float:
    """Return the seconds of a time such as 90s, 10m or 1h30m, as arguments have it."""
    match = _DURATION.fullmatch(text.strip())
    if not text.strip() or match is None:
        raise argparse.ArgumentTypeError(f"{text!r} is no time such as 90s, 10m or 1h30m")
    hours, minutes, seconds = (float(part or 0) for part in match.groups())
    whole = 3600 * hours + 60 * minutes + seconds
    if not DEADLINE_MIN <= whole <= DEADLINE_MAX:
        raise argparse.ArgumentTypeError(f"must be {DEADLINE_MIN:g} to {DEADLINE_MAX:g} seconds")
    return whole
