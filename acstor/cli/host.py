"""``acstor host ...``: the hosts of the deployment."""

import argparse
import contextlib
import os
import time
from collections.abc import Callable
from typing import Any

from cliff import command, lister, show

from acstor import exception
from acstor.agent.reconcilers.desired_host import (
    DesiredState,
    forget_desired_state,
    read_desired_state,
    write_desired_state,
)
from acstor.cli import deployment, forgetting, host_traffic, metrics_tls
from acstor.cli.columns import Disk, Latencies, Rate, Share, Size
from acstor.cli.host_traffic import HostTraffic
from acstor.cluster import member_list
from acstor.cluster.member import Member
from acstor.cluster.ring.departure import remove_host
from acstor.control.client import AdminClient
from acstor.native import RingHost
from acstor.repository.gc.compaction_record import forget_compaction
from acstor.repository.images.usage import forget_usage
from acstor.telemetry import host_state_details

_POLL_SECONDS = 0.2


def _ring_hosts(conf: Any) -> dict[str, RingHost]:
    try:
        ring = deployment.published_ring(conf).ring
    except exception.NotFoundError:
        return {}
    return {host.name: host for host in ring.hosts}


def _state(member: Member | None) -> str:
    if member is None:
        return "gone"
    return "draining" if member.is_draining else "serving"


def _measured(found: HostTraffic) -> tuple[str, Rate, Rate, Rate]:
    """Return the state of an agent and what it measured; why not, in place of the state."""
    return (
        found.agent_state or found.problem or "unknown",
        Rate(found.extra_in),
        Rate(found.extra_out),
        Rate(found.link_bytes_per_s),
    )


def _disk_and_peers(found: HostTraffic, peers_max: int | None = None) -> tuple[Disk, Latencies]:
    """Return how the disk is, and the slowest of the peers that a host fetches most from."""
    peers = host_state_details.peers_to_message(found.peers)
    listed = [{"name": name, **peers[name]} for name in found.peers]
    return Disk(host_state_details.disk_to_message(found.disk)), Latencies(listed[:peers_max])


class ListHosts(lister.Lister):
    """List the hosts: members that are alive, and hosts that the ring still knows.

    State 'gone' means that the agent sends no heartbeats; its data plane may still serve.
    """

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        """Take whether to ask the hosts."""
        parser: argparse.ArgumentParser = super().get_parser(prog_name)
        parser.add_argument(
            "--long",
            action="store_true",
            help=(
                "ask each agent for its state, for the extra traffic and the disk of its host, and "
                "for the slowest of the peers that it fetches most from (p50/p99)"
            ),
        )
        return parser

    def take_action(self, parsed_args: argparse.Namespace) -> tuple[tuple[str, ...], list[Any]]:
        """Return the table."""
        conf = deployment.configuration(self.app)
        members = member_list.list_members(conf)
        in_ring = _ring_hosts(conf)
        asked = {}
        if parsed_args.long:
            tls = metrics_tls.client_context(conf)
            asked = host_traffic.fetch_all(members.values(), conf.host, tls)
        vnode_count = sum(host.vnodes for host in in_ring.values())
        rows = []
        for name in sorted(members.keys() | in_ring.keys()):
            member, host = members.get(name), in_ring.get(name)
            share = host.vnodes / vnode_count if host and vnode_count else 0.0
            found = asked.get(name, HostTraffic())
            rows.append(
                (
                    name,
                    _state(member),
                    member.peer_address if member else host.address if host else "",
                    Size(member.capacity_bytes if member else 0),
                    Share(share),
                    member.topology if member else host.topology if host else "",
                    member.release if member else "",
                    *((*_measured(found), *_disk_and_peers(found, 1)) if parsed_args.long else ()),
                )
            )
        columns = (
            "Name", "State", "Peer address", "Capacity", "Ring share", "Topology", "Release",
            *(
                ("Agent", "Extra in", "Extra out", "Link", "Disk", "Slowest peer")
                if parsed_args.long else ()
            ),
        )  # fmt: skip
        return columns, rows


class ShowHost(show.ShowOne):
    """Show one host: what it tells, its part of the ring, what the operator wants of it.

    'disk' is the disk of its chunk store; 'peers' those that it fetches most from, the slowest
    first, with the median and the 99th percentile of how long fetches took lately.
    """

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        """Take the host's name."""
        parser: argparse.ArgumentParser = super().get_parser(prog_name)
        parser.add_argument("name", help="name of the host, as 'acstor host list' shows it")
        return parser

    def take_action(
        self, parsed_args: argparse.Namespace
    ) -> tuple[tuple[str, ...], tuple[Any, ...]]:
        """Return the fields."""
        conf, name = deployment.configuration(self.app), parsed_args.name
        member = member_list.list_members(conf).get(name)
        in_ring = _ring_hosts(conf)
        host = in_ring.get(name)
        if member is None and host is None:
            raise _unknown(name)
        with deployment.opened_origin(conf) as origin:
            desired = read_desired_state(origin, name)
        vnode_count = sum(other.vnodes for other in in_ring.values())
        tls = metrics_tls.client_context(conf)
        asked = host_traffic.fetch_all([member] if member else [], conf.host, tls)
        found = asked.get(name, HostTraffic())
        agent, extra_in, extra_out, link = _measured(found)
        disk, peers = _disk_and_peers(found)
        fields: dict[str, Any] = {
            "name": name,
            "state": _state(member),
            "wanted": "drained" if desired.is_drained else "serving",
            "peer_address": member.peer_address if member else host.address if host else "",
            "metrics_address": member.metrics_address if member else "",
            "capacity": Size(member.capacity_bytes if member else 0),
            "topology": member.topology if member else host.topology if host else "",
            "release": member.release if member else "",
            "ring_weight": host.weight if host else 0,
            "ring_vnodes": host.vnodes if host else 0,
            "ring_share": Share(host.vnodes / vnode_count if host and vnode_count else 0.0),
            "agent": agent,
            "extra_in": extra_in,
            "extra_out": extra_out,
            "link": link,
            "disk": disk,
            "peers": peers,
        }
        return tuple(fields), tuple(fields.values())


class _ChangeDesiredState(command.Command):
    """Write what is wanted of a host and wait until its agent has it done."""

    desired: DesiredState

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        """Take the host's name and how long to wait."""
        parser: argparse.ArgumentParser = super().get_parser(prog_name)
        parser.add_argument("name", help="name of the host, as 'acstor host list' shows it")
        parser.add_argument(
            "--wait",
            type=_seconds,
            default=30.0,
            metavar="SECONDS",
            help="how long to wait for the host's agent; 0: do not wait (default: 30)",
        )
        return parser

    def take_action(self, parsed_args: argparse.Namespace) -> None:
        """Write the desired state."""
        conf, name = deployment.configuration(self.app), parsed_args.name
        members = member_list.list_members(conf)
        if name not in members and name not in _ring_hosts(conf):
            raise _unknown(name)
        with deployment.opened_origin(conf) as origin:
            write_desired_state(origin, name, self.desired)

        def is_done() -> bool:
            member = member_list.list_members(conf).get(name)
            return member is not None and member.is_draining == self.desired.is_drained

        if parsed_args.wait and not _wait(is_done, parsed_args.wait):
            raise exception.DeadlineError(
                f"host {name} has not followed in {parsed_args.wait:g} s",
                hint="the desired state is kept; check that acstor-agent runs there",
            )


class DrainHost(_ChangeDesiredState):
    """Take a host out of the ring's work: it owns nothing, and answers no peer.

    Its guests go on reading. Do this before maintenance; 'acstor host undrain' undoes it.
    """

    desired = DesiredState(is_drained=True)


class UndrainHost(_ChangeDesiredState):
    """Give a drained host its part of the ring back."""

    desired = DesiredState(is_drained=False)


class ForgetHost(command.Command):
    """Forget a host that is gone for good: which images its instances used, and what it was to do.

    Until then, nothing that its instances need is removed, in case it comes back. Refused while it
    uses images, keeps what is registered no more, its data plane answers, or images are attached
    there and nobody can tell whether guests still read them.
    """

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        """Take the host's name."""
        parser: argparse.ArgumentParser = super().get_parser(prog_name)
        parser.add_argument("name", help="name of the host")
        parser.add_argument(
            "--force",
            action="store_true",
            help="forget it whatever it uses; its instances lose what only they need",
        )
        return parser

    def take_action(self, parsed_args: argparse.Namespace) -> None:
        """Remove its refs."""
        conf, name = deployment.configuration(self.app), parsed_args.name
        if name in member_list.list_members(conf):
            raise exception.InvalidError(
                f"host {name} is alive",
                hint="stop acstor-agent there for good, then wait for [coordination] "
                "member_timeout",
            )
        in_ring = _ring_hosts(conf).get(name)
        with deployment.opened_origin(conf) as origin:
            if not parsed_args.force:
                address = in_ring.address if in_ring else None
                # As it is written: of two in different domains the short names may be the same.
                is_here = name == conf.host
                forgetting.check_forgettable(origin, name, address, is_here=is_here)
            is_known = [
                in_ring is not None,
                forget_usage(origin, name),
                forget_compaction(origin, name),
                forget_desired_state(origin, name),
            ]
            # Nobody waits for it any more as for one that is only silent.
            has_left_ring = remove_host(origin, name)
        if not any(is_known):
            raise _unknown(name)
        if not has_left_ring:
            self.app.stderr.write(
                f"host {name} stays in the ring, in which nobody else owns anything; it leaves "
                "when acstor-agent runs on another host\n"
            )


class RestartDataPlane(command.Command):
    """Replace the data plane of this host by a new process, under running guests.

    The way to upgrade: install the new release, then run this. Reads wait for a fraction of a
    second; none fails.
    """

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        """Take how long to wait."""
        parser: argparse.ArgumentParser = super().get_parser(prog_name)
        parser.add_argument(
            "--wait",
            type=_seconds,
            default=30.0,
            metavar="SECONDS",
            help="how long to wait for the new process (default: 30)",
        )
        return parser

    def take_action(self, parsed_args: argparse.Namespace) -> None:
        """Ask the present process to leave, wait for the next."""
        client = AdminClient(deployment.configuration(self.app).dataplane.admin_socket)
        former = client.call("status")["pid"]
        _ask_to_leave(client, "process.restart")

        def is_done() -> bool:
            try:
                return bool(client.call("status", call_timeout=1.0)["pid"] != former)
            except exception.UnavailableError:
                return False

        if not _wait(is_done, parsed_args.wait):
            raise exception.DeadlineError(
                f"no new data plane serves after {parsed_args.wait:g} s",
                hint="see the log of its supervisor",
            )


class StopDataPlane(command.Command):
    """Stop the data plane of this host for good, as before its removal or a repair of its disk.

    Refused while a guest has an image open or a volume is open here: they would lose their disks.
    'systemctl start acstor-dataplane' starts it again. To upgrade, use 'restart-dataplane'.
    """

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        """Take whether to stop in any case, and how long to wait."""
        parser: argparse.ArgumentParser = super().get_parser(prog_name)
        parser.add_argument(
            "--force",
            action="store_true",
            help="whatever is open: guests that still run get I/O errors",
        )
        parser.add_argument(
            "--wait",
            type=_seconds,
            default=60.0,
            metavar="SECONDS",
            help="how long to wait until it has ended (default: 60)",
        )
        return parser

    def take_action(self, parsed_args: argparse.Namespace) -> None:
        """Ask it to end, wait until nobody answers."""
        client = AdminClient(deployment.configuration(self.app).dataplane.admin_socket)
        pid = client.call("status")["pid"]
        try:
            _ask_to_leave(client, "process.stop", force=parsed_args.force)
        except exception.FencedError as error:
            raise exception.ConflictError(
                error.message,
                hint="migrate or stop the instances (see 'acstor dataplane images' and 'acstor "
                "dataplane volumes'); to replace the process under running guests, use 'acstor "
                "host restart-dataplane'; with --force they get I/O errors",
            ) from error

        def is_done() -> bool:
            # It stops to answer before it pushes what volumes have and unmounts.
            try:
                os.kill(pid, 0)
            except ProcessLookupError:
                return True
            return False

        if not _wait(is_done, parsed_args.wait):
            raise exception.DeadlineError(
                f"the data plane (process {pid}) has not ended after {parsed_args.wait:g} s",
                hint="it pushes what volumes have for [volumes] stop_push_timeout; see its log",
            )


def _ask_to_leave(client: AdminClient, method: str, **params: Any) -> None:
    # A process that leaves closes its sockets, maybe before the answer is out. Who asked looks
    # whether it is gone in any case.
    with contextlib.suppress(exception.UnavailableError):
        client.call(method, **params)


def _seconds(text: str) -> float:
    seconds = float(text)
    if not 0 <= seconds <= 3600:
        raise argparse.ArgumentTypeError("must be 0 to 3600 seconds")
    return seconds


def _wait(is_done: Callable[[], bool], timeout: float) -> bool:
    deadline = time.monotonic() + timeout
    while not is_done():
        if time.monotonic() >= deadline:
            return False
        time.sleep(_POLL_SECONDS)
    return True


def _unknown(name: str) -> exception.NotFoundError:
    return exception.NotFoundError(
        f"there is no host {name}", hint="'acstor host list' shows the hosts"
    )
