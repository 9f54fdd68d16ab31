"""Generations of signed records: numbers that grow, whatever becomes of an image.

A host refuses a record whose generation is lower than one that it has seen. An image that is
removed and registered anew has no record before; so a generation is never counted from the image's
record. It is at least

* the time, milliseconds since 1970: so that a repository restored from a backup goes on above what
  was signed after the backup;
* one more than the last that was given out in the repository, which the ref ``image-generation``
  says: so that a clock that was set back, or is another controller's, makes no older ones;
* one more than that of the record which it replaces, where that can be believed.

The ref is signed, too: a host that writes to the origin can remove it, but not raise it. One that
is gone, damaged or not believed is written anew.
"""

import logging
import time
from collections.abc import Callable

from acstor import exception, native, untrusted_json
from acstor.origin.base import Origin
from acstor.origin.ref_replacement import read_replaceable
from acstor.repository.images.signed_record import GENERATION_MAX
from acstor.repository.signing import signed_document
from acstor.repository.signing.signed_document import SignedDocument
from acstor.repository.signing.trusted_keys import TrustedKeys

LOG = logging.getLogger(__name__)

GENERATION_REF = "image-generation"
GENERATION_VERSION = 1
DOMAIN = b"acstor generation 1"
_ATTEMPTS_MAX = 16
_WHAT = f"the ref {GENERATION_REF}"


class Generations:
    """Gives out the generations of one repository.

    :param keys: those that may have signed what was given out last.
    :param clock: seconds since the epoch.
    """

    def __init__(
        self,
        origin: Origin,
        repository_id: str,
        key: native.SigningKey,
        keys: TrustedKeys,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """Keep where they are counted."""
        self._origin = origin
        self._repository_id = repository_id
        self._key = key
        self._keys = keys
        self._clock = clock

    def reserve(self, count: int, above: int = 0) -> int:
        """Return the first of so many generations that nobody else gets.

        :param above: they are larger than this one.
        :raises ConflictError: when others reserve some all the time.
        :raises ExhaustedError: when there are no more.
        :raises UnsupportedError: when a newer release counts them.
        :raises UnavailableError: when the origin cannot be reached.
        """
        for attempt in range(1, _ATTEMPTS_MAX + 1):
            ref = read_replaceable(self._origin, GENERATION_REF)
            last = self._last(ref.content) if ref is not None else 0
            first = max(int(self._clock() * 1000), last + 1, above + 1)
            if first + count - 1 > GENERATION_MAX:
                raise exception.ExhaustedError(
                    f"there is no generation above {first - 1} for signed records",
                    hint="set the clock of this machine, sign with a new key, and take the old "
                    "key out of [repository] public_keys everywhere",
                )
            try:
                self._origin.swap_ref(
                    GENERATION_REF, ref.token if ref else None, self._encode(first + count - 1)
                )
            except exception.ConflictError:
                if attempt == _ATTEMPTS_MAX:
                    raise
            else:
                return first
        raise exception.InternalError("no attempt was made")

    def _encode(self, last: int) -> bytes:
        fields = {
            "version": GENERATION_VERSION,
            "repository": self._repository_id,
            "generation": last,
        }
        return signed_document.sign(fields, DOMAIN, self._key)

    def _last(self, content: bytes) -> int:
        """Return the generation that was given out last, 0 when what is there is not believed."""
        document = SignedDocument.split(content)
        try:
            if document is None:
                raise exception.CorruptError(f"{_WHAT} is malformed")
            fields = document.verify(_WHAT, DOMAIN, self._keys)
            if fields.get("version") != GENERATION_VERSION:
                raise exception.UnsupportedError(f"{_WHAT} is of another version")
            if fields.get("repository") != self._repository_id:
                raise exception.CorruptError(f"{_WHAT} is of another repository")
            return untrusted_json.whole(fields.get("generation"), "generation", 1, GENERATION_MAX)
        except (exception.CorruptError, ValueError) as error:
            LOG.warning("%s; generations go on from the time", error)
            return 0
