"""Refs in RADOS: one object each, changed by one operation that compares and writes.

An object is a head of 36 bytes and the content: magic, version, three bytes of zeros, length,
nonce, CRC-32 of head and content. A swap compares the nonce in the same operation that writes the
new state, so the primary OSD decides who is first.
"""

import secrets
import struct
import zlib
from collections.abc import Callable, Iterator
from typing import Any

from acstor import exception
from acstor.origin import base, keys
from acstor.origin.rados.cluster import (
    ALL_NAMESPACES,
    AbsentError,
    Cluster,
    ExistsError,
    MismatchError,
)
from acstor.origin.rados.doorbell import RadosDoorbell

MAGIC = b"ACSR"
REF_VERSION = 1
"""Version of the refs that this build writes, and the only one that it reads."""
_FORMAT = struct.Struct("<4sBBHI16s")
_NONCE_AT = 12
HEAD_BYTES = _FORMAT.size + 4
FIRST_READ_BYTES = 64 << 10
"""Bytes that are asked for at first: nearly all refs have fewer."""
ATTEMPTS_MAX = 64


class RadosRefs(base.RefStore):
    """The refs of one repository.

    :param cluster: where they are.
    :param pool: a replicated pool.
    :param prefix: of its namespaces.
    """

    def __init__(self, cluster: Cluster, pool: str, prefix: str) -> None:
        """Use the refs in ``pool``."""
        self._cluster = cluster
        self._pool = pool
        self._prefix = f"{prefix}r."
        self._doorbell = RadosDoorbell(cluster, pool, prefix)

    def get_ref(self, name: str) -> base.Ref | None:
        """Return the ref's present state."""
        context = self._context(keys.validate_ref_name(name))
        size = FIRST_READ_BYTES
        for _ in range(ATTEMPTS_MAX):
            try:
                with self._cluster.map_errors(f"reading ref {name}"):
                    stored: bytes = context.read(name, size)
            except AbsentError:
                return None
            _, length, nonce, checksum = _parse_head(stored, name)
            if HEAD_BYTES + length > size:
                size = HEAD_BYTES + length
                continue
            return _checked(name, stored, length, nonce, checksum)
        raise exception.UnavailableError(f"ref {name} changes faster than it can be read")

    def refresh_ref(self, name: str, known: base.Ref | None) -> base.Ref | None:
        """Return the ref's present state; the content is not read where it is the same one."""
        context = self._context(keys.validate_ref_name(name))
        if known is not None:
            try:
                with self._cluster.map_errors(f"looking at ref {name}"):
                    head = context.read(name, HEAD_BYTES)
            except AbsentError:
                return None
            if _parse_head(head, name)[2].hex() == known.token:
                return known
        return self.get_ref(name)

    def swap_ref(self, name: str, expected: str | None, content: bytes | None) -> str | None:
        """Change a ref if it still is what the caller has seen."""
        context = self._context(keys.validate_ref_name(name))
        base.check_ref_content(name, content)
        if expected is None and content is None:
            if self.get_ref(name) is not None:
                raise _conflict(name)
            return None
        nonce = _new_nonce()
        try:
            self._operate(context, name, self._step(expected, content, nonce))
        except (ExistsError, MismatchError, AbsentError) as error:
            raise _conflict(name) from error
        return None if content is None else nonce.hex()

    def _step(
        self, expected: str | None, content: bytes | None, nonce: bytes
    ) -> Callable[[Any], None]:
        before = None if expected is None else _nonce_of(expected)

        def step(operation: Any) -> None:
            if before is None:
                operation.new(self._cluster.rados.LIBRADOS_CREATE_EXCLUSIVE)
            else:
                # A missing object compares as zeros, which no nonce is.
                operation.cmpext(before, _NONCE_AT)
            if content is None:
                operation.remove()
            else:
                operation.write_full(_encode(content, nonce))

        return step

    def _operate(self, context: Any, name: str, step: Callable[[Any], None]) -> None:
        with self._cluster.map_errors(f"changing ref {name}"):
            operation = context.create_write_op()
            try:
                step(operation)
                context.operate_write_op(operation, name)
            finally:
                context.release_write_op(operation)

    def list_refs(self, prefix: str = "") -> Iterator[str]:
        """Yield the names of the refs in the folder ``prefix``."""
        keys.validate_prefix(prefix)
        first = prefix.partition("/")[0]
        namespace = self._prefix + first if first else ALL_NAMESPACES
        for one in self._cluster.listed(self._pool, namespace, f"listing refs {prefix}"):
            is_own = one.nspace == self._namespace(one.key) and keys.is_name(one.key)
            if is_own and one.key.startswith(prefix):
                yield one.key

    def doorbell(self) -> RadosDoorbell:
        """Return what hosts are woken by."""
        return self._doorbell

    def close(self) -> None:
        """Close the connection, which is the objects' too."""
        self._doorbell.close()
        self._cluster.close()

    def _context(self, name: str) -> Any:
        return self._cluster.context(self._pool, self._namespace(name))

    def _namespace(self, name: str) -> str:
        return self._prefix + name.partition("/")[0]


def _new_nonce() -> bytes:
    while not any(nonce := secrets.token_bytes(16)):
        pass
    return nonce


def _nonce_of(token: str) -> bytes:
    try:
        nonce = bytes.fromhex(token)
    except ValueError:
        nonce = b""
    # Of another store: no state has it.
    return nonce if len(nonce) == 16 and any(nonce) else b"\xff" * 16


def _encode(content: bytes, nonce: bytes) -> bytes:
    head = _FORMAT.pack(MAGIC, REF_VERSION, 0, 0, len(content), nonce)
    checksum = zlib.crc32(content, zlib.crc32(head))
    return head + checksum.to_bytes(4, "little") + content


def _parse_head(stored: bytes, name: str) -> tuple[bytes, int, bytes, int]:
    if len(stored) < HEAD_BYTES or stored[:4] != MAGIC:
        raise exception.CorruptError(
            f"ref {name} is not what was written", hint="is the pool another one's?"
        )
    if stored[4] != REF_VERSION:
        raise exception.UnsupportedError(
            f"ref {name} is of version {stored[4]}, this release reads {REF_VERSION}"
        )
    _, _, _, _, length, nonce = _FORMAT.unpack(stored[: _FORMAT.size])
    checksum = int.from_bytes(stored[_FORMAT.size : HEAD_BYTES], "little")
    return stored[: _FORMAT.size], min(length, base.REF_SIZE_MAX), nonce, checksum


def _checked(name: str, stored: bytes, length: int, nonce: bytes, checksum: int) -> base.Ref:
    content = stored[HEAD_BYTES:]
    actual = zlib.crc32(content, zlib.crc32(stored[: _FORMAT.size]))
    if len(content) != length or actual != checksum:
        raise base.DamagedRefError(f"ref {name} is not what was written", token=nonce.hex())
    return base.Ref(nonce.hex(), content)


def _conflict(name: str) -> exception.ConflictError:
    return exception.ConflictError(f"ref {name} was changed by someone else")
