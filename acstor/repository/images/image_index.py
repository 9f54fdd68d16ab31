"""Index of changes to the registered images: the content of the ref ``image-index``.

Hosts follow one ref instead of listing all images and reading each: whatever is written about an
image (its record ``images/<uuid>``, and what the registry says of its pin) is noted here, so what a
host reads does not grow with the number of images.

A change of an image is bracketed::

    open     the image is in ``open``: hosts read its refs at every pass
    (change) of the image's own ref
    close    the image is in ``changes`` with the next generation, and in ``open`` no more

Killed in between, the writer leaves the image open: hosts read a ref more than they need, and none
misses what was written. The registrar closes what stays open for too long. Where the store of refs
has a doorbell, it is rung after each change, so that hosts look at once. So whoever has followed
the index to a generation, and has read the images that were open, knows every change that was
complete before.

The index is no proof of anything: whoever can write to the origin can write it. What the registrar
has signed of it is in a field of its own, which every writer keeps.
"""

import contextlib
import dataclasses
import functools
import json
import logging
import secrets
from collections.abc import Callable, Iterator, Mapping

from acstor import exception, untrusted_json
from acstor.origin.base import DamagedRefError, RefStore
from acstor.repository import layout

LOG = logging.getLogger(__name__)

INDEX_REF = "image-index"
INDEX_VERSION = 1
CHANGES_MAX = 1024
"""Changes that are kept: who was away for longer reads all images once."""
OPEN_MAX = 256
"""Changes under way at one time; more are a writer that runs wild, or many that were killed."""
SIZE_MAX = 1 << 20
STATEMENT_SIZE_MAX = 4096
"""Longest statement, characters."""
_ATTEMPTS_MAX = 20
"""Swaps that are tried against other writers before the change is given up."""
_GENERATION_MAX = (1 << 53) - 1


@dataclasses.dataclass(frozen=True, slots=True)
class ImageIndex:
    """State of the index."""

    id: str
    """Changes with every index that is begun anew."""
    generation: int = 0
    changes: tuple[tuple[int, str], ...] = ()
    """The last changes, generation and image id, oldest first; one an image."""
    forgotten: int = 0
    """Generation of the last change that is not kept any more."""
    open: Mapping[str, str] = dataclasses.field(default_factory=dict)
    """Image id by the nonce of a change that is under way."""
    statement: str | None = None
    """Signed statement about the images, which nobody has verified (index_statement.py)."""

    @classmethod
    def new(cls) -> "ImageIndex":
        """Return an index in which nothing has changed yet."""
        return cls(secrets.token_hex(16))

    def opened(self, nonce: str, image_id: str) -> "ImageIndex":
        """Return the state with a change of an image under way.

        :raises ExhaustedError: when there are :data:`OPEN_MAX`.
        """
        if len(self.open) >= OPEN_MAX:
            raise exception.ExhaustedError(
                f"{OPEN_MAX} changes of images are under way, or were left so",
                hint="see that a registrar runs: it ends those that were left",
            )
        return dataclasses.replace(self, open={**self.open, nonce: image_id})

    def closed(self, nonce: str, image_id: str) -> "ImageIndex":
        """Return the state with that change complete, even where it was not known to be open."""
        generation = self.generation + 1
        changes = [change for change in self.changes if change[1] != image_id]
        changes.append((generation, image_id))
        dropped = changes[:-CHANGES_MAX]
        return dataclasses.replace(
            self,
            generation=generation,
            changes=tuple(changes[-CHANGES_MAX:]),
            forgotten=dropped[-1][0] if dropped else self.forgotten,
            open={key: value for key, value in self.open.items() if key != nonce},
        )

    def changed_since(self, generation: int) -> frozenset[str] | None:
        """Return the images that may have changed since a generation; None: all may have."""
        if generation < self.forgotten or generation > self.generation:
            return None
        changed = {image_id for at, image_id in self.changes if at > generation}
        return frozenset(changed.union(self.open.values()))

    def encode(self) -> bytes:
        """Return the ref's content, JSON."""
        fields: dict[str, object] = {
            "version": INDEX_VERSION,
            "id": self.id,
            "generation": self.generation,
            "forgotten": self.forgotten,
            "changes": [list(change) for change in self.changes],
            "open": dict(sorted(self.open.items())),
        }
        if self.statement is not None:
            fields["statement"] = self.statement
        return json.dumps(fields).encode() + b"\n"

    @classmethod
    def parse(cls, content: bytes) -> "ImageIndex":
        """Read a ref's content; unknown fields are ignored.

        :raises CorruptError: when it is malformed.
        :raises UnsupportedError: when a newer release wrote it.
        """
        try:
            if len(content) > SIZE_MAX:
                raise ValueError("too long")
            fields = untrusted_json.load(content, "the index of images")
            if fields["version"] != INDEX_VERSION:
                raise exception.UnsupportedError(
                    f"the index of images has version {fields['version']!r:.20}, this release "
                    f"reads {INDEX_VERSION}"
                )
            index = cls(
                _text(fields["id"]),
                untrusted_json.whole(fields["generation"], "generation", highest=_GENERATION_MAX),
                tuple((at, layout.canonical_image_id(one)) for at, one in fields["changes"]),
                untrusted_json.whole(fields["forgotten"], "forgotten", highest=_GENERATION_MAX),
                {
                    _text(nonce): layout.canonical_image_id(one)
                    for nonce, one in fields["open"].items()
                },
                _statement(fields.get("statement")),
            )
            index._check()
        except (ValueError, TypeError, KeyError, AttributeError, exception.InvalidError) as error:
            raise exception.CorruptError(
                "the index of images in the origin is malformed",
                hint="hosts go on without it; the registrar that leads begins a new one",
            ) from error
        return index

    def _check(self) -> None:
        before = self.forgotten
        for at, _ in self.changes:
            if untrusted_json.whole(at, "changes") <= before:
                raise ValueError("changes out of order")
            before = at
        if before > self.generation or len(self.open) > OPEN_MAX:
            raise ValueError("generation or open")


def _text(value: object) -> str:
    if not isinstance(value, str) or not 0 < len(value) <= 64:
        raise TypeError("no text")
    return value


def _statement(value: object) -> str | None:
    """Return a statement; one that cannot be any is none, and no reason to lose the index."""
    return value if isinstance(value, str) and len(value) <= STATEMENT_SIZE_MAX else None


class ImageIndexWriter:
    """Writer of the index of one origin.

    :param is_kept: whether the repository has an index; nothing is noted else.
    """

    def __init__(self, refs: RefStore, *, is_kept: bool) -> None:
        self._refs = refs
        self._is_kept = is_kept
        self._doorbell = refs.doorbell()

    @contextlib.contextmanager
    def changing(self, image_id: str) -> Iterator[None]:
        """Bracket a change of one image's refs.

        :raises ExhaustedError: when too many changes are under way.
        :raises ConflictError: when other writers were always faster.
        :raises UnavailableError: when the origin cannot be reached; nothing may be changed then.
        """
        if not self._is_kept:
            yield
            return
        nonce = secrets.token_hex(8)
        self._replace(lambda index: index.opened(nonce, image_id))
        try:
            yield
        except Exception:
            self._close(nonce, image_id)  # whether the change took place is not known
            raise
        # Who ends the process leaves the image open.
        self._close(nonce, image_id)

    def _close(self, nonce: str, image_id: str) -> None:
        try:
            self._replace(lambda index: index.closed(nonce, image_id))
        except exception.AcstorError as error:
            LOG.warning(
                "the index of images keeps image %s open: %s", image_id, exception.one_line(error)
            )
        if self._doorbell is not None:
            self._doorbell.ring()

    def close_left(self, nonces: Mapping[str, str]) -> None:
        """Close changes that their writers have left.

        :param nonces: image id by nonce, from :attr:`ImageIndex.open`.
        :raises UnavailableError: when the origin cannot be reached.
        """
        for nonce, image_id in nonces.items():
            self._replace(functools.partial(ImageIndex.closed, nonce=nonce, image_id=image_id))

    def ensure(self) -> ImageIndex | None:
        """Return the present state; where it is malformed, begin an index anew.

        :returns: None where none is kept.
        """
        if not self._is_kept:
            return None
        return self._replace(lambda index: index)

    def put_statement(self, index: ImageIndex, statement: str) -> bool:
        """Have the index carry a statement, where it is as it was; return whether it was.

        :param index: state that the statement is about.
        :raises UnavailableError: when the origin cannot be reached.
        """
        present, token, is_stored = self._read()
        if not self._is_kept or not is_stored or present != index:
            return False
        after = dataclasses.replace(index, statement=statement)
        try:
            self._refs.swap_ref(INDEX_REF, token, after.encode())
        except exception.ConflictError:
            return False
        return True

    def _replace(self, change: Callable[[ImageIndex], ImageIndex]) -> ImageIndex:
        for _ in range(_ATTEMPTS_MAX):
            index, token, is_stored = self._read()
            after = change(index)
            if after is index and is_stored:
                return index
            try:
                self._refs.swap_ref(INDEX_REF, token, after.encode())
            except exception.ConflictError:
                continue
            return after
        raise exception.ConflictError(
            f"the index of images was changed by others {_ATTEMPTS_MAX} times in a row",
            hint="try again",
        )

    def _read(self) -> tuple[ImageIndex, str | None, bool]:
        """Return a state, the token for a swap, and whether the state is the stored one."""
        try:
            ref = self._refs.get_ref(INDEX_REF)
        except DamagedRefError as error:
            LOG.warning("%s; a new index of images is begun", exception.one_line(error))
            return ImageIndex.new(), error.token, False
        if ref is None:
            return ImageIndex.new(), None, False
        try:
            return ImageIndex.parse(ref.content), ref.token, True
        except exception.CorruptError as error:
            LOG.warning("%s; a new one is begun", exception.one_line(error))
            new = ImageIndex.new()
            return dataclasses.replace(new, generation=1), ref.token, False
