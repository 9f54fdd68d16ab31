"""The cache of packs' tables while another process of this host uses the same file."""

import os
import pathlib
import subprocess
import sys

from acstor.repository.pack_cache import PackCache

PACKS = 64
TABLE = bytes(64 << 10)
HEADER = b"ACSTPACK" + (1).to_bytes(4, "little") + bytes(52)
IDS = [bytes([number]) * 32 for number in range(PACKS)]

READER = """
import os, sys
from acstor.repository.pack_cache import PackCache

class Index:
    version = 1
    added = 0

    def reserve(self, count):
        pass

    def takes(self, header):
        return True

    def add_pack(self, pack, header, table):
        if self.added == 3:
            os.truncate(sys.argv[1], 16)  # by the process that may write
        assert bytes(table) == bytes(64 << 10)
        self.added += 1

index = Index()
known = PackCache(sys.argv[1], 4096).load(index, {bytes([number]) * 32 for number in range(64)})
assert len(known) == index.added
print(index.added)
"""


def filled(path: pathlib.Path) -> PackCache:
    """Return a cache with packs, of which this process is the writer."""
    cache = PackCache(str(path), 4096)
    cache._start_anew()
    for pack in IDS:
        cache.append(pack, HEADER, TABLE)
    return cache


def test_file_that_is_begun_anew_ends_no_process_that_reads_it(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "cache" / "packs"
    cache = filled(path)
    try:
        done = subprocess.run(
            [sys.executable, "-W", "ignore", "-c", READER, str(path)],
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        )
    finally:
        cache.close()
    assert done.returncode == 0, done.stderr
    assert 4 <= int(done.stdout) <= PACKS


def test_length_that_a_record_claims_is_not_allocated(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "cache" / "packs"
    filled(path).close()
    size = path.stat().st_size
    with path.open("ab") as file:
        file.write(bytes([PACKS]) * 32 + HEADER + (0xFFFFFFFF).to_bytes(4, "little") + b"torn")
    cache = PackCache(str(path), 4096)
    try:
        assert cache.load(Counted(), {*IDS, bytes([PACKS]) * 32}) == set(IDS)
    finally:
        cache.close()
    assert path.stat().st_size == size, "what is torn is cut off by who may write"


class Counted:
    """An index that takes whatever there is."""

    version = 1

    def reserve(self, chunk_count: int) -> None:
        """Do nothing."""

    def takes(self, header: bytes) -> bool:
        """Take it."""
        return True

    def add_pack(self, pack: bytes, header: bytes, table: object, unsound: object = ()) -> None:
        """Look at it."""
        assert bytes(table) == TABLE  # type: ignore[call-overload]

    def forget_pack(self, pack: bytes) -> bool:
        """Know none."""
        return False
