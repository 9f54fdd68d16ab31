"""End of a tar archive, looked for while the archive goes by."""

BLOCK_BYTES = 512
"""Length of a block; heads are one each, content is filled up."""
_END_BLOCKS = 2
_SIZE = slice(124, 136)
_BINARY = 0x80
"""Mark of a number that is not written in octal digits."""


class ArchiveEnd:
    """Blocks of a tar archive, and whether those that end it have come.

    An answer whose length nobody knew ends in the same way whether it is whole or was broken off,
    where a proxy or server speaks HTTP/1.0.

    Source: POSIX.1-2017, ``pax``, "ustar Interchange Format"; binary lengths as GNU tar has them.
    """

    def __init__(self) -> None:
        self._head = bytearray()
        self._content_left = 0
        self._zero_blocks = 0

    @property
    def is_reached(self) -> bool:
        """True once nothing is missing."""
        return self._zero_blocks >= _END_BLOCKS

    def take(self, part: bytes) -> None:
        """Look at further bytes.

        :raises ValueError: they are no archive.
        """
        at = 0
        while at < len(part):
            if self._content_left:
                passed = min(self._content_left, len(part) - at)
                self._content_left -= passed
                at += passed
                continue
            missing = BLOCK_BYTES - len(self._head)
            self._head += part[at : at + missing]
            at += missing
            if len(self._head) == BLOCK_BYTES:
                self._take_head(bytes(self._head))
                self._head.clear()

    def _take_head(self, head: bytes) -> None:
        if not any(head):
            self._zero_blocks += 1
            return
        self._zero_blocks = 0
        size = _number(head[_SIZE])
        self._content_left = -(-size // BLOCK_BYTES) * BLOCK_BYTES


def _number(field: bytes) -> int:
    if field[0] & _BINARY:
        return int.from_bytes(field[1:], "big")
    return int(field.partition(b"\0")[0].strip() or b"0", 8)
