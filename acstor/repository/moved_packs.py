"""Packs that a compaction has moved: following what manifests say of them to where it is now.

A manifest never changes, so it goes on naming the pack P that its chunks were in. Once these are
copied, the object ``moved/<P>`` says where they are. A manifest is whole where each pack that it
names exists, or was moved with all that the manifest uses of it, to packs of which the same holds
(RFD 23).
"""

import dataclasses
import functools
import graphlib
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping

from acstor import exception, native
from acstor.origin import base
from acstor.repository import layout
from acstor.repository.disk_manifest import DiskManifest

HOPS_MAX = 3
"""Times in a row that the chunks of a pack may be moved; readers follow no further."""
MOVED_SIZE_MAX = 64 + 32 * 1024 + 24 * (1 << 20)
"""Largest object of this kind, bytes: a limit of the format (crates/pack, moved_pack.rs)."""

Runs = list[tuple[int, int]]
"""Bytes of a pack: of each run a first one and the first after it."""
FindMoved = Callable[[bytes], native.MovedPack | None]
IsThere = Callable[[bytes], bool]


def list_moved(objects: base.ObjectStore) -> Iterator[str]:
    """Yield the ids of the packs that were moved, hexadecimal."""
    for key in objects.list(layout.MOVED_PREFIX):
        name = layout.name_of(key)
        if name:
            yield name


def load_moved(objects: base.ObjectStore, pack: bytes) -> native.MovedPack:
    """Return where the chunks of a pack were moved to.

    :raises NotFoundError: when it was not moved.
    :raises CorruptError: when what says so is damaged.
    :raises UnsupportedError: when a newer release wrote it.
    """
    key = layout.moved_key(pack.hex())
    size = objects.size(key)
    if size > MOVED_SIZE_MAX:
        raise exception.CorruptError(f"{key} has {size} bytes, more than any such object has")
    content = objects.get_range(key, 0, size)
    with native.map_errors(f"reading {key}"):
        return native.MovedPack.parse(pack, content)


def find_moved(objects: base.ObjectStore, pack: bytes) -> native.MovedPack | None:
    """Return where the chunks of a pack were moved to, None when it was not moved.

    :raises CorruptError: when what says so is damaged.
    :raises UnsupportedError: when a newer release wrote it.
    """
    try:
        return load_moved(objects, pack)
    except exception.NotFoundError:
        return None


def needed_of(manifest: DiskManifest) -> dict[bytes, Runs]:
    """Return what a manifest and its bases need of each pack that they name."""
    space = native.SpaceAccount()
    manifest.account(space, 0)
    return dict(space.live_runs())


@dataclasses.dataclass(slots=True)
class Followed:
    """Needed bytes of packs, after following the moves."""

    needed: dict[bytes, Runs]
    """Bytes that somebody needs of each pack."""
    moves: list[native.MovedPack] = dataclasses.field(default_factory=list)
    """Moves that were followed, in this order; a pack may come several times."""
    met: set[bytes] = dataclasses.field(default_factory=set)
    """Packs that are needed and were moved, followed or not."""
    hops: dict[bytes, int] = dataclasses.field(default_factory=dict)
    """Moves, one after the other, that led to a pack."""
    targets: defaultdict[bytes, set[bytes]] = dataclasses.field(
        default_factory=lambda: defaultdict(set)
    )
    """Packs that have the needed chunks of one that was moved."""

    @property
    def served(self) -> set[bytes]:
        """Packs of which nothing is needed any more, since others have all of it."""
        return self.met - self.needed.keys()

    def relied_on(self, pack: bytes) -> dict[str, str]:
        """Return name and key of every object in whose place a served pack would be needed."""
        names: dict[str, str] = {}
        following = [pack]
        while following:
            moved = following.pop().hex()
            if layout.moved_name(moved) in names:
                continue
            names[layout.moved_name(moved)] = layout.moved_key(moved)
            for target in self.targets[bytes.fromhex(moved)]:
                if target in self.needed:
                    names[target.hex()] = layout.pack_key(target.hex())
                else:
                    following.append(target)
        return names


def follow(needed: Mapping[bytes, Runs], find: FindMoved, is_there: IsThere) -> Followed:
    """Follow needed bytes of packs to where they are to be read in the end.

    A pack that exists is needed no more only where each of these bytes is in another pack that
    exists. Of one that is gone is found what there is.

    :param find: returns where a pack was moved to.
    :param is_there: returns whether a pack exists.
    """
    find, is_there = functools.cache(find), functools.cache(is_there)
    kept: set[bytes] = set()
    while True:
        followed = _Following(needed, find, is_there, kept).run()
        broken = _broken(followed, is_there) - kept
        if not broken:
            for pack in _spare(followed, needed, is_there):
                del followed.needed[pack]
            return followed
        kept |= broken


class _Following:
    """One attempt.

    :param kept: packs that stay needed, although they were moved.
    """

    def __init__(
        self, needed: Mapping[bytes, Runs], find: FindMoved, is_there: IsThere, kept: set[bytes]
    ) -> None:
        self._followed = Followed({pack: list(runs) for pack, runs in needed.items()})
        self._find = find
        self._is_there = is_there
        self._kept = set(kept)

    def run(self) -> Followed:
        for _ in range(HOPS_MAX):
            movable = {
                pack: moved
                for pack in self._followed.needed
                if (moved := self._find(pack)) is not None
            }
            for pack in _ends_first(movable):
                self._move(pack, movable[pack])
        return self._followed

    def _move(self, pack: bytes, moved: native.MovedPack) -> None:
        followed = self._followed
        followed.met.add(pack)
        found, left = moved.follow(followed.needed[pack])
        if left and self._is_there(pack):
            self._kept.add(pack)
        # What has the copies is needed in any case: where this pack is kept, another collection may
        # see fewer users of it, and delete it since the copies are there.
        if pack not in self._kept:
            followed.moves.append(moved)
            followed.needed[pack] = left
            if not left:
                del followed.needed[pack]
        for target, target_runs in found:
            followed.targets[pack].add(target)
            followed.needed[target] = merged([*followed.needed.get(target, []), *target_runs])
            followed.hops[target] = max(
                followed.hops.get(target, 0), followed.hops.get(pack, 0) + 1
            )


def _ends_first(movable: Mapping[bytes, native.MovedPack]) -> list[bytes]:
    """Return packs in an order in which each byte of them moves once: before what moves to them.

    Else some would be followed further than readers follow.

    :raises CorruptError: when they were moved in a circle.
    """
    targets = {
        pack: [target for target in moved.targets() if target in movable]
        for pack, moved in movable.items()
    }
    try:
        return list(graphlib.TopologicalSorter(targets).static_order())
    except graphlib.CycleError as error:
        packs = [pack.hex() for pack in error.args[1]]
        raise exception.CorruptError(
            f"the objects {', '.join(map(layout.moved_key, packs[1:]))} name each other",
            hint="no compaction makes such ones; look who writes to the origin, and remove them "
            "where the packs of those names exist",
        ) from error


def _broken(followed: Followed, is_there: IsThere) -> set[bytes]:
    """Return the packs that exist and would rely on one that does not."""
    sources = _sources(followed)
    missing = [pack for pack in sources if pack in followed.needed and not is_there(pack)]
    broken: set[bytes] = set()
    seen: set[bytes] = set()
    while missing:
        pack = missing.pop()
        if pack in seen:
            continue
        seen.add(pack)
        for source in sources[pack]:
            if is_there(source):
                broken.add(source)
            else:
                missing.append(source)
    return broken


def _spare(followed: Followed, needed: Mapping[bytes, Runs], is_there: IsThere) -> list[bytes]:
    """Return the packs that do not exist and nobody misses: what was moved to them stays."""
    sources = _sources(followed)
    spare = []
    for pack in followed.needed:
        following, seen = ([] if is_there(pack) else [pack]), set[bytes]()
        while following and following[-1] not in needed:
            last = following.pop()
            seen.add(last)
            gone = [one for one in sources[last] if not is_there(one)]
            following.extend(one for one in gone if one not in seen)
        if seen and not following:
            spare.append(pack)
    return spare


def _sources(followed: Followed) -> defaultdict[bytes, set[bytes]]:
    """Return the packs from which something was moved to each pack."""
    sources: defaultdict[bytes, set[bytes]] = defaultdict(set)
    for pack, targets in followed.targets.items():
        for target in targets:
            sources[target].add(pack)
    return sources


def merged(runs: Runs) -> Runs:
    """Return runs in order, those that touch as one."""
    result: Runs = []
    for start, end in sorted(runs):
        if result and start <= result[-1][1]:
            result[-1] = (result[-1][0], max(result[-1][1], end))
        else:
            result.append((start, end))
    return result
