"""Making a repository of an older format version one of the present version.

A new version exists so that programs of older releases refuse the repository. They look at the
object ``format``, and objects never change: it has to be deleted and stored anew. The ref
``format``, which older releases do not know, is written before and stays: whoever finds the object
missing, also after a power failure in between or when a deletion comes late, stores it again from
the ref (:meth:`Repository.open` does).

Version 1 to 2 (volumes): nothing else changes. Programs of a release that knows version 1 only
must not run any more: one that opened the repository before goes on, and if it is a garbage
collector it would delete what volumes refer to.
"""

import dataclasses

from acstor import exception
from acstor.origin import base
from acstor.repository import layout
from acstor.repository.repository import FORMAT_SIZE_MAX, FORMAT_VERSION, Repository


def upgrade(origin: base.Origin) -> Repository:
    """Upgrade the repository in ``origin`` to the version that this build makes.

    Repeating it, on several machines at once too, is safe, whenever it is killed.

    :returns: the upgraded repository.
    :raises NotFoundError: when there is no repository.
    :raises UnsupportedError: when a newer release made it.
    """
    found = Repository.open(origin).format
    if found.version < FORMAT_VERSION:
        wanted = dataclasses.replace(found, version=FORMAT_VERSION).encode()
        ref = origin.get_ref(layout.FORMAT_REF)
        if ref is None or ref.content != wanted:
            try:
                origin.swap_ref(layout.FORMAT_REF, ref.token if ref else None, wanted)
            except exception.ConflictError:
                return upgrade(origin)  # somebody else upgrades it to the same
        _replace_object(origin, wanted)
    return Repository.open(origin)


def _replace_object(origin: base.Origin, wanted: bytes) -> None:
    try:
        if origin.get(layout.FORMAT_KEY, FORMAT_SIZE_MAX) == wanted:
            return
    except exception.NotFoundError:
        pass
    else:
        origin.delete(layout.FORMAT_KEY)
    origin.put_if_absent(layout.FORMAT_KEY, [wanted])
