"""Refs of a POSIX origin without locks: each version is a file, and only one can be the next.

The folder ``.refs/<name>@`` holds ``<incarnation>.<number>``: 0 is empty and says that the
incarnation is the present one, the highest number is the ref's state. Changing it is to give the
next number's name to a complete, durable file, which only one can do (``link`` never overwrites).
What makes that a compare-and-swap, whoever is stopped where and for how long:

* versions are removed in ascending order, each after the removal of the one before is durable, and
  the highest never. So **while version n is there, n+1 was never removed**: who finds n in its
  place after having made n+1 made the only n+1 that ever was. Who does not find it came too late;
  what he made is below the highest number, or in no incarnation, and nobody takes it for the state;
* the last version of an incarnation says that the ref is removed, and nothing follows it. A new
  incarnation comes by renaming a whole folder to the ref's, which only an empty one lets happen,
  and has a name that no other had: what is late for an older one cannot be of it;
* who reads finds that n+1 is not there and then that n is, and the one that he knows: then n was
  the state in between. Who knows none lists the versions, reads the highest, and lists them again:
  another n may have come too late to where the one was that he had listed.

An answer that is lost (NFS) is found out by looking whose file has the name: by its nonce.
"""

import contextlib
import errno
import logging
import os
import random
import time
from collections.abc import Iterable, Iterator, Sequence

from acstor import exception
from acstor.origin import base, keys, posix_ref_file, posix_write
from acstor.origin.posix_presence import is_folder, is_there
from acstor.origin.posix_ref_file import Header, Place, State
from acstor.origin.posix_tree import PosixTree

LOG = logging.getLogger(__name__)

FOLDER = ".refs"
RETAINED_VERSIONS = 4
"""Versions of a ref that stay: its state and those before it, for readers that look it up."""
ATTEMPTS_MAX = 64
"""Attempts of a reader or creator that is overtaken; each time somebody else wrote."""
STATES_REMEMBERED_MAX = 4096
"""Refs of which the last state is remembered, to look there first."""
CREATIONS_MAX = 8
"""Attempts at a creation that finds the ref's folder not empty."""
CREATION_WAIT_SECONDS = 0.2
"""Longest wait between two attempts at a creation, seconds."""
_EXISTS = frozenset({errno.ENOTEMPTY, errno.EEXIST})


class PosixRefs:
    """The refs of one tree.

    All methods may raise ``OSError``.

    :param tree: where they are.
    :param top: their folder, of the tree's file system.
    """

    def __init__(self, tree: PosixTree, top: str) -> None:
        """Use the refs in ``top``."""
        self._tree = tree
        self._top = top
        self._states: dict[str, State] = {}

    def get(self, name: str) -> base.Ref | None:
        """Return a ref's present state."""
        found = self._read(name)
        if found is None or found[1].is_removed:
            return None
        state, _, content = found
        return base.Ref(state.token, content)

    def refresh(self, name: str, known: base.Ref | None) -> base.Ref | None:
        """Return a ref's present state, ``known`` without reading the file where it is that."""
        state = State.parse(known.token) if known is not None else None
        # Of a damaged file `get` tells more.
        with contextlib.suppress(exception.CorruptError):
            if state is not None and self._find_state(self._folder(name), state) is not None:
                return known
        present = self.get(name)
        return known if present == known else present

    def swap(self, name: str, expected: str | None, content: bytes | None) -> str | None:
        """Change a ref if it is in the state ``expected``; return its new token.

        :raises ConflictError: when it is in another state, which is durable then.
        :raises UnavailableError: when it cannot be told whether this call changed it.
        """
        if expected is None:
            return self._create(name, content)
        state = State.parse(expected)
        path = self._folder(name)
        before = None if state is None else self._find_state(path, state)
        if state is None or before is None:
            raise self._conflict(name)
        is_removal = content is None
        kept = name.encode() if content is None else content
        header = Header.of(kept, before, is_removed=is_removal)
        temporary = self._tree.write_temporary([header.encode(), kept])
        try:
            self._follow(name, state, header, temporary)
            if is_removal:
                self._bury(path, state.place.incarnation)
        finally:
            # Last: while it is there, a sweep finds the removal that was not finished.
            posix_write.remove_if_there(temporary)
        if is_removal:
            self._states.pop(name, None)
            return None
        return self._remember(name, State(state.place.after(), header.nonce)).token

    def names(self, prefix: str) -> Iterator[str]:
        """Yield the names in the folder ``prefix``; one just removed may still be among them."""
        for name in self._tree.walk(self._top, prefix, lambda name, _: name.endswith("@")):
            yield name[:-1]

    def finish_removal(self, path: str) -> None:
        """Finish what a crashed process began, where ``path`` is its temporary file of a removal.

        :param path: of any temporary file.
        """
        with open(path, "rb") as file:
            start = file.read(posix_ref_file.HEADER_BYTES_MAX + keys.NAME_LENGTH_MAX)
        try:
            header, content = posix_ref_file.parse_file(start, path)
            name = keys.validate_ref_name(content.decode("ascii"))
        except (exception.AcstorError, ValueError):
            return
        if not header.is_removed:
            return
        try:
            self._bury(self._folder(name), None)
        except exception.AcstorError as error:
            # A damaged ref is told of by who reads it; what others left goes all the same.
            LOG.warning("what is left of ref %s stays: %s", name, error)

    def _folder(self, name: str) -> str:
        return os.path.join(self._top, f"{name}@")

    def _find_state(self, path: str, state: State) -> Header | None:
        """Return the header of a ref's file if the ref is in ``state``, else None."""
        # The next one first: see above.
        if is_there(os.path.join(path, state.place.after().name)):
            return None
        return self._header_of(path, state)

    def _header_of(self, path: str, state: State) -> Header | None:
        """Return the header of a state's file; None when there is none (any more), or another."""
        if state.is_damaged:
            return self._header_of_damaged(path, state)
        header = self._header_at(path, state.place)
        return header if header is not None and header.nonce == state.nonce else None

    def _header_of_damaged(self, path: str, state: State) -> Header | None:
        """Return a header without nonce and history, as nothing in the file can be relied on.

        Who wrote the file and asks later how he fared is told that it cannot be told.
        """
        file = _read(os.path.join(path, state.place.name), posix_ref_file.FILE_BYTES_MAX + 1)
        if file is None or State.of_damaged(state.place, file) != state:
            return None
        return Header(is_removed=False, nonce="", length=0, digest="")

    def _header_at(self, path: str, place: Place) -> Header | None:
        """Return the header of a version, None when there is none (any more)."""
        file = os.path.join(path, place.name)
        start = _read(file, posix_ref_file.HEADER_BYTES_MAX)
        return None if start is None else Header.parse(start, file)[0]

    def _read(self, name: str) -> tuple[State, Header, bytes] | None:
        """Return state, header and content of a ref; None: there is none."""
        path = self._folder(name)
        for _ in range(ATTEMPTS_MAX):
            known = self._states.get(name)
            place = known.place if known else None
            if place is None or is_there(os.path.join(path, place.after().name)):
                known, place = None, _highest(self._files(path))
                if place is None:
                    self._states.pop(name, None)
                    return None
            file = os.path.join(path, place.name)
            whole = _read(file, posix_ref_file.FILE_BYTES_MAX + 1)
            if whole is not None:
                header, content = self._parsed(whole, file, place)
                state = State(place, header.nonce)
                is_confirmed = known == state if known else self._is_still_highest(path, place)
                if is_confirmed:
                    return self._remember(name, state), header, content
            self._states.pop(name, None)
        raise exception.UnavailableError(f"ref {name} changes faster than it can be read")

    def _is_still_highest(self, path: str, place: Place) -> bool:
        """Answer of a second listing: the first version shown is the highest still, or not.

        What was read at its place in between was its own then. Else it may be what came too late,
        after the version had been removed.
        """
        return _highest(self._files(path)) == place

    @staticmethod
    def _parsed(whole: bytes, file: str, place: Place) -> tuple[Header, bytes]:
        try:
            return posix_ref_file.parse_file(whole, file)
        except exception.CorruptError as error:
            token = State.of_damaged(place, whole).token
            raise base.DamagedRefError(error.message, token=token, hint=error.hint) from error

    def _files(self, path: str) -> list[str]:
        """Return the names of a ref's files; [] when there is no such ref."""
        try:
            return os.listdir(path)
        except FileNotFoundError:
            self._tree.check_there()
            return []

    def _remember(self, name: str, state: State) -> State:
        while len(self._states) >= STATES_REMEMBERED_MAX and name not in self._states:
            # Another thread may empty it at the same time.
            with contextlib.suppress(KeyError, RuntimeError, StopIteration):
                self._states.pop(next(iter(self._states)))
        self._states[name] = state
        return state

    def _follow(self, name: str, state: State, header: Header, temporary: str) -> None:
        """Make ``temporary`` the version after ``state``, durably."""
        path = self._folder(name)
        place = state.place.after()
        if self._find_state(path, state) is None:  # writing the file took its time
            raise self._conflict(name)
        try:
            with self._tree.through_no_link(path) as there:
                target = os.path.join(there, place.name)
                self._tree.reserve.spend_on(lambda: posix_write.add_name(temporary, target))
        except OSError as error:
            # The answer to a request that was carried out may have been lost.
            if self._header_of(path, State(place, header.nonce)) is None:
                if not isinstance(error, FileExistsError | FileNotFoundError):
                    raise
                was_state = self._was_state(name, place, header)
                if not was_state:
                    raise self._refusal(name, was_state) from error
        if self._header_of(path, state) is None:
            self._check_overtaken(name, place, header)
        with self._tree.through_no_link(path) as there:
            superseded = self._superseded(there, place)
            posix_write.synchronise_folder(there)
            _remove_ascending(there, superseded)

    def _check_overtaken(self, name: str, place: Place, header: Header) -> None:
        """Find out whether the version made at ``place`` was the ref's, which is in another now.

        :raises ConflictError: when it was not.
        :raises UnavailableError: when too much was changed since to tell.
        """
        was_state = self._was_state(name, place, header)
        if was_state:
            return
        # Nobody takes it for the state (any more).
        with (
            contextlib.suppress(FileNotFoundError),
            self._tree.through_no_link(self._folder(name)) as there,
        ):
            posix_write.remove_if_there(os.path.join(there, place.name))
        raise self._refusal(name, was_state)

    def _was_state(self, name: str, place: Place, header: Header) -> bool | None:
        """Ask the ref's present state whether the version at ``place`` was that of ``header``.

        :returns: None when too much was changed since to tell.
        """
        found = self._read(name)
        if found is None or found[0].place.incarnation != place.incarnation:
            return None
        distance = found[0].place.number - place.number
        return found[1].follows(header.nonce, distance) if distance else False

    def _refusal(self, name: str, was_state: bool | None) -> exception.AcstorError:
        """Return the error for a version that was not the state, or of which it is not known."""
        if was_state is not None:
            return self._conflict(name)
        return exception.UnavailableError(
            f"changing ref {name} took so long that it cannot be told whether it was changed",
            hint="read it, and change it again if it was not",
        )

    def _superseded(self, path: str, place: Place) -> Sequence[Place]:
        """Return the versions that nobody needs after ``place``, ascending."""
        last = place.number - RETAINED_VERSIONS
        if last <= 0:
            return []
        # One listing, as a version that a look missed would stay while later ones are removed.
        found = [
            other
            for other in _places(os.listdir(path))
            if other.incarnation == place.incarnation and 0 < other.number <= last
        ]
        return sorted(found, key=lambda other: other.number)

    def _create(self, name: str, content: bytes | None) -> str | None:
        path = self._folder(name)
        for attempt in range(CREATIONS_MAX):
            if attempt:
                time.sleep(random.uniform(0.0, CREATION_WAIT_SECONDS))
            found = self._read(name)
            if found is not None and not found[1].is_removed:
                raise self._conflict(name)
            if content is None:
                return None
            self._bury(path, None)
            self._make_room(name)
            state = self._install(path, content)
            if state is not None:
                posix_write.synchronise_folder(os.path.dirname(path))
                return self._remember(name, state).token
        foreign = [file for file in self._files(path) if Place.parse(file) is None]
        if foreign:
            raise exception.UnavailableError(
                f"ref {name} cannot be made: in its folder {path} is {foreign[0]}, of nobody",
                hint="end the program that has it open, or remove it",
            )
        raise exception.UnavailableError(f"ref {name} comes and goes too fast to be made")

    def _make_room(self, name: str) -> None:
        """Make the folder that a ref's folder is in; a ref is no folder of others."""
        parts = name.split("/")
        for count in range(1, len(parts)):
            above = self._folder("/".join(parts[:count]))
            if is_folder(above):
                raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), above)
        if is_folder(os.path.join(self._top, name)):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), name)
        self._tree.make_folder(os.path.dirname(self._folder(name)))

    def _install(self, path: str, content: bytes) -> State | None:
        """Put a new incarnation in place; None when the folder is not empty."""
        header = Header.of(content)
        state = State(Place(posix_ref_file.random_nonce(), 1), header.nonce)
        folder = self._tree.make_temporary_folder()
        try:
            self._fill(folder, state.place, [header.encode(), content])
            with self._tree.through_no_link(os.path.dirname(path)) as there:
                target = os.path.join(there, os.path.basename(path))
                self._tree.reserve.spend_on(lambda: os.rename(folder, target))
        except OSError as error:
            anchor = os.path.join(path, state.place.after(-1).name)
            if not is_there(anchor):
                is_in_doubt = not is_there(folder)
                self._tree.remove_temporary_folder(folder)
                if is_in_doubt:
                    raise exception.UnavailableError(
                        f"{path}: it cannot be told whether the ref was made"
                    ) from error
                if error.errno in _EXISTS:
                    return None
                raise
        return state

    def _fill(self, folder: str, place: Place, buffers: Sequence[bytes]) -> None:
        temporary = self._tree.write_temporary(buffers)
        with self._tree.through_no_link(folder) as there:
            os.rename(temporary, os.path.join(there, place.name))
            anchor = os.path.join(there, place.after(-1).name)
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
            os.close(self._tree.reserve.spend_on(lambda: os.open(anchor, flags, 0o444)))
            posix_write.synchronise_folder(there)

    def _bury(self, path: str, incarnation: str | None) -> None:
        """Remove what is left of incarnations that are over, and the folder if it is empty then.

        What cannot be removed now is in nobody's way.

        :param incarnation: known to be over; None: find out whether the present one is.
        """
        try:
            with self._tree.through_no_link(path) as there:
                self._bury_files(there, incarnation)
            os.rmdir(path)
        except OSError as error:
            if error.errno not in (*_EXISTS, errno.ENOENT):
                LOG.warning("removing what is left of ref %s: %s", path, error)

    def _bury_files(self, path: str, incarnation: str | None) -> None:
        names = os.listdir(path)
        if incarnation is None:
            incarnation = self._removed_incarnation(path, names)
        over = _places_over(names, incarnation)
        for place in over:
            if place.number == 0:
                posix_write.remove_if_there(os.path.join(path, place.name))
        if over:
            # What others removed before must stay removed when the last version is gone.
            posix_write.synchronise_folder(path)
        _remove_ascending(path, [place for place in over if place.number])
        if len(over) == len(_places(names)):
            _remove_foreign(path, names)

    def _removed_incarnation(self, path: str, names: Iterable[str]) -> str | None:
        """Return the present incarnation if its last version says that the ref is removed."""
        highest = _highest(names)
        if highest is None:
            return None
        header = self._header_at(path, highest)
        if header is None or not header.is_removed or not self._is_still_highest(path, highest):
            return None
        return highest.incarnation

    def _conflict(self, name: str) -> exception.ConflictError:
        """Return the error for a ref in another state, once that is durable.

        Who repeats a call whose answer was lost, and finds what it wanted, relies on that.
        """
        path = self._folder(name)
        for folder in (path, os.path.dirname(path)):
            with contextlib.suppress(FileNotFoundError):
                posix_write.synchronise_folder(folder)
        self._tree.check_there()
        return exception.ConflictError(f"ref {name} was changed by someone else")


def _places(names: Iterable[str]) -> list[Place]:
    return [place for name in names if (place := Place.parse(name)) is not None]


def _highest(names: Iterable[str]) -> Place | None:
    """Return the present incarnation's highest version; None when there is none."""
    places = _places(names)
    present = {place.incarnation for place in places if place.number == 0}
    return max(
        (place for place in places if place.incarnation in present and place.number),
        key=lambda place: place.number,
        default=None,
    )


def _places_over(names: Iterable[str], incarnation: str | None) -> list[Place]:
    """Return the files of incarnations that are over, ascending: those without a file 0, too."""
    places = _places(names)
    present = {place.incarnation for place in places if place.number == 0} - {incarnation}
    over = [place for place in places if place.incarnation not in present]
    return sorted(over, key=lambda place: place.number)


def _remove_foreign(path: str, names: Iterable[str]) -> None:
    """Remove files that are no versions, where no incarnation is: no creation would ever succeed.

    An NFS client that crashed leaves such (``.nfs...``). The folder is not moved away instead: it
    might be another one then, of a ref that was just made.
    """
    for name in names:
        if Place.parse(name) is None:
            try:
                posix_write.remove_if_there(os.path.join(path, name))
            except OSError as error:
                LOG.warning("%s in the folder of ref %s cannot be removed: %s", name, path, error)


def _remove_ascending(path: str, places: Sequence[Place]) -> None:
    """Remove versions, each after the removal of the one before is durable."""
    for index, place in enumerate(places):
        if index:
            posix_write.synchronise_folder(path)
        posix_write.remove_if_there(os.path.join(path, place.name))


def _read(path: str, size_max: int) -> bytes | None:
    """Return the first bytes of a file; None when there is none (any more)."""
    for _ in range(ATTEMPTS_MAX):
        try:
            descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            return None
        except OSError as error:
            if error.errno != errno.ESTALE:
                raise
            continue
        try:
            return _read_descriptor(descriptor, size_max)
        except OSError as error:
            # Removed over NFS while it was open here.
            if error.errno != errno.ESTALE:
                raise
        finally:
            os.close(descriptor)
    raise OSError(errno.ESTALE, os.strerror(errno.ESTALE), path)


def _read_descriptor(descriptor: int, size_max: int) -> bytes:
    parts = []
    while size_max > 0 and (part := os.read(descriptor, min(size_max, 1 << 20))):
        parts.append(part)
        size_max -= len(part)
    return b"".join(parts)
