"""Revoking images: ``acstor image revoke`` and ``acstor revocation ...``."""

import argparse
import contextlib
from collections.abc import Iterable, Iterator
from typing import Any

from cliff import command, lister

from acstor import exception
from acstor.cli import deployment, preload, repository_access, usage_view
from acstor.cli.partial_list import PartialLister
from acstor.cluster import member_list
from acstor.cluster.ring.published_ring import read_ring
from acstor.origin.base import Origin
from acstor.repository import layout, progress
from acstor.repository.images import revocation
from acstor.repository.images.revocation import HostProof, Revocation
from acstor.repository.images.usage import USAGE_PREFIX
from acstor.repository.repository import Repository
from acstor.revocation import beginning, proof
from acstor.revocation.answers import ProofState
from acstor.revocation.proof import Proof
from acstor.rpc import transport
from acstor.rpc.agent_client import AgentClient
from acstor.rpc.signature import Signer, secrets_of

CALL_TIMEOUT = 60.0
"""Seconds for a host to discard one page: 2 GiB of chunks that are overwritten."""
NAMED_MAX = 3
"""Hosts that the final message names."""
HOST_COLUMNS = ("Host", "State", "Held before", "Dropped", "Held after", "Asked at", "Note")

Table = tuple[tuple[str, ...], list[Any]]


def _with_image(parser: argparse.ArgumentParser) -> argparse.ArgumentParser:
    parser.add_argument("image", metavar="UUID", help="id of the image")
    return parser


def _rows(found: Revocation) -> Table:
    return HOST_COLUMNS, [
        (host, one.state, one.held, one.dropped, one.left, one.time, one.note)
        for host, one in sorted(found.hosts.items())
    ]


def is_proven(hosts: Iterable[HostProof]) -> bool:
    """Return whether every host has proven that it has nothing left, or is left out."""
    return all(one.state in {ProofState.ABSENT, ProofState.EXCLUDED} for one in hosts)


@contextlib.contextmanager
def _agents(conf: Any) -> Iterator[AgentClient]:
    secrets = secrets_of(conf)
    with transport.opened(conf) as opened:
        yield AgentClient(opened, CALL_TIMEOUT, Signer(secrets[0] if secrets else None))


def hosts_to_ask(conf: Any, origin: Origin, known: Iterable[str]) -> list[str]:
    """Return the names of all hosts that may hold chunks: those that live, and those that did.

    Members, hosts of the ring, hosts whose usage records are there, and ``known``.
    """
    names = set(known) | set(member_list.list_members(conf))
    names.update(name.removeprefix(USAGE_PREFIX) for name in origin.list_refs(USAGE_PREFIX))
    published = read_ring(origin)
    if published is not None:
        names.update(host.name for host in published.ring.hosts)
    return sorted(names)


class RevokeImage(lister.Lister):
    """Withdraw an image at once, and prove that no host has a chunk that only it has.

    Each host that is or was there is asked to discard these chunks, and then whether it holds any.
    Chunks that other images, volumes, snapshots or attached disks need stay. Refused while a host
    says that instances there use the image.

    Exit status 5 when a host is not rid of them or cannot be asked: repeat the command when it can.
    A host that comes back discards them before it serves.
    """

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        """Describe the arguments."""
        parser = _with_image(super().get_parser(prog_name))
        parser.add_argument(
            "--force",
            action="store_true",
            help="revoke it even if hosts use it, or may: they hold its chunks as long as they do",
        )
        parser.add_argument(
            "--timeout",
            type=preload.duration,
            default=60.0,
            metavar="TIME",
            help="time for which hosts that are not rid of it are asked again (60s)",
        )
        parser.add_argument(
            "--exclude",
            action="append",
            default=[],
            metavar="HOST",
            help="host that is gone for good, and its disk with it: not asked; may be repeated",
        )
        return parser

    def take_action(self, parsed_args: argparse.Namespace) -> Table:
        """Revoke, ask, return the table."""
        conf = deployment.configuration(self.app)
        transport.require(conf)
        image_id = layout.canonical_image_id(parsed_args.image)
        repository = repository_access.open_repository(conf)
        if not parsed_args.force:
            usage_view.check_unused(repository.origin, image_id)
        with progress.for_stream(self.app.stderr, is_bytes=False) as shown:
            found = beginning.begin(repository, image_id, shown)
            self._found = self._proven(conf, repository, found, shown, parsed_args)
        self.app.stderr.write(
            f"image {image_id} is revoked: {found.chunks} chunks are its own, {found.shared} are "
            f"others', too, and stay\n"
        )
        self._is_registered = repository.find_image(image_id) is not None
        return _rows(self._found)

    def _proven(
        self,
        conf: Any,
        repository: Repository,
        found: Revocation,
        shown: progress.Progress,
        parsed_args: argparse.Namespace,
    ) -> Revocation:
        """Ask all hosts; return the record with their answers."""
        origin = repository.origin
        hosts = hosts_to_ask(conf, origin, found.hosts)
        left_out = set(parsed_args.exclude)
        with _agents(conf) as agents:
            fresh = Proof(agents, found, timeout=parsed_args.timeout, progress=shown).run(
                [host for host in hosts if host not in left_out]
            )
        fresh.update({host: proof.excluded() for host in left_out})
        return revocation.note_hosts(origin, found.image, proof.merged(found.hosts, fresh))

    def run(self, parsed_args: argparse.Namespace) -> int:
        """Print the table, then fail where the proof is incomplete."""
        super().run(parsed_args)
        if self._is_registered:
            raise exception.ConflictError(
                f"image {self._found.image} was registered again meanwhile",
                hint="delete it in Glance, then run the command again",
            )
        if not is_proven(self._found.hosts.values()):
            raise _incomplete(self._found)
        return 0


def _incomplete(found: Revocation) -> exception.AcstorError:
    open_hosts = [
        f"{host} ({one.state})"
        for host, one in sorted(found.hosts.items())
        if not ProofState(one.state).is_settled
    ]
    more = len(open_hosts) - NAMED_MAX
    named = ", ".join(open_hosts[:NAMED_MAX]) + (f" and {more} more" if more > 0 else "")
    return exception.UnavailableError(
        f"it is not proven that no host has chunks of image {found.image}: {named}",
        hint=f"run 'acstor image revoke {found.image}' again when these hosts can be asked, or "
        "with --exclude for those that are gone for good",
    )


class ListRevocations(PartialLister):
    """List the images that are revoked, and how far the proof of each is."""

    def take_action(self, parsed_args: argparse.Namespace) -> Table:
        """Return the table."""
        origin = repository_access.open_repository(deployment.configuration(self.app)).origin
        rows = []
        for image_id in sorted(revocation.list_image_ids(origin)):
            try:
                found = revocation.find(origin, image_id)
            except (exception.CorruptError, exception.UnsupportedError) as error:
                self.leave_out(error)
                continue
            if found is not None:
                proven = sum(ProofState(one.state).is_settled for one in found.hosts.values())
                rows.append(
                    (
                        *(image_id, found.name, found.time, found.chunks, found.shared),
                        *(len(found.hosts), proven),
                    )
                )
        return ("Image", "Name", "Revoked at", "Chunks", "Shared", "Hosts", "Proven"), rows


class ShowRevocation(lister.Lister):
    """Show what each host answered last about a revoked image; asks nobody."""

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        """Take the image."""
        return _with_image(super().get_parser(prog_name))

    def take_action(self, parsed_args: argparse.Namespace) -> Table:
        """Return the table."""
        origin = repository_access.open_repository(deployment.configuration(self.app)).origin
        return _rows(_known(origin, parsed_args.image))


class ForgetRevocation(command.Command):
    """Forget a revocation: the image may be registered again, and hosts that come back keep it.

    Refused while it is not proven that no host has it.
    """

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        """Describe the arguments."""
        parser = _with_image(super().get_parser(prog_name))
        parser.add_argument(
            "--force", action="store_true", help="forget it even if hosts may still have chunks"
        )
        return parser

    def take_action(self, parsed_args: argparse.Namespace) -> None:
        """Forget it."""
        origin = repository_access.open_repository(deployment.configuration(self.app)).origin
        image_id = layout.canonical_image_id(parsed_args.image)
        if not parsed_args.force:
            found = _known(origin, image_id)
            if not found.hosts or not is_proven(found.hosts.values()):
                raise _incomplete(found)
        if not revocation.forget(origin, image_id):
            raise _unknown(image_id)
        self.app.stdout.write(f"forgot the revocation of {image_id}\n")


def _known(origin: Origin, image: str) -> Revocation:
    image_id = layout.canonical_image_id(image)
    found = revocation.find(origin, image_id)
    if found is None:
        raise _unknown(image_id)
    return found


def _unknown(image_id: str) -> exception.AcstorError:
    return exception.NotFoundError(
        f"image {image_id} is not revoked", hint="'acstor revocation list' shows those that are"
    )
