"""Heads: the first sectors of a volume, which its owner reads for a standby.

QEMU reads the first sector of each disk when it starts, also at the destination of a live
migration, whose guest runs on at the source meanwhile. The volume need not change hands for that:
the standby asks through a ref, the owner writes into it what it has, the standby removes it.

What is answered is the volume's content at a moment after the question, if its owner owns the
volume in the same epoch still when the answer is read; that is for the reader to look at.
Layout: ``doc/source/reference/formats/volume-head.rst``.
"""

import base64
import binascii
import dataclasses
import hashlib
import json
import re
import secrets

from acstor import untrusted_json
from acstor.origin import ref_replacement
from acstor.origin.base import RefStore

HEAD_VERSION = 1
HEAD_PREFIX = "volume-heads/"
HEAD_BYTES = 4096
"""Bytes of a volume that are answered, of a smaller one all."""
_EPOCH_MAX = (1 << 32) - 1
_NONCE = re.compile(r"[0-9a-f]{32}")


@dataclasses.dataclass(frozen=True, slots=True)
class Head:
    """A question, or the answer to it."""

    nonce: str
    """32 hexadecimal digits, of the question."""
    owner: str = ""
    """Host that has heard it, and answers when it has little left to push; nobody yet."""
    epoch: int = 0
    """In which it owned the volume then."""
    content: bytes | None = None
    """The volume's, from its first byte on; None: not answered yet."""


def head_ref(volume: str) -> str:
    """Return the name of the ref of a volume's head."""
    return HEAD_PREFIX + volume


def encode(head: Head) -> bytes:
    """Return the content of the ref."""
    fields: dict[str, object] = {"version": HEAD_VERSION, "nonce": head.nonce}
    if head.owner:
        fields["owner"] = head.owner
    if head.content is not None:
        fields["answer"] = {
            "epoch": head.epoch,
            "content": base64.b64encode(head.content).decode("ascii"),
            "sha256": hashlib.sha256(head.content).hexdigest(),
        }
    return json.dumps(fields, sort_keys=True, separators=(",", ":")).encode()


def parse(content: bytes) -> Head | None:
    """Return what a ref says; None where that is damaged, or of a version that is not known."""
    try:
        found = untrusted_json.load(content, "a volume's head")
        if not isinstance(found, dict) or found.get("version") != HEAD_VERSION:
            return None
        nonce, owner, answer = found.get("nonce"), found.get("owner", ""), found.get("answer")
        if not isinstance(nonce, str) or not _NONCE.fullmatch(nonce) or not isinstance(owner, str):
            return None
        if answer is None:
            return Head(nonce, owner)
        epoch = untrusted_json.whole(answer["epoch"], "an epoch", 0, _EPOCH_MAX)
        data = base64.b64decode(answer["content"], validate=True)
        if not 0 < len(data) <= HEAD_BYTES or hashlib.sha256(data).hexdigest() != answer["sha256"]:
            return None
        return Head(nonce, owner, epoch, data)
    except (ValueError, TypeError, KeyError, binascii.Error):
        return None


def ask(refs: RefStore, volume: str) -> str:
    """Ask the owner of a volume for its head, in place of any question before.

    :returns: the question's nonce.
    :raises UnavailableError: when the origin cannot be reached.
    :raises ConflictError: when others write to the ref all the time.
    """
    nonce = secrets.token_hex(16)
    ref_replacement.replace(refs, head_ref(volume), encode(Head(nonce)))
    return nonce


def asked(refs: RefStore, volume: str) -> Head | None:
    """Return the question or answer that there is; None: none.

    :raises UnavailableError: when the origin cannot be reached.
    """
    ref = refs.get_ref(head_ref(volume))
    return None if ref is None else parse(ref.content)


def answer(refs: RefStore, volume: str, head: Head) -> bool:
    """Answer a question, or say that it was heard, if it is asked still.

    :param head: its nonce, who answers, and the answer if there is one yet.
    :returns: whether it was.
    :raises UnavailableError: when the origin cannot be reached.
    :raises ConflictError: when others write to the ref all the time.
    """

    def answered(content: bytes | None) -> bytes | None:
        asked = None if content is None else parse(content)
        is_asked = asked is not None and asked.nonce == head.nonce and asked.content is None
        return encode(head) if is_asked else content

    return ref_replacement.change(refs, head_ref(volume), answered)


def remove(refs: RefStore, volume: str) -> None:
    """Remove a question and its answer.

    :raises UnavailableError: when the origin cannot be reached.
    :raises ConflictError: when others write to the ref all the time.
    """
    ref_replacement.replace(refs, head_ref(volume), None)
