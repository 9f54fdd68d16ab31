"""Image registry: the registrar's record of each image of Glance, the refs ``catalogue/<uuid>``.

An entry changes so; everything that is not listed is a programming error::

                        accept                    start               finish
    (absent) ----------------------> waiting ---------> registering ---------> registered
     | | ^                             ^  ^              |   |    (restore) ->    |
     | | |                     accept  |  |   accept     |   | fail               | withdraw
     | | '--forget-- (each)            |  '---------- failed <'                   v
     | '-----leave-----> left ---------'                  left <--leave------ withdrawn
     '-------restore---> registered                             (each --withdraw--^)

``registering`` with nobody at work (its registrar was killed) is an attempt that failed: it may be
the image that killed it. Whether hosts have the image is said by the ref ``images/<uuid>`` alone;
an image without an entry was registered by hand.
"""

import contextlib
import dataclasses
import datetime
import enum
import json
from collections.abc import Iterator

from acstor import exception, untrusted_json
from acstor.origin import base
from acstor.repository import layout
from acstor.repository.images.image_index import ImageIndexWriter
from acstor.states import TransitionTable

REGISTRY_PREFIX = "catalogue/"
REGISTRY_VERSION = 1
NAME_LENGTH_MAX = 255
REASON_LENGTH_MAX = 500


class EntryState(enum.StrEnum):
    """State of an image of Glance in the registry."""

    WAITING = "waiting"
    """It will be registered."""
    REGISTERING = "registering"
    """A registrar is reading and storing it."""
    REGISTERED = "registered"
    """Hosts boot from it."""
    LEFT = "left"
    """It is left to Nova; the reason says why."""
    FAILED = "failed"
    """It could not be registered; the reason says why, ``retry_at`` when it is tried again."""
    WITHDRAWN = "withdrawn"
    """It is not to be used for new instances; it goes as soon as no instance uses it."""


class EntryEvent(enum.StrEnum):
    """Event in the life of an entry."""

    ACCEPT = "accept"
    """The image is one to register."""
    START = "start"
    """A registrar begins with it."""
    FINISH = "finish"
    """It is registered."""
    FAIL = "fail"
    LEAVE = "leave"
    """It is left to Nova, and hosts do not have it."""
    WITHDRAW = "withdraw"
    """Glance has it no more, deactivated it, or it is not to be registered any more."""
    RESTORE = "restore"
    """Hosts have it, with the content that Glance says: nothing needs to be done."""
    FORGET = "forget"
    """Glance has it no more and hosts do not have it."""


_S, _E = EntryState, EntryEvent

TRANSITIONS = TransitionTable[EntryState | None, EntryEvent](
    {
        (None, _E.ACCEPT): _S.WAITING,
        (None, _E.LEAVE): _S.LEFT,
        (None, _E.RESTORE): _S.REGISTERED,  # it was registered by hand
        (_S.WAITING, _E.START): _S.REGISTERING,
        (_S.WAITING, _E.LEAVE): _S.LEFT,
        (_S.WAITING, _E.WITHDRAW): _S.WITHDRAWN,
        (_S.WAITING, _E.FORGET): None,
        (
            _S.REGISTERING,
            _E.ACCEPT,
        ): _S.WAITING,  # Glance changed it, or the lead was lost
        (_S.REGISTERING, _E.FINISH): _S.REGISTERED,
        (_S.REGISTERING, _E.RESTORE): _S.REGISTERED,  # killed after the image was published
        (_S.REGISTERING, _E.FAIL): _S.FAILED,
        (_S.REGISTERING, _E.LEAVE): _S.LEFT,
        (_S.REGISTERING, _E.WITHDRAW): _S.WITHDRAWN,
        (_S.REGISTERING, _E.FORGET): None,
        (_S.REGISTERED, _E.ACCEPT): _S.WAITING,  # somebody removed the image by hand
        (_S.REGISTERED, _E.LEAVE): _S.LEFT,
        (_S.REGISTERED, _E.WITHDRAW): _S.WITHDRAWN,
        (_S.REGISTERED, _E.FORGET): None,
        (_S.LEFT, _E.ACCEPT): _S.WAITING,
        (_S.LEFT, _E.LEAVE): _S.LEFT,  # for another reason
        (_S.LEFT, _E.WITHDRAW): _S.WITHDRAWN,
        (_S.LEFT, _E.FORGET): None,
        (_S.FAILED, _E.ACCEPT): _S.WAITING,
        (_S.FAILED, _E.LEAVE): _S.LEFT,
        (_S.FAILED, _E.WITHDRAW): _S.WITHDRAWN,
        (_S.FAILED, _E.FORGET): None,
        (_S.WITHDRAWN, _E.ACCEPT): _S.WAITING,
        (_S.WITHDRAWN, _E.LEAVE): _S.LEFT,
        (_S.WITHDRAWN, _E.RESTORE): _S.REGISTERED,
        (_S.WITHDRAWN, _E.WITHDRAW): _S.WITHDRAWN,  # for another reason
        (_S.WITHDRAWN, _E.FORGET): None,
    },
    name="registry",
    error=exception.InternalError,
)
"""Every change of an entry; None: there is no entry."""

next_state = TRANSITIONS.after


@dataclasses.dataclass(frozen=True, slots=True)
class Entry:
    """Entry for one image of Glance. Times are UTC, ISO 8601."""

    state: EntryState
    reason: str = ""
    """Reason, for people."""
    name: str = ""
    pin: bool = False
    """True if hosts are to keep the whole image (``acstor_pin=true``)."""
    pin_ignored: bool = False
    """True if the image asks for that and its project may not."""
    checksum: str | None = None
    """Checksum that Glance declares, ``algorithm:hexadecimal``."""
    size_bytes: int = 0
    """Of the file in Glance."""
    glance_updated_at: str = ""
    changed_at: str = ""
    """Time at which the state was reached."""
    attempts: int = 0
    """Registrations that were begun, since the last that came to a result; counted when they begin,
    so that one which kills its registrar counts too. Those that were cancelled do not."""
    retry_at: str | None = None
    """Time at which a failed registration is tried again; None: only after a change in Glance."""
    judged: str | None = None
    """Subject of a verdict on the content itself, disk format and checksum; None: there is none. As
    long as Glance says the same, so does the verdict."""
    unused_since: str | None = None
    """Since when no host uses a withdrawn image; None: one does, or nobody looked yet."""
    is_urgent: bool = False
    """True if a withdrawn image would do harm on the hosts: it goes as soon as it is unused."""
    registrar: str = ""
    """Name of the registrar that wrote this."""

    def encode(self) -> bytes:
        """Return the ref's content, JSON."""
        fields = {"version": REGISTRY_VERSION, **dataclasses.asdict(self)}
        return json.dumps(fields, indent=1, sort_keys=True).encode() + b"\n"

    @classmethod
    def parse(cls, content: bytes, image_id: str) -> "Entry":
        """Read a ref's content; unknown fields are ignored.

        :raises UnsupportedError: when a newer release wrote it.
        :raises CorruptError: when it is malformed.
        """
        malformed = exception.CorruptError(
            f"the registry's entry of image {image_id} is malformed",
            hint=f"remove the ref {registry_ref(image_id)}; the registrar writes it anew",
        )
        try:
            fields = untrusted_json.load(content, "the entry")
            version = fields["version"]
        except (ValueError, TypeError, KeyError) as error:
            raise malformed from error
        if version != REGISTRY_VERSION:
            raise exception.UnsupportedError(
                f"the registry's entry of image {image_id} has version {version!r:.20}, "
                f"this release reads {REGISTRY_VERSION}"
            )
        try:
            known = {
                field.name: fields[field.name]
                for field in dataclasses.fields(cls)
                if field.name in fields
            }
            entry = cls(**{**known, "state": EntryState(known["state"])})
            entry._check()
        except (ValueError, TypeError, KeyError) as error:
            raise malformed from error
        return entry

    def _check(self) -> None:
        for name, kind in _FIELD_KINDS.items():
            value = getattr(self, name)
            if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
                raise ValueError(name)
        for name in ("size_bytes", "attempts"):
            untrusted_json.whole(getattr(self, name), name)
        for time in (self.retry_at, self.unused_since):
            if time is not None:
                parse_time(time)


_OPTIONAL = (str, type(None))
_FIELD_KINDS: dict[str, type | tuple[type, ...]] = {
    "reason": str,
    "name": str,
    "pin": bool,
    "pin_ignored": bool,
    "checksum": _OPTIONAL,
    "size_bytes": int,
    "glance_updated_at": str,
    "changed_at": str,
    "attempts": int,
    "retry_at": _OPTIONAL,
    "judged": _OPTIONAL,
    "unused_since": _OPTIONAL,
    "is_urgent": bool,
    "registrar": str,
}


def format_time(seconds: float) -> str:
    """Return a time as the entries have it.

    :param seconds: since the epoch.
    """
    return datetime.datetime.fromtimestamp(seconds, datetime.UTC).isoformat(timespec="seconds")


def parse_time(text: str) -> float:
    """Return a time of an entry in seconds since the epoch.

    :raises ValueError: when it is malformed or has no time zone.
    """
    time = datetime.datetime.fromisoformat(text)
    if time.tzinfo is None:
        raise ValueError(f"{text} has no time zone")
    return time.timestamp()


def registry_ref(image_id: str) -> str:
    """Return the name of the ref that holds an image's entry."""
    return REGISTRY_PREFIX + image_id


@dataclasses.dataclass(frozen=True, slots=True)
class Listed:
    """An entry as it is in the origin."""

    image_id: str
    entry: Entry
    token: str
    """Names this state of the ref."""


class ImageRegistry:
    """The entries in one origin."""

    def __init__(self, refs: base.RefStore, index: ImageIndexWriter | None = None) -> None:
        """Use the entries in ``origin``.

        :param index: of the same repository; None: only for who changes no entry.
        """
        self._refs = refs
        self._index = index or ImageIndexWriter(refs, is_kept=False)

    def find(self, image_id: str) -> Listed | None:
        """Return an image's entry, None when there is none.

        :raises InvalidError: when the id is no UUID.
        :raises CorruptError: and the like when it is not readable.
        :raises UnavailableError: when the origin cannot be reached.
        """
        image_id = layout.canonical_image_id(image_id)
        ref = self._refs.get_ref(registry_ref(image_id))
        if ref is None:
            return None
        return Listed(image_id, Entry.parse(ref.content, image_id), ref.token)

    def ids(self) -> Iterator[str]:
        """Yield the ids of all images with an entry, in no particular order."""
        for name in self._refs.list_refs(REGISTRY_PREFIX):
            yield name.removeprefix(REGISTRY_PREFIX)

    def entries(self) -> Iterator[Listed]:
        """Yield all entries but those that vanish meanwhile; errors as in :meth:`find`."""
        for image_id in self.ids():
            listed = self.find(image_id)
            if listed is not None:
                yield listed

    def replace(self, image_id: str, before: Listed | None, after: Entry | None) -> Listed | None:
        """Change an entry if it still is what the caller has seen.

        :param before: what the caller has seen; None: no entry.
        :param after: None removes the entry.
        :raises ConflictError: when somebody else changed it.
        :raises UnavailableError: when the origin cannot be reached.
        """
        was_pinned = before is not None and before.entry.pin
        # Hosts read nothing else of it.
        is_noted = was_pinned != (after is not None and after.pin)
        with self._index.changing(image_id) if is_noted else contextlib.nullcontext():
            token = self._refs.swap_ref(
                registry_ref(image_id),
                before.token if before else None,
                after.encode() if after else None,
            )
        return Listed(image_id, after, token) if after is not None and token is not None else None
