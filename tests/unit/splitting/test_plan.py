"""Plans of splits, of file systems that mkfs makes."""

import dataclasses
import pathlib
import random
import struct
from collections.abc import Sequence

import pytest

from acstor import exception
from acstor.browsing.disk_files import PartitionFound
from acstor.repository.volumes.durability import format_regions
from acstor.splitting import layout, plan, table
from acstor.splitting.ext4 import file_system
from acstor.splitting.ext4.file_system import Ext4FileSystem
from acstor.splitting.layout import Layout, TableKind
from acstor.splitting.plan import Plan
from acstor.splitting.tree import collect
from testbed.doubles.readable_disk import ReadableDiskInMemory
from testbed.fixtures.file_systems import make_ext4

MIB = 1 << 20
SIZE = 16 * MIB


def make_tree(folder: pathlib.Path) -> pathlib.Path:
    tree = folder / "tree"
    for name in ("etc", "home/user", "var/cache/apt", "usr/lib"):
        (tree / name).mkdir(parents=True)
    (tree / "etc/fstab").write_text("LABEL=system / ext4 defaults 0 1\n")
    (tree / "home/user/document").write_bytes(b"x" * 100_000)
    (tree / "var/cache/apt/list").write_text("y")
    return tree


def partition(
    number: int, start: int, size: int, name: str = "", kind: str = "ext"
) -> PartitionFound:
    return PartitionFound(number, start, size, name, kind, "", True, None)


@pytest.fixture
def content(tmp_path: pathlib.Path) -> bytes:
    return make_ext4(make_tree(tmp_path), tmp_path / "image", f"{SIZE >> 10}k")


def planned(
    content: bytes,
    paths: Sequence[str],
    *,
    kind: TableKind = TableKind.GPT,
    others: Sequence[PartitionFound] = (),
    root_size: int | None = None,
    free: int = 3,
) -> Plan:
    root = partition(1, 0, SIZE, "root")
    end = max(one.start + one.size_bytes for one in (root, *others))
    found = Layout(kind, (root, *others), end, free)
    system = Ext4FileSystem(ReadableDiskInMemory(content), 0)
    return plan.make_plan(
        system, found, 1, table.combine(map(table.parse_option, paths)), root_size
    )


def test_partitions_follow_one_another_behind_all_others(content: bytes) -> None:
    other = partition(15, 20 * MIB, MIB + 512)
    made = planned(content, ["/home=none", "/var/cache=write-back@60,32MiB"], others=[other])
    first, second = made.partitions
    assert first.start == 22 * MIB
    assert second.start == first.end
    assert second.size_bytes == 32 * MIB
    assert made.disk_size_bytes == second.end + MIB
    assert first.tree.data_bytes >= 100_000
    assert first.size_bytes >= plan.ROOM
    assert format_regions(made.regions) == "none=none,write-back-60s=write-back@60"


def test_paths_of_one_class_are_one_region_of_several_partitions(content: bytes) -> None:
    made = planned(content, ["/home=none", "/var/cache=none"])
    assert format_regions(made.regions) == "none=none"
    assert len(made.partitions) == 2


def test_regions_of_an_mbr_are_places(content: bytes) -> None:
    made = planned(content, ["/home=none,16MiB"], kind=TableKind.MBR)
    assert format_regions(made.regions) == "16MiB-32MiB=none"
    with pytest.raises(exception.UnsupportedError, match="room for 0"):
        planned(content, ["/home=none"], kind=TableKind.MBR, free=0)


def test_partition_of_that_name_is_refused(content: bytes) -> None:
    other = partition(2, 20 * MIB, MIB, "none")
    with pytest.raises(exception.InvalidError, match="partition 2 of the image is called 'none'"):
        planned(content, ["/home=none"], others=[other])


def test_root_grows_where_nothing_is_behind_it(content: bytes) -> None:
    made = planned(content, ["/home=none"], root_size=50 * MIB)
    assert (made.root_size_bytes, made.partitions[0].start) == (50 * MIB, 50 * MIB)
    with pytest.raises(exception.InvalidError, match="not made smaller"):
        planned(content, ["/home=none"], root_size=8 * MIB)
    with pytest.raises(exception.InvalidError, match="another one is behind"):
        planned(content, ["/home=none"], root_size=50 * MIB, others=[partition(2, 20 * MIB, MIB)])


def test_nested_path_is_a_mount_point_of_the_outer_one(content: bytes) -> None:
    made = planned(content, ["/var/cache/apt=none", "/var=write-through"])
    outer, inner = made.partitions
    assert [(node.path, node.is_mount_point) for node in outer.tree.nodes] == [
        (b"cache", False), (b"cache/apt", True),
    ]  # fmt: skip
    assert [node.path for node in inner.tree.nodes] == [b"list"]
    assert made.fstab.index(b" /var ") < made.fstab.index(b" /var/cache/apt ")


@pytest.mark.parametrize("has_systemd", [True, False])
def test_options_suit_what_mounts(tmp_path: pathlib.Path, has_systemd: bool) -> None:
    tree = make_tree(tmp_path)
    if has_systemd:
        (tree / "usr/lib/systemd").mkdir()
        (tree / "usr/lib/systemd/systemd").write_text("")
    content = make_ext4(tree, tmp_path / "image", f"{SIZE >> 10}k")
    paths = ["/home=write-through", "/var/cache=none", "/var/cache/apt=write-back"]
    home, cache, below = (one.options for one in planned(content, paths).partitions)
    assert home == "defaults"
    # What is below a mount that may fail may, too: systemd would not boot otherwise.
    assert cache == below
    assert cache == "defaults,nofail" + ",x-systemd.before=local-fs.target" * has_systemd


def test_root_is_the_partition_that_has_etc(content: bytes) -> None:
    disk = ReadableDiskInMemory(content + bytes(SIZE))
    swap = partition(1, SIZE, MIB, kind="swap")
    root = partition(3, 0, SIZE)
    found = Layout(TableKind.GPT, (swap, root), 2 * SIZE, 0)
    assert layout.root_of(disk, found, None) == root
    assert layout.root_of(disk, found, 3) == root
    with pytest.raises(exception.UnsupportedError, match="1: swap"):
        layout.root_of(disk, found, 1)
    with pytest.raises(exception.NotFoundError, match="no partition 2"):
        layout.root_of(disk, found, 2)
    twice = Layout(TableKind.GPT, (root, root), 2 * SIZE, 0)
    with pytest.raises(exception.InvalidError, match="2 partitions"):
        layout.root_of(disk, twice, None)


def test_file_system_with_a_loop_is_damaged(content: bytes) -> None:
    system = Ext4FileSystem(ReadableDiskInMemory(content), 0)
    home = dict(system.entries(system.inode(2)))[b"home"]
    (piece,) = system.pieces(system.inode(home))
    place = content.index(b"user", piece.physical * system.superblock.block_size) - 8
    looped = content[:place] + struct.pack("<I", home) + content[place + 4 :]
    system = Ext4FileSystem(ReadableDiskInMemory(looped), 0)
    with pytest.raises(exception.ImageRefusedError, match="is in two directories"):
        collect(system, b"/home", ())


def test_maps_that_name_their_blocks_again_and_again_are_damaged(
    content: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(file_system, "MAP_BLOCKS_MAX", 1000)
    system = Ext4FileSystem(ReadableDiskInMemory(content), 0)
    size = system.superblock.block_size
    inode = system.find(b"/home/user/document")
    (piece,) = system.pieces(inode)

    def node(depth: int, entries: int) -> bytes:
        head = struct.pack("<HHHHI", 0xF30A, entries, entries, depth, 0)
        return head + struct.pack("<IIHH", 0, piece.physical, 0, 0) * entries

    empty_leaf = struct.pack("<HHHHI", 0xF30A, 0, 0, 0, 0)
    leaf = piece.physical + 1
    changed = bytearray(content)
    inner = node(1, 80).replace(struct.pack("<II", 0, piece.physical), struct.pack("<II", 0, leaf))
    changed[piece.physical * size : leaf * size] = inner.ljust(size, b"\0")
    changed[leaf * size : (leaf + 1) * size] = empty_leaf.ljust(size, b"\0")
    circle = dataclasses.replace(inode, block=node(2, 4))
    system = Ext4FileSystem(ReadableDiskInMemory(bytes(changed)), 0)
    for _ in range(3):
        assert system.pieces(circle) == []
    with pytest.raises(exception.ImageRefusedError, match="say where content is"):
        system.pieces(circle)


def test_directory_that_has_the_same_blocks_again_and_again_is_damaged(content: bytes) -> None:
    """Its length is small; hours of reading would follow, and no name."""
    system = Ext4FileSystem(ReadableDiskInMemory(content), 0)
    size = system.superblock.block_size
    (leaf,) = system.pieces(system.find(b"/home/user/document"))
    count, extents = 64, (size - 12) // 12
    changed = bytearray(content)
    empty = struct.pack("<IHBB", 0, size, 0, 0).ljust(size, b"\0")
    blocks = leaf.physical + 1, leaf.physical + 1 + count
    changed[blocks[0] * size : blocks[1] * size] = empty * count
    node = struct.pack("<HHHHI", 0xF30A, extents, extents, 0, 0)
    for number in range(extents):
        node += struct.pack("<IHHI", 2 * number * count, count, 0, blocks[0])
    changed[leaf.physical * size : blocks[0] * size] = node.ljust(size, b"\0")
    top = struct.pack("<HHHHI", 0xF30A, 1, 4, 1, 0) + struct.pack("<IIHH", 0, leaf.physical, 0, 0)
    directory = dataclasses.replace(system.find(b"/home"), block=top.ljust(60, b"\0"))
    system = Ext4FileSystem(ReadableDiskInMemory(bytes(changed)), 0)
    assert system.entries(directory) == []
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(file_system, "DIRECTORY_BYTES_MAX", extents * count * size - 1)
        with pytest.raises(exception.ImageRefusedError, match="too many blocks"):
            system.entries(directory)


@pytest.mark.parametrize("seed", range(40))
def test_reader_of_random_damage_knows_only_its_own_errors(content: bytes, seed: int) -> None:
    rng = random.Random(seed)
    changed = bytearray(content)
    for _ in range(rng.choice((1, 20, 400))):
        place = rng.choice((rng.randrange(1024, 2048), rng.randrange(1024, 2 * MIB)))
        part = rng.randbytes(rng.choice((1, 4, 16)))
        changed[place : place + len(part)] = part
    try:
        planned(bytes(changed), ["/home=none", "/var/cache=write-back"])
    except (exception.InvalidError, exception.UnsupportedError, exception.NotFoundError) as error:
        assert error.message  # noqa: PT017
