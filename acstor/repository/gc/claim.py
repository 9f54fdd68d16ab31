"""Making sure that what a published ref refers to is there and stays there.

Called with the names that an image, a volume or a snapshot refers to, this is the publisher's half
of the agreement with garbage collection; RFD 5 has the argument.
"""

import itertools
from collections.abc import Iterable, Mapping, Sequence

from acstor import exception
from acstor.origin import base
from acstor.repository import layout, moved_packs
from acstor.repository.disk_manifest import DiskManifest
from acstor.repository.gc.condemnation import Tombstones, logs_of_name
from acstor.repository.volumes.log_range import LogRange

MISSING_MAX = 1000
"""Missing log objects after which nobody looks for more."""


def claim(origin: base.Origin, manifest: DiskManifest, *, is_of_hosts: bool = True) -> set[bytes]:
    """Save everything that a manifest refers to from deletion, as far as that is possible.

    First the tombstones, then the objects: an object that is there after its tombstone was seen
    to be absent will not be deleted while an image refers to it. In the place of a pack that is
    lost, what a compaction has copied of it is claimed, if that is all that the manifest uses.

    :param is_of_hosts: whether hosts may have stored parts of it. Else what they have under such a
        name does not count: it would hide that the collector has deleted what was there.
    :returns: names of what is lost, packs and possibly the manifest itself; empty when the image is
        whole and, provided that it was published before this call, stays whole.
    """
    keys = manifest.references()
    lost = _rescue(origin, keys)
    is_there = origin.exists if is_of_hosts else origin.is_protected
    lost.update(name for name in keys.keys() - lost if not is_there(keys[name]))
    return lost - _claim_copies(origin, manifest, lost)


def claim_names(
    origin: base.Origin, keys: Mapping[str, str], *, is_of_hosts: bool = False
) -> set[str]:
    """Save objects from deletion, as :func:`claim` does.

    :param keys: by the name of each object (hexadecimal, or of :func:`layout.moved_name`) its key.
    :param is_of_hosts: whether hosts may have stored one. Else, as of what a compaction makes, what
        they have under such a name does not count.
    :returns: names of what is lost.
    """
    is_there = origin.exists if is_of_hosts else origin.is_protected
    tombstones = Tombstones(origin)
    condemned = tombstones.names()
    lost = {name for name in keys if name in condemned and not tombstones.rescue(name)}
    lost.update(name for name in keys.keys() - lost if not is_there(keys[name]))
    return lost


def _claim_copies(origin: base.Origin, manifest: DiskManifest, lost: set[bytes]) -> set[bytes]:
    """Return those of the lost packs in whose place copies of their chunks were claimed."""
    if not lost or bytes.fromhex(manifest.digest) in lost:
        return set()
    try:
        needed = moved_packs.needed_of(manifest)
    except exception.NotFoundError:
        return set()  # a base is gone, too
    hops = moved_packs.HOPS_MAX
    return {
        pack for pack in lost & needed.keys() if _is_pack_claimed(origin, pack, needed[pack], hops)
    }


def _is_pack_claimed(origin: base.Origin, pack: bytes, runs: moved_packs.Runs, hops: int) -> bool:
    """Claim the copies of the needed bytes of a pack; return whether nothing of them is lost."""
    moved = moved_packs.find_moved(origin, pack) if hops else None
    if moved is None:
        return False
    found, left = moved.follow(runs)
    if left:
        return False
    name = layout.moved_name(pack.hex())
    keys = {target.hex(): layout.pack_key(target.hex()) for target, _ in found}
    lost = claim_names(origin, {**keys, name: layout.moved_key(pack.hex())})
    return name not in lost and all(
        target.hex() not in lost or _is_pack_claimed(origin, target, target_runs, hops - 1)
        for target, target_runs in found
    )


def claim_logs(origin: base.Origin, ranges: Sequence[LogRange]) -> list[str]:
    """Save log objects from deletion, as :func:`claim` does for what a manifest refers to.

    :returns: keys of what is lost; empty when everything is there and, provided that a ref which
        names it was published before this call, stays there.
    """
    if not ranges:
        return []
    tombstones = Tombstones(origin)
    lost = []
    for name in sorted(tombstones.names()):
        condemned = logs_of_name(name)
        if condemned is None or not any(condemned.intersects(one) for one in ranges):
            continue
        if not tombstones.rescue(name):
            lost.append(layout.CONDEMNED_PREFIX + name)
    lost.extend(missing_logs(origin, ranges))
    return lost


def missing_logs(objects: base.ObjectStore, ranges: Sequence[LogRange]) -> list[str]:
    """Return the keys of the log objects that are not in the origin.

    A range that is said to be longer than what its folder holds costs no more than the folder.
    """
    missing: list[str] = []
    present: dict[str, _Folder] = {}
    for one in ranges:
        if one.folder not in present:
            present[one.folder] = _Folder(objects, one)
        missing.extend(present[one.folder].missing(one, MISSING_MAX - len(missing)))
        if len(missing) >= MISSING_MAX:
            break
    return missing


class _Folder:
    """Log objects of one epoch, as far as they have to be listed.

    First as the member has them that they were written in: what it has is not looked for in others,
    one of which may be away.
    """

    def __init__(self, objects: base.ObjectStore, logs: LogRange) -> None:
        self._objects = objects
        self._logs = logs
        self._other: base.ObjectStore | None = objects
        self._unopened: exception.UnsupportedError | None = None
        self._is_unasked = False
        self._found: set[str] = set()
        try:
            store = objects.of_member(logs.member)
            self._found = set(store.list(logs.folder))
            self._other = None if store is objects else objects
        except exception.UnsupportedError as error:
            self._unopened = error
        except exception.UnavailableError:
            self._is_unasked = True

    def missing(self, logs: LogRange, count_max: int) -> list[str]:
        """Return the keys of a range that no member has.

        :raises UnavailableError: when one that may have them cannot be asked.
        """
        missing = self._lacking(logs, count_max)
        if missing and self._other is not None:
            self._found.update(self._other.list(self._logs.folder))
            self._other = None
            missing = self._lacking(logs, count_max)
        if missing and self._unopened is not None:
            error = self._unopened
            raise exception.UnavailableError(f"{missing[0]}: {error.message}", hint=error.hint)
        if missing and self._is_unasked:
            # Listings leave members out that sleep or wake; by key it is not known what they have.
            self._objects.exists(missing[0])
        return missing

    def _lacking(self, logs: LogRange, count_max: int) -> list[str]:
        keys = map(logs.key, range(logs.first, logs.last + 1))
        lacking = (key for key in keys if key not in self._found)
        return list(itertools.islice(lacking, count_max))


def _rescue(refs: base.RefStore, names: Iterable[bytes]) -> set[bytes]:
    tombstones = Tombstones(refs)
    condemned = tombstones.names()
    return {name for name in names if name.hex() in condemned and not tombstones.rescue(name.hex())}
