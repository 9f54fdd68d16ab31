"""Making sure that what a published ref refers to is there and stays there.

Called with the names that an image, a volume or a snapshot refers to, this is the publisher's half
of the agreement with garbage collection; RFD 5 has the argument.
"""

from collections.abc import Iterable, Sequence

from acstor.origin import base
from acstor.repository import layout
from acstor.repository.disk_manifest import DiskManifest
from acstor.repository.gc.condemnation import Tombstones, logs_of_name
from acstor.repository.volumes.log_range import LogRange

MISSING_MAX = 1000
"""Missing log objects after which nobody looks for more."""


def claim(origin: base.Origin, manifest: DiskManifest, *, is_of_hosts: bool = True) -> set[bytes]:
    """Save everything that a manifest refers to from deletion, as far as that is possible.

    First the tombstones, then the objects: an object that is there after its tombstone was seen
    to be absent will not be deleted while an image refers to it.

    :param is_of_hosts: whether hosts may have stored parts of it. Else what they have under such a
        name does not count: it would hide that the collector has deleted what was there.
    :returns: names of what is lost, packs and possibly the manifest itself; empty when the image is
        whole and, provided that it was published before this call, stays whole.
    """
    keys = manifest.references()
    lost = _rescue(origin, keys)
    is_there = origin.exists if is_of_hosts else origin.is_protected
    lost.update(name for name in keys.keys() - lost if not is_there(keys[name]))
    return lost


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
    missing = []
    present: dict[str, set[str]] = {}
    for one in ranges:
        if one.folder not in present:
            present[one.folder] = set(objects.list(one.folder))
        found = present[one.folder]
        for sequence in range(one.first, one.last + 1):
            key = one.key(sequence)
            if key not in found:
                missing.append(key)
                if len(missing) >= MISSING_MAX:
                    return missing
    return missing


def _rescue(refs: base.RefStore, names: Iterable[bytes]) -> set[bytes]:
    tombstones = Tombstones(refs)
    condemned = tombstones.names()
    return {name for name in names if name.hex() in condemned and not tombstones.rescue(name.hex())}
