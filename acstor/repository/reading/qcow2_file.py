"""A qcow2 file of a disk, made as it is read.

Version 3 of the format, clusters of 64 KiB, 16 bits for each reference count; no backing file, no
snapshot, no compressed cluster. What is zero has no cluster. The layout follows from the parts of
the disk with content alone, so every reading of the file finds the same bytes::

    header | refcount table | refcount blocks | L1 table | L2 tables | clusters with content

Source: QEMU, ``docs/interop/qcow2.txt``. A cluster is as large as a chunk mostly is, so that one
cluster is read with one chunk.
"""

import array
import bisect
import struct
import sys
from collections.abc import Iterable

from acstor import exception, native
from acstor.repository.reading.disk_reader import DataRun, DiskReader

CLUSTER_BITS = 16
CLUSTER = 1 << CLUSTER_BITS
"""Bytes of a cluster."""
QCOW2_VERSION = 3
HEADER_LENGTH = 104
"""Bytes of the header that are used."""
RUNS_MAX = 4 << 20
"""Most parts with content: 64 MiB for their places."""
LAYOUT_NAME = b"qcow2 1\0"
"""Name of this layout: whoever changes one byte of what is written here counts it up, since readers
join parts of files of one name."""
_MAGIC = b"QFI\xfb"
_HEADER = struct.Struct(">4sIQIIQIIQQIIQQQQII")
_ENTRY = struct.Struct(">Q")
_ENTRIES = CLUSTER // _ENTRY.size
"""Entries of a table in a cluster."""
_COUNTS = CLUSTER // 2
"""Reference counts in a cluster."""
_REFCOUNT_ORDER = 4
_COPIED = 1 << 63
"""Flag of an entry: its reference count is one."""


class Qcow2File:
    """A qcow2 file; see :class:`.ImageFile`.

    :param runs: parts of the disk with content, ascending.
    :raises UnsupportedError: when there are too many.
    """

    def __init__(self, disk: DiskReader, runs: Iterable[DataRun]) -> None:
        """Lay the file out."""
        self._disk = disk
        self._starts = array.array("Q")
        """First cluster of each run of the disk."""
        self._ranks = array.array("Q", [0])
        """Clusters with content before each run, and of all."""
        self._note_all(runs)
        self._tables = self._find_tables()
        clusters = -(-disk.size_bytes // CLUSTER)
        self._l1_size = max(1, -(-clusters // _ENTRIES))
        self._l1_clusters = -(-self._l1_size * _ENTRY.size // CLUSTER)
        self._lay_out()

    def _note_all(self, runs: Iterable[DataRun]) -> None:
        end = 0
        for run in runs:
            first, last = max(run.start // CLUSTER, end), -(-run.end // CLUSTER)
            if first >= last:
                continue
            if self._starts and first == end:
                self._ranks[-1] += last - first
            else:
                self._starts.append(first)
                self._ranks.append(self._ranks[-1] + last - first)
            end = last
            if len(self._starts) > RUNS_MAX:
                raise exception.UnsupportedError(
                    f"the disk is in more than {RUNS_MAX} pieces of data and zeros",
                    hint="take it as raw",
                )

    def _find_tables(self) -> "array.array[int]":
        """Return the L2 tables that have entries, ascending."""
        tables = array.array("Q")
        for at, first in enumerate(self._starts):
            last = first + self._ranks[at + 1] - self._ranks[at] - 1
            begin = first // _ENTRIES
            if tables and begin <= tables[-1]:
                begin = tables[-1] + 1
            tables.extend(range(begin, last // _ENTRIES + 1))
        return tables

    def _lay_out(self) -> None:
        """Find the first cluster of each region."""
        fixed = 1 + self._l1_clusters + len(self._tables) + self._ranks[-1]
        blocks, table = 1, 1
        while True:
            total = fixed + blocks + table
            wanted = -(-total // _COUNTS)
            room = -(-wanted * _ENTRY.size // CLUSTER)
            if (wanted, room) == (blocks, table):
                break
            blocks, table = wanted, room
        self._total = total
        self._first_block = 1 + table
        self._first_l1 = self._first_block + blocks
        self._first_l2 = self._first_l1 + self._l1_clusters
        self._first_data = self._first_l2 + len(self._tables)

    @property
    def size_bytes(self) -> int:
        """See :class:`.ImageFile`."""
        return self._total * CLUSTER

    @property
    def layout(self) -> bytes:
        """See :class:`.ImageFile`."""
        sizes = LAYOUT_NAME + _ENTRY.pack(self._disk.size_bytes)
        return bytes(native.digest(sizes + self._starts.tobytes() + self._ranks.tobytes()))

    def read(self, offset: int, size: int) -> bytes:
        """See :class:`.ImageFile`."""
        if offset < 0 or size < 0 or offset + size > self.size_bytes:
            raise exception.InvalidError(
                f"a file of {self.size_bytes} bytes has no {size} at {offset}"
            )
        content = bytearray()
        end = offset + size
        while offset < end:
            cluster, skipped = divmod(offset, CLUSTER)
            if cluster >= self._first_data:
                part = self._read_data(offset - self._first_data * CLUSTER, end - offset)
            else:
                part = self._cluster(cluster)[skipped : skipped + end - offset]
            content += part
            offset += len(part)
        return bytes(content)

    def _cluster(self, cluster: int) -> bytes:
        """Return a cluster before those with content."""
        if cluster == 0:
            return self._header().ljust(CLUSTER, b"\0")
        if cluster < self._first_block:
            return self._refcount_table(cluster - 1)
        if cluster < self._first_l1:
            return self._refcount_block(cluster - self._first_block)
        if cluster < self._first_l2:
            return self._l1_table(cluster - self._first_l1)
        return self._l2_table(self._tables[cluster - self._first_l2])

    def _header(self) -> bytes:
        return _HEADER.pack(
            _MAGIC,
            QCOW2_VERSION,
            0,  # offset and length of the name of a backing file
            0,
            CLUSTER_BITS,
            self._disk.size_bytes,
            0,  # encryption
            self._l1_size,
            self._first_l1 * CLUSTER,
            CLUSTER,  # of the refcount table
            self._first_block - 1,
            0,  # number and offset of snapshots
            0,
            0,  # features: incompatible, compatible, autoclear
            0,
            0,
            _REFCOUNT_ORDER,
            HEADER_LENGTH,
        )

    def _refcount_table(self, number: int) -> bytes:
        blocks = range(self._first_block, self._first_l1)[number * _ENTRIES :][:_ENTRIES]
        return b"".join(_ENTRY.pack(block * CLUSTER) for block in blocks).ljust(CLUSTER, b"\0")

    def _refcount_block(self, number: int) -> bytes:
        used = min(self._total - number * _COUNTS, _COUNTS)
        return (b"\0\1" * used).ljust(CLUSTER, b"\0")

    def _l1_table(self, number: int) -> bytes:
        entries = array.array("Q", bytes(CLUSTER))
        first = number * _ENTRIES
        at = bisect.bisect_left(self._tables, first)
        while at < len(self._tables) and self._tables[at] < first + _ENTRIES:
            entries[self._tables[at] - first] = (self._first_l2 + at) * CLUSTER | _COPIED
            at += 1
        return _big_endian(entries)

    def _l2_table(self, table: int) -> bytes:
        entries = array.array("Q", bytes(CLUSTER))
        first, end = table * _ENTRIES, (table + 1) * _ENTRIES
        at = max(bisect.bisect_right(self._starts, first) - 1, 0)
        while at < len(self._starts) and self._starts[at] < end:
            start, rank = self._starts[at], self._ranks[at]
            stop = start + self._ranks[at + 1] - rank
            for cluster in range(max(start, first), min(stop, end)):
                place = (self._first_data + rank + cluster - start) * CLUSTER
                entries[cluster - first] = place | _COPIED
            at += 1
        return _big_endian(entries)

    def _read_data(self, offset: int, size: int) -> bytes:
        """Return bytes of clusters with content, as far as the disk's run goes."""
        rank, skipped = divmod(offset, CLUSTER)
        at = bisect.bisect_right(self._ranks, rank) - 1
        begin = (self._starts[at] + rank - self._ranks[at]) * CLUSTER + skipped
        left = (self._ranks[at + 1] - rank) * CLUSTER - skipped
        size = min(size, left)
        # The last cluster goes on past the end of the disk.
        content = self._disk.read(begin, min(size, self._disk.size_bytes - begin))
        return content.ljust(size, b"\0")


def _big_endian(entries: "array.array[int]") -> bytes:
    if sys.byteorder == "little":
        entries.byteswap()
    return entries.tobytes()
