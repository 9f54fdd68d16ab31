"""Holds: while somebody copies the repository, collections delete nothing.

A hold is a ref among the tombstones, ``gc/condemned/ffff...<id>``. Whoever copies places it before
it reads the first ref, renews it while it copies, and removes it. A collection looks for holds
after its marking and before it seals the first tombstone. Let a copier read ref R, which names P,
after it placed its hold. Whoever seals P has not seen R: it looked for R before R was there, which
RFD 5 and RFD 8 exclude, or after R was gone, and then it looked for holds later still.

A hold ends by itself. No clocks of different hosts are compared: a collector notes in the hold when
it first saw this state of it, and removes a hold that it still finds so after the hold's lease. The
copier's next renewal then fails, and it knows that what it has not copied may be gone.

Collectors of releases that know no holds take one for a tombstone of a version that they do not
read, and refuse to collect.
"""

import contextlib
import dataclasses
import json
import logging
import secrets
import threading
from collections.abc import Callable, Iterator
from types import TracebackType
from typing import Self

from acstor import exception, untrusted_json
from acstor.origin import ref_replacement
from acstor.origin.base import RefStore
from acstor.repository import layout
from acstor.repository.gc.condemnation import HOLD_MARK, TIME_MAX

LOG = logging.getLogger(__name__)

HOLD_VERSION = 2
"""Above the version of tombstones, so that collectors without holds refuse to collect."""
HOLD_KIND = "hold"
LEASE_SECONDS = 900.0
"""Seconds without a renewal after which a collector ends a hold."""
LEASE_SECONDS_MAX = 86400.0
"""Longest lease that is believed: hosts can write tombstones, and so holds."""
RENEWAL_SECONDS = 60.0
"""Seconds between two renewals: an origin that is away for minutes ends no copy."""
HOLDER_LENGTH_MAX = 255


@dataclasses.dataclass(frozen=True, slots=True)
class Hold:
    """One state of a hold."""

    holder: str
    """Host and process that copies; for people."""
    lease_seconds: float = LEASE_SECONDS
    renewal: int = 0
    """Grows with each renewal."""
    seen: dict[str, float] = dataclasses.field(default_factory=dict)
    """Host of a collector -> that host's time (seconds) when it first saw this renewal."""

    def encode(self) -> bytes:
        """Return the ref's content, JSON."""
        fields = {"version": HOLD_VERSION, "kind": HOLD_KIND, **dataclasses.asdict(self)}
        return json.dumps(fields, sort_keys=True).encode() + b"\n"

    @classmethod
    def parse(cls, content: bytes) -> "Hold":
        """Read a ref's content; one that is malformed has this release's lease, and nobody saw it.

        :raises UnsupportedError: when a newer release wrote it.
        """
        try:
            fields = untrusted_json.load(content, "a hold")
            version = fields["version"]
            if version == HOLD_VERSION and fields["kind"] == HOLD_KIND:
                return cls(
                    str(fields["holder"])[:HOLDER_LENGTH_MAX],
                    untrusted_json.number(fields["lease_seconds"], "a lease", 0, LEASE_SECONDS_MAX),
                    untrusted_json.whole(fields["renewal"], "renewal"),
                    {
                        str(host): untrusted_json.number(time, "a time", -TIME_MAX, TIME_MAX)
                        for host, time in fields["seen"].items()
                    },
                )
        except (ValueError, TypeError, KeyError, AttributeError):
            return cls("somebody whose hold is malformed")
        raise exception.UnsupportedError(
            f"a hold on collections has version {version!r:.20}",
            hint="collect with the newest release of those in use",
        )


class HoldKeeper:
    """A hold that is renewed, as a context.

    It is written from the reserve where the origin is full: somebody copies it before room is made.

    :param holder: host and process that copies; for people.
    :param renewal_seconds: between two renewals.
    """

    def __init__(
        self,
        refs: RefStore,
        holder: str,
        *,
        lease_seconds: float = LEASE_SECONDS,
        renewal_seconds: float = RENEWAL_SECONDS,
    ) -> None:
        self._refs = refs
        self._first = Hold(holder[:HOLDER_LENGTH_MAX], lease_seconds)
        self._renewal_seconds = renewal_seconds
        self._lapse: exception.AcstorError | None = None
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._keep, name="collection-hold", daemon=True)
        self.name = layout.CONDEMNED_PREFIX + HOLD_MARK + secrets.token_hex(8)
        """Of the ref."""

    def __enter__(self) -> Self:
        """Place the hold.

        :raises UnavailableError: when the origin cannot be reached.
        """
        with self._refs.freeing(is_beginning=True):
            ref_replacement.replace(self._refs, self.name, self._first.encode())
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Remove it; where that fails it ends by itself."""
        self._is_over.set()
        self._thread.join()
        try:
            ref_replacement.replace(self._refs, self.name, None)
        except exception.AcstorError as failure:
            LOG.warning(
                "collections stay held for %.0f s: %s",
                self._first.lease_seconds,
                exception.one_line(failure),
            )

    def check(self) -> None:
        """Refuse to go on where collections may have deleted something.

        :raises ConflictError: when the hold has ended before.
        """
        if self._lapse is not None:
            raise self._lapse

    def renew(self) -> None:
        """Begin the lease anew.

        :raises ConflictError: when the hold has ended before.
        :raises UnavailableError: when the origin cannot be reached.
        """

        def renewed(content: bytes | None) -> bytes | None:
            if content is None:
                raise exception.ConflictError(
                    "the hold on collections has ended: it was not renewed in time",
                    hint="run the same command again: it goes on with what is there",
                )
            before = Hold.parse(content)
            after = dataclasses.replace(self._first, renewal=before.renewal + 1)
            return after.encode()

        self.check()
        try:
            with self._refs.freeing(is_beginning=True):
                ref_replacement.change(self._refs, self.name, renewed)
        except exception.ConflictError as error:
            self._lapse = error
            raise

    def _keep(self) -> None:
        while not self._is_over.wait(self._renewal_seconds):
            try:
                self.renew()
            except exception.ConflictError:
                return  # whoever copies is told by check()
            except exception.AcstorError as error:
                LOG.warning(
                    "the hold on collections was not renewed: %s", exception.one_line(error)
                )


def holders(refs: RefStore, host: str, clock: Callable[[], float]) -> list[str]:
    """Return whose holds keep this host's collection from deleting; end those that are over.

    :param host: of the collector.
    :param clock: seconds, of that host.
    :raises UnsupportedError: when a newer release holds.
    """
    names = [
        name
        for name in refs.list_refs(layout.CONDEMNED_PREFIX)
        if is_hold(name.removeprefix(layout.CONDEMNED_PREFIX))
    ]
    return list(_holding(refs, names, host, clock()))


def _holding(refs: RefStore, names: list[str], host: str, now: float) -> Iterator[str]:
    for name in sorted(names):
        ref = ref_replacement.read_replaceable(refs, name)
        if ref is None:
            continue
        hold = Hold.parse(ref.content)
        first_seen = hold.seen.get(host)
        if first_seen is None or first_seen > now:
            noted = dataclasses.replace(hold, seen={**hold.seen, host: now})
            # From the reserve: without the note a hold that is over never ends, nor a full origin's
            # lack of room. A conflict: it was renewed, or removed.
            with contextlib.suppress(exception.ConflictError), refs.freeing():
                refs.swap_ref(name, ref.token, noted.encode())
        elif now - first_seen >= hold.lease_seconds:
            try:
                refs.swap_ref(name, ref.token, None)
            except exception.ConflictError:
                pass  # renewed at this moment
            else:
                LOG.warning("the hold of %s was not renewed, and is ended", hold.holder)
                continue
        yield hold.holder


def is_hold(name: str) -> bool:
    """Return whether a ref of that name among the tombstones is a hold."""
    return layout.name_of(name) == name and name.startswith(HOLD_MARK)
