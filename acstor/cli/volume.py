"""Commands on volumes and snapshots: ``acstor volume ...`` and ``acstor snapshot ...``."""

import argparse
from collections.abc import Iterator
from typing import Any

from cliff import columns, lister, show

from acstor import exception
from acstor.cli import repository_access
from acstor.cli.columns import Fields, Size
from acstor.control.client import AdminClient
from acstor.repository import layout
from acstor.repository.volumes.durability import Region, format_regions
from acstor.repository.volumes.epoch_log import sealer_of
from acstor.repository.volumes.log_range import LogRange
from acstor.repository.volumes.record_refs import Snapshot, Volume
from acstor.repository.volumes.states import state_of
from acstor.repository.volumes.store import VolumeStore

Row = tuple[tuple[str, ...], tuple[Any, ...]]

UNREADABLE = "unreadable"
"""State of a volume whose record cannot be read."""


class Regions(columns.FormattableColumn[list[dict[str, Any]]]):
    """Durability regions in JSON: as extra specs have them for people, themselves for programs."""

    def human_readable(self) -> str:
        """Return a line per region."""
        return "\n".join(format_regions((Region.from_fields(one),)) for one in self._value)


class ListVolumes(lister.Lister):
    """List the volumes in the origin: who has them, and how long their logs are."""

    def take_action(self, parsed_args: argparse.Namespace) -> tuple[Any, Any]:
        """Return the table."""
        store = _store(self.app)
        rows = sorted(_volume_rows(store), key=lambda row: (row[1], row[0]))
        return (
            ("id", "name", "size", "state", "owner", "hosts", "durability", "log_objects"),
            rows,
        )


class ShowVolume(show.ShowOne):
    """Show the record of one volume."""

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        """Describe the arguments."""
        return _with_volume(super().get_parser(prog_name))

    def take_action(self, parsed_args: argparse.Namespace) -> Row:
        """Return the record."""
        store = _store(self.app)
        volume = store.get(parsed_args.volume)
        record = volume.record
        state = state_of(record)
        fields = {
            "id": volume.id,
            "name": record.name,
            "size": Size(record.size_bytes),
            "state": state.value if state else "",
            "owner": record.owner or "",
            "epoch": record.epoch,
            "hosts": ", ".join(record.hosts),
            "is_standby_allowed": record.is_standby_allowed,
            "durability": record.durability.default.value,
            "period_s": record.durability.period_s,
            "flush": record.durability.flush.value,
            "regions": Regions([region.to_fields() for region in record.durability.regions]),
            "manifest": record.manifest or "",
            "logs": Fields([one.to_fields() for one in record.logs]),
            "log_objects": _log_objects(record.logs),
            "next": record.next,
            "unsealed": record.unsealed,
            "pending": Fields(record.pending.to_fields() if record.pending else {}),
            "content_end": Fields(_position(record.content_end)),
            "snapshots": sum(1 for _ in store.list_snapshots(volume.id)),
            "created_at": record.created_at,
            "dedup_scope": record.dedup_scope or "",
            "metadata": Fields(dict(record.metadata)),
        }
        return tuple(fields), tuple(fields.values())


class ShowVolumeStatus(show.ShowOne):
    """Show what the data plane of this host says of a volume that it has open.

    How old the recovery point is (recovery_point_age_s) and how much is not in the origin yet
    (dirty_bytes), the local log, the clients.
    """

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        """Describe the arguments."""
        return _with_socket(_with_volume(super().get_parser(prog_name)))

    def take_action(self, parsed_args: argparse.Namespace) -> Row:
        """Return the fields."""
        return _answer(_client(self.app, parsed_args), "volume.status", parsed_args.volume)


class FoldVolume(show.ShowOne):
    """Merge the log of a volume that this host has open into packs and a new manifest."""

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        """Describe the arguments."""
        return _with_socket(_with_volume(super().get_parser(prog_name)))

    def take_action(self, parsed_args: argparse.Namespace) -> Row:
        """Fold, and return what the data plane says."""
        return _answer(_client(self.app, parsed_args), "volume.fold", parsed_args.volume)


class SettleVolume(show.ShowOne):
    """Give up what a lost host did not push of a volume, so that it can be used without that host.

    For a volume that no host may attach any more: snapshots and clones of it need not wait until it
    is attached elsewhere, which does the same. What the host acknowledged and had not pushed is
    lost, even if the host comes back: its recovery point is the last push.
    """

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        """Describe the arguments."""
        return _with_volume(super().get_parser(prog_name))

    def take_action(self, parsed_args: argparse.Namespace) -> Row:
        """Settle, and return from whom the volume was taken and what it has."""
        conf = repository_access.configuration(self.app)
        repository = repository_access.open_repository(conf)

        change = VolumeStore(repository).settle(parsed_args.volume, sealer_of(repository.origin))
        state = state_of(change.after)
        fields = {
            "id": parsed_args.volume,
            "former_owner": change.before.owner or "",
            "state": state.value if state else "",
            "log_objects": _log_objects(change.after.logs),
        }
        return tuple(fields), tuple(fields.values())


class ListSnapshots(lister.Lister):
    """List the snapshots in the origin."""

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        """Describe the arguments."""
        parser: argparse.ArgumentParser = super().get_parser(prog_name)
        parser.add_argument("--volume", metavar="UUID", help="only those of one volume")
        return parser

    def take_action(self, parsed_args: argparse.Namespace) -> tuple[Any, Any]:
        """Return the table."""
        store = _store(self.app)
        wanted = parsed_args.volume and layout.canonical_id(parsed_args.volume, "volume")
        rows = sorted(_snapshot_rows(store, wanted), key=lambda row: (row[1], row[4], row[0]))
        return ("id", "volume", "name", "size", "created_at", "group", "log_objects"), rows


def _store(app: Any) -> VolumeStore:
    conf = repository_access.configuration(app)
    return VolumeStore(repository_access.open_repository(conf))


def _client(app: Any, parsed_args: argparse.Namespace) -> AdminClient:
    conf = repository_access.configuration(app)
    return AdminClient(parsed_args.socket or conf.dataplane.admin_socket)


def _answer(client: AdminClient, method: str, volume: str) -> Row:
    volume_id = layout.canonical_id(volume, "volume")
    answer: dict[str, Any] = client.call(method, volume=volume_id)
    values = (Fields(value) if isinstance(value, dict) else value for value in answer.values())
    return tuple(answer), tuple(values)


def _volume_rows(store: VolumeStore) -> Iterator[tuple[Any, ...]]:
    """Yield a row per volume; one whose record is damaged must not hide the others."""
    for volume_id in store.list_ids():
        try:
            volume = store.find(volume_id)
        except (exception.CorruptError, exception.UnsupportedError, exception.InvalidError):
            yield volume_id, "", Size(0), UNREADABLE, "", "", "", 0
            continue
        if volume is not None:
            yield _volume_row(volume)


def _volume_row(volume: Volume) -> tuple[Any, ...]:
    record = volume.record
    state = state_of(record)
    return (
        volume.id,
        record.name,
        Size(record.size_bytes),
        state.value if state else "",
        record.owner or "",
        ", ".join(record.hosts),
        _durability_text(volume),
        _log_objects(record.logs),
    )


def _snapshot_rows(store: VolumeStore, volume_id: str | None) -> Iterator[tuple[Any, ...]]:
    for snapshot_id in store.list_snapshot_ids():
        try:
            snapshot = store.find_snapshot(snapshot_id)
        except (exception.CorruptError, exception.UnsupportedError, exception.InvalidError):
            if volume_id is None:
                yield snapshot_id, UNREADABLE, "", Size(0), "", "", 0
            continue
        if snapshot is not None and volume_id in (None, snapshot.record.volume):
            yield _snapshot_row(snapshot)


def _snapshot_row(snapshot: Snapshot) -> tuple[Any, ...]:
    record = snapshot.record
    return (
        snapshot.id,
        record.volume,
        record.name,
        Size(record.size_bytes),
        record.created_at,
        record.group or "",
        _log_objects(record.logs),
    )


def _durability_text(volume: Volume) -> str:
    durability = volume.record.durability
    more = len(durability.regions)
    return durability.default.value + (f" and {more} regions" if more else "")


def _log_objects(logs: tuple[LogRange, ...]) -> int:
    return sum(map(len, logs))


def _position(end: tuple[int, int] | None) -> dict[str, int]:
    return {} if end is None else {"epoch": end[0], "sequence": end[1]}


def _with_volume(parser: argparse.ArgumentParser) -> argparse.ArgumentParser:
    parser.add_argument("volume", metavar="UUID", help="id of the volume")
    return parser


def _with_socket(parser: argparse.ArgumentParser) -> argparse.ArgumentParser:
    parser.add_argument(
        "--socket", metavar="PATH", help="admin socket, instead of [dataplane] admin_socket"
    )
    return parser
