"""Kinds of refs, and whether a copy of the repository has them.

A copy has what must outlive the cloud that wrote it. It has nothing that only says who does what at
this moment, and nothing with a token, a term or a number of the refs that were copied: the same
name has other tokens at the destination, and hosts compare numbers with those that they have seen.
The names are those of the modules that own them; some of these are on floors above, so that a test
compares them.
"""

import dataclasses

from acstor.repository import layout
from acstor.repository.gc.condemnation import GUARD_NAME

COPY_REF = "repository-copy"
"""Ref of the destination that says of what it is a copy, and whether that is complete."""


@dataclasses.dataclass(frozen=True, slots=True)
class RefKind:
    """Refs of one name, or in one folder."""

    name: str
    """Of the ref; of a folder, with ``/`` at the end."""
    is_carried: bool
    """True if a copy has them."""
    reason: str


REF_KINDS = (
    RefKind(layout.IMAGE_PREFIX, True, "records of images, whose signatures stay valid"),
    RefKind(layout.VOLUME_PREFIX, True, "records of volumes; a restore ends their ownership"),
    RefKind(layout.SNAPSHOT_PREFIX, True, "records of snapshots, which never change"),
    RefKind(
        layout.VERSION_PREFIX, True, "records of versions; one that is captured has no content"
    ),
    RefKind("catalogue/", True, "image registry: what the registrar knows of Glance's images"),
    RefKind("working-sets/", True, "what boots of an image read: true of the image for ever"),
    RefKind("boot-profiles/", True, "in which order boots of an image read: true for ever"),
    RefKind("revocations/", True, "images that no host may have, also after a restore"),
    RefKind("image-generation", True, "generations of signed records go on above it"),
    RefKind("policy-pins", True, "what the operator pinned"),
    RefKind("hosts/", True, "hosts that the operator drained"),
    RefKind("usage/", True, "manifests that instances need although their image was withdrawn"),
    RefKind(
        layout.condemned_ref(GUARD_NAME), True, "keeps collectors of older releases from collecting"
    ),
    RefKind(
        layout.CONDEMNED_PREFIX, False, "tombstones and holds: what they condemn is not copied"
    ),
    RefKind(layout.FORMAT_REF, False, "the object of that name is stored last instead"),
    RefKind("image-index", False, "its id and generation would be given out twice"),
    RefKind("withdrawals", False, "names tokens of refs, and rounds that hosts have answered"),
    RefKind("ring", False, "addresses of data planes that ran then; agents publish another"),
    RefKind("ring-generation", False, "number of the ring that is left out"),
    RefKind("ring-term", False, "term of a publisher that is elected no more"),
    RefKind("decision", False, "term of a leader, and weights by a load that is over"),
    RefKind(layout.COMPACTION_PREFIX, False, "packs of compactions that ran then"),
    RefKind("volume-bells/", False, "signals to data planes that ran then"),
    RefKind("volume-heads/", False, "questions of live migrations that ran then"),
    RefKind("member", False, "makes the store a member of an origin of several"),
    RefKind("members", False, "members of that origin"),
    RefKind("ref-copies/", False, "refs of a home that the store was a member of"),
    RefKind("members-status", False, "what the process that led saw of them then"),
    RefKind("member-power", False, "which of them slept then"),
    RefKind(COPY_REF, False, "of this copy, not of what is copied"),
)
"""Every kind of ref that this release knows. The first that fits a name counts."""


def kind_of(name: str) -> RefKind | None:
    """Return the kind of a ref, None for one that this release does not know."""
    for kind in REF_KINDS:
        if name == kind.name or (kind.name.endswith("/") and name.startswith(kind.name)):
            return kind
    return None


def is_carried(name: str, *, is_restore: bool) -> bool:
    """Return whether a copy has a ref.

    What is not known is in a backup, so that nothing is lost; in an origin that goes live it is
    not, as nobody here can say what it would do there.
    """
    kind = kind_of(name)
    return not is_restore if kind is None else kind.is_carried
