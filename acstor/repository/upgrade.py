"""Making a repository of an older format version one of the present version.

A new version exists so that programs of older releases refuse the repository. They look at the
object ``format``, and objects never change: it has to be deleted and stored anew. The ref
``format``, which older releases do not know, is written before and stays: whoever finds the object
missing, also after a power failure in between or when a deletion comes late, stores it again from
the ref (:meth:`Repository.open` does).

Version 1 to 2 (volumes): nothing else changes. Version 2 to 3: the refs of a POSIX origin get the
layout that needs no locks, after the version has changed; until that begins the release that knows
version 3 uses them where they are, and killed near its end it leaves none until it is repeated.
Version 3 to 4 (names of chunks in a scope): nothing else changes.
Version 4 to 5 (index of the images): nothing else changes; the index begins with the first change,
and hosts look for changes as before until their agents begin anew.
Version 5 to 6 (images in manifests and packs of version 2): nothing else changes; images that are
there stay as they are, new ones are stored so. Who upgrades to 5 leaves a repository of version 6
alone, also one that is being upgraded to it at the same time.
Version 6 to 7 (compaction): nothing else changes until packs are compacted; a data plane that
opened the repository before does not find what was moved.
Version 7 to 8 (versions of disks): nothing else changes until there are versions.
Programs of a release that knows less must not run any more: one that opened the repository before
goes on, fails at every ref of version 3, and if it is a garbage collector of version 1 it would
delete what volumes refer to.
"""

import contextlib
import dataclasses

from acstor import exception
from acstor.origin import base
from acstor.repository import layout
from acstor.repository.repository import FORMAT_SIZE_MAX, FORMAT_VERSION, Format, Repository


def upgrade(origin: base.Origin, version: int = FORMAT_VERSION) -> Repository:
    """Upgrade the repository in ``origin`` to a version, by default that which this build makes.

    Repeating it, on several machines at once too, is safe, whenever it is killed.

    :returns: the upgraded repository, which may have a newer version.
    :raises NotFoundError: when there is no repository.
    :raises UnsupportedError: when a newer release made it.
    :raises DeadlineError: when a program keeps a lock of the refs of version 2; the repository is
        in use as it is, and the upgrade is to be repeated.
    """
    found = Repository.open(origin).format
    if found.version < version:
        wanted = dataclasses.replace(found, version=version)
        ref = origin.get_ref(layout.FORMAT_REF)
        if ref is None or Format.parse(ref.content).version < version:
            try:
                origin.swap_ref(layout.FORMAT_REF, ref.token if ref else None, wanted.encode())
            except exception.ConflictError:
                return upgrade(origin, version)  # somebody else upgrades it too
        else:
            wanted = Format.parse(ref.content)
        _replace_object(origin, wanted)
    origin.convert_refs()
    return Repository.open(origin)


def note_format(origin: base.Origin) -> None:
    """Have the ref ``format`` say what the object says, where no upgrade has written it.

    Refs have copies in other members of an origin; this object has not (RFD 38).

    :raises NotFoundError: when there is no repository.
    """
    if origin.get_ref(layout.FORMAT_REF) is not None:
        return
    content = origin.get(layout.FORMAT_KEY, FORMAT_SIZE_MAX)
    with contextlib.suppress(exception.ConflictError):  # an upgrade writes it
        origin.swap_ref(layout.FORMAT_REF, None, content)


def _replace_object(origin: base.Origin, wanted: Format) -> None:
    """Have the object be of that version at least, whatever others store meanwhile."""
    while True:
        try:
            content = origin.get(layout.FORMAT_KEY, FORMAT_SIZE_MAX)
        except exception.NotFoundError:
            # The ref may have become newer since, and never becomes older.
            ref = origin.get_ref(layout.FORMAT_REF)
            newest = ref.content if ref else wanted.encode()
            if origin.put_if_absent(layout.FORMAT_KEY, [newest]):
                return
            continue
        if Format.parse(content).version >= wanted.version:
            return
        origin.delete(layout.FORMAT_KEY)
