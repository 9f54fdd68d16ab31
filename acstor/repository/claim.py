"""Making sure that what an image refers to is there and stays there.

Called with the names that a published image refers to, this is the registration's half of the
agreement with garbage collection; RFD 5 has the argument.
"""

from collections.abc import Iterable

from acstor import dataplane
from acstor.origin import base
from acstor.repository import layout
from acstor.repository.condemnation import Tombstones


def claim(origin: base.Origin, manifest: dataplane.Manifest) -> set[bytes]:
    """Save everything that a manifest refers to from deletion, as far as that is possible.

    First the tombstones, then the objects: an object that is there after its tombstone was seen
    to be absent will not be deleted while an image refers to it.

    :returns: ids of what is lost, packs and possibly the manifest itself; empty when the image is
        whole and, provided that it was published before this call, stays whole.
    """
    keys = {bytes.fromhex(manifest.digest): layout.manifest_key(manifest.digest)}
    keys.update((pack, layout.pack_key(pack.hex())) for pack in manifest.packs())
    lost = _rescue(origin, keys)
    lost.update(name for name in keys.keys() - lost if not origin.exists(keys[name]))
    return lost


def _rescue(origin: base.Origin, names: Iterable[bytes]) -> set[bytes]:
    tombstones = Tombstones(origin)
    condemned = tombstones.names()
    return {name for name in names if name.hex() in condemned and not tombstones.rescue(name.hex())}
