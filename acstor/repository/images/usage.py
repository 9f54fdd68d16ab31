"""Usage records: the manifests, images and bases that each host uses, refs ``usage/<host>``.

Every host writes its own; whoever withdraws images or collects garbage reads them all. What a host
that is gone has written stays until an operator says that it will not come back
(``acstor host forget``): its instances may be evacuated or come back with it.
"""

import dataclasses
import hashlib
import json
import re
from collections.abc import Mapping
from typing import Any

from acstor import exception, untrusted_json
from acstor.origin import ref_replacement
from acstor.origin.base import RefStore
from acstor.repository.layout import canonical_image_id

USAGE_PREFIX = "usage/"
USAGE_VERSION = 2
"""Version that this build writes; 1, which named images only, is read as well."""
INSTANCES_MAX = 100
"""Instances that a record names for one image; an operator needs no more to find the others."""

ROUND_MAX = (1 << 53) - 1
"""Newest round of a record that the registrar's next one is to be later than: one that no host was
asked in would leave the next without a number that everybody reads."""
SPEAKS_WITHIN_MAX = 86400.0
"""Seconds; above what ``[agent] interval`` and ``[image_links] scan_interval`` allow together."""

_DIGEST = re.compile(r"[0-9a-f]{64}\Z")
_BASE_NAME = re.compile(r"[0-9a-f]{40}\Z")


@dataclasses.dataclass(frozen=True)
class Usage:
    """One state of what one host uses."""

    images: Mapping[str, tuple[str, ...]] = dataclasses.field(default_factory=dict)
    """By image in use, the instances on the host's disk that need it; empty where only an open
    file tells."""
    bases: frozenset[str] = frozenset()
    """Names of Nova's base files (:func:`base_name`) that overlays need and whose image the host
    cannot tell."""
    manifests: Mapping[str, str] = dataclasses.field(default_factory=dict)
    """By digest of each manifest that the host has attached, or is about to, its image's id."""
    sequence: int = 0
    """Grows by one with each state; 0: of a release before version 2."""
    time: str = ""
    """Time of writing by the host's clock, UTC, ISO 8601; for people, never compared."""
    boot: str = ""
    """Id of the boot of the host's kernel."""
    agent: str = ""
    """Random id of the agent's process."""
    round: int = 0
    """The newest withdrawal round after which the host has looked at its disk; 0: none."""
    epoch: str = ""
    """Of the withdrawals that ``round`` is one of."""
    speaks_within: float = 0.0
    """Seconds that a change on the host takes at most to be in the record."""
    peer_address: str = ""
    """``ip:port`` of the peer server of the host's data plane; empty: not known."""

    @property
    def names_manifests(self) -> bool:
        """True if the host names what it has attached; those of version 1 do not."""
        return self.sequence > 0

    def uses(self, image_id: str) -> bool:
        """Return whether the host, as far as it can tell, needs an image."""
        return image_id in self.images or (bool(self.bases) and base_name(image_id) in self.bases)

    def has_answered(self, epoch: str, asked_in: int) -> bool:
        """Return whether the host has looked at its disk after a round of an epoch."""
        return asked_in == 0 or (self.epoch == epoch and self.round >= asked_in)

    def encode(self) -> bytes:
        """Return the ref's content, JSON."""
        fields = {
            "version": USAGE_VERSION,
            "sequence": self.sequence,
            "time": self.time,
            "boot": self.boot,
            "agent": self.agent,
            "round": self.round,
            "epoch": self.epoch,
            "speaks_within": self.speaks_within,
            **({"peer_address": self.peer_address} if self.peer_address else {}),
            "images": {
                image_id: sorted(instances)[:INSTANCES_MAX]
                for image_id, instances in sorted(self.images.items())
            },
            "bases": sorted(self.bases),
            "manifests": dict(sorted(self.manifests.items())),
        }
        return json.dumps(fields).encode() + b"\n"

    @classmethod
    def parse(cls, content: bytes, host: str) -> "Usage":
        """Read a ref's content, of version 1 too; unknown fields are ignored.

        :raises CorruptError: when it is malformed.
        :raises UnsupportedError: when a newer release wrote it.
        """
        malformed = exception.CorruptError(
            f"what host {host} says of the images in use there is malformed",
            hint=f"restart acstor-agent on {host}; it writes it anew",
        )
        try:
            fields = untrusted_json.load(content, "a usage record")
            version = fields["version"]
        except (ValueError, TypeError, KeyError) as error:
            raise malformed from error
        if version not in (1, USAGE_VERSION):
            raise exception.UnsupportedError(
                f"the images in use on host {host} are written in version {version!r:.20}",
                hint="upgrade this machine to the release that the host runs",
            )
        try:
            return _parse_first(fields) if version == 1 else _parse_second(fields)
        except (ValueError, TypeError, KeyError, AttributeError, exception.InvalidError) as error:
            raise malformed from error


def _parse_first(fields: Mapping[str, Any]) -> Usage:
    if not isinstance(fields["images"], list):
        raise TypeError("images")
    return Usage({canonical_image_id(image): () for image in fields["images"]})


def _parse_second(fields: Mapping[str, Any]) -> Usage:
    images = {
        canonical_image_id(image): _strings(instances)
        for image, instances in fields["images"].items()
    }
    bases = _strings(fields["bases"])
    manifests = {digest: canonical_image_id(image) for digest, image in fields["manifests"].items()}
    if not all(map(_BASE_NAME.match, bases)) or not all(map(_DIGEST.match, manifests)):
        raise ValueError("a base or manifest has no digest for a name")
    return Usage(
        images,
        frozenset(bases),
        manifests,
        sequence=untrusted_json.whole(fields["sequence"], "sequence"),
        time=str(fields["time"]),
        boot=str(fields["boot"]),
        agent=str(fields["agent"]),
        round=untrusted_json.whole(fields["round"], "round"),
        epoch=str(fields.get("epoch", "")),
        speaks_within=untrusted_json.number(
            fields["speaks_within"], "speaks_within", 0, SPEAKS_WITHIN_MAX
        ),
        peer_address=str(fields.get("peer_address", "")),
    )


def _strings(value: object) -> tuple[str, ...]:
    if not isinstance(value, list) or not all(isinstance(one, str) for one in value):
        raise TypeError("no list of strings")
    return tuple(value)


def base_name(image_id: str) -> str:
    """Return the name of an image's base file (Nova ``imagecache.get_cache_fname``).

    :param image_id: in canonical form, as in Nova's ``instance.image_ref``.
    """
    return hashlib.sha1(image_id.encode(), usedforsecurity=False).hexdigest()


def usage_ref(host: str) -> str:
    """Return the name of the ref of one host."""
    return USAGE_PREFIX + host


def read_usage(refs: RefStore, host: str) -> Usage | None:
    """Return what a host has written; None: nothing yet.

    :raises CorruptError: and the like when the ref is not readable.
    :raises UnavailableError: when the origin cannot be reached.
    """
    ref = refs.get_ref(usage_ref(host))
    return None if ref is None else Usage.parse(ref.content, host)


def read_all(refs: RefStore) -> dict[str, Usage]:
    """Return what every host has written, by host; errors as in :func:`read_usage`.

    One ref that is not readable is an error of the whole: nobody knows then what that host uses.
    """
    found = {}
    for name in refs.list_refs(USAGE_PREFIX):
        host = name.removeprefix(USAGE_PREFIX)
        usage = read_usage(refs, host)
        if usage is not None:
            found[host] = usage
    return found


def forget_usage(refs: RefStore, host: str) -> bool:
    """Remove what a host has written.

    :returns: whether there was anything.
    :raises ConflictError: when the host writes all the time.
    :raises UnavailableError: when the origin cannot be reached.
    """
    return ref_replacement.replace(refs, usage_ref(host), None)
