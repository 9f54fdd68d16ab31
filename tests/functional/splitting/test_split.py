"""Images that are split, looked at with tools that know nothing of it."""

import dataclasses
import io
import json
import os
import pathlib

import pytest

from acstor import exception
from acstor.cli import app, image_split
from acstor.repository.progress import Progress
from acstor.splitting import splitting, table
from acstor.splitting.plan import Plan
from testbed.fixtures import split_images
from testbed.fixtures.file_listing import listing
from testbed.fixtures.split_images import MIB, SplitImage, debugfs, make_image, run

pytestmark = pytest.mark.timeout(300)

NESTED = ("/var/cache=none", "/home=write-back@600,20MiB", "/var/cache/apt/archives=write-through")


def request(image: SplitImage, output: pathlib.Path, *paths: str) -> splitting.Request:
    rules = table.combine(map(table.parse_option, paths))
    return splitting.Request(str(image.path), "raw", str(output), "raw", rules)


def split(image: SplitImage, output: pathlib.Path, *paths: str) -> Plan:
    return splitting.split(request(image, output, *paths), Progress())


def partitions(path: pathlib.Path) -> list[dict[str, object]]:
    found = json.loads(run("sfdisk", "--json", str(path)))["partitiontable"]["partitions"]
    assert isinstance(found, list)
    return found


def head(content: bytes) -> bytes:
    """Return what a boot loader has at the beginning, without the table of partitions."""
    return content[:440] + content[MIB : split_images.ROOT_START]


def test_nested_paths_are_on_partitions_of_their_own(tmp_path: pathlib.Path) -> None:
    image, output = make_image(tmp_path), tmp_path / "out.raw"
    before = image.path.read_bytes()
    cache = listing(image.path, image.root_start, "/var/cache")
    home = listing(image.path, image.root_start, "/home")
    plan = split(image, output, *NESTED)

    assert image.path.read_bytes() == before
    assert head(output.read_bytes()[: split_images.ROOT_START]) == head(before)
    old, new = partitions(image.path), partitions(output)
    for one in (*old, *new):
        del one["node"]
    assert new[:2] == old
    assert [one["name"] for one in new[2:]] == ["write-back-600s", "none", "write-through"]
    assert new[2]["size"] == 20 * MIB // 512
    run("sgdisk", "--verify", str(output))
    starts = [int(str(one["start"])) * 512 for one in new[1:]]
    for start in starts:
        run("e2fsck", "-fn", f"{output}?offset={start}")
    root, home_start, cache_start, archives_start = starts
    assert listing(output, home_start) == home
    archives = {path for path in cache if path.startswith("/apt/archives/")}
    assert archives
    assert listing(output, cache_start) == {
        path: fields for path, fields in cache.items() if path not in archives
    }
    assert listing(output, archives_start) == {
        path.removeprefix("/apt/archives"): cache[path] for path in archives
    }
    for path, start in (("/var/cache", cache_start), ("/home", home_start)):
        assert listing(output, root, path) == {}
        assert owner(output, root, path) == owner(output, start, "/")
    assert "security.selinux" in debugfs(output, cache_start, "ea_list /")
    assert plan.fstab.decode() == debugfs(output, root, "cat /etc/fstab")
    assert "etc_t" in debugfs(output, root, "ea_list /etc/fstab")
    lines = plan.fstab.decode().splitlines()
    uuids = [line.split()[0] for line in lines if "ext4" in line]
    for start, uuid in zip(starts, uuids, strict=True):
        assert uuid.removeprefix("UUID=") in run("dumpe2fs", "-h", f"{output}?offset={start}")


def owner(image: pathlib.Path, start: int, path: str) -> str:
    lines = debugfs(image, start, f"stat {path}").splitlines()
    return f"{lines[0].split('Mode:')[1].split()[0]} {lines[2].split('Size')[0]}"


def test_moved_content_is_gone_from_the_root_and_holes_stay(tmp_path: pathlib.Path) -> None:
    image, output = make_image(tmp_path), tmp_path / "out.raw"
    marker = b"of the user\n"
    plan = split(image, output, "/home=none", "/var/cache=write-back")
    content = output.read_bytes()
    root_end = image.root_start + split_images.ROOT_SIZE
    assert marker in image.path.read_bytes()[:root_end]
    assert marker not in content[:root_end]
    assert marker in content[root_end:]
    fields = debugfs(output, plan.partitions[1].start, "stat /sparse")
    assert f"Size: {50 << 20}" in fields
    assert int(fields.split("Blockcount:")[1].split()[0]) <= 16
    assert output.stat().st_blocks * 512 < 40 * MIB < output.stat().st_size


def test_journal_of_a_disk_in_use_is_replayed(tmp_path: pathlib.Path) -> None:
    image, output = make_image(tmp_path), tmp_path / "out.raw"
    block = tmp_path / "block"
    block.write_bytes(b"only in the journal".ljust(1024, b"."))
    image.debugfs("journal_open", f"journal_write -b 50000 {block}", "journal_close")
    place = f"?offset={image.root_start}"
    assert "needs_recovery" in run("dumpe2fs", "-h", f"{image.path}{place}")
    plan = split(image, output, "/home=none")
    assert "needs_recovery" not in run("dumpe2fs", "-h", f"{output}{place}")
    with output.open("rb") as file:
        file.seek(image.root_start + 50000 * 1024)
        assert file.read(19) == b"only in the journal"
    assert listing(output, plan.partitions[0].start)


def test_image_with_an_mbr_has_regions_by_place(tmp_path: pathlib.Path) -> None:
    image, output = make_image(tmp_path, label="dos"), tmp_path / "out.raw"
    before = image.path.read_bytes()
    plan = split(image, output, "/home=none", "/var/cache=write-back@60")
    assert output.read_bytes()[:440] == before[:440]
    found = partitions(output)
    places = [(one["start"], one["size"], one["type"]) for one in found]
    assert places[:2] == [
        (one["start"], one["size"], one["type"]) for one in partitions(image.path)
    ]
    regions = [(one.first, one.last, one.period_s) for one in plan.regions]
    ends = [(int(str(one["start"])) * 512, int(str(one["size"])) * 512) for one in found[2:]]
    assert regions == [
        (start, start + size, period)
        for (start, size), period in zip(ends, (None, 60.0), strict=True)
    ]
    with pytest.raises(exception.UnsupportedError, match="room for 2 more"):
        split(image, tmp_path / "more.raw", *NESTED)


def test_file_system_that_is_the_whole_disk_becomes_a_partition(tmp_path: pathlib.Path) -> None:
    image, output = make_image(tmp_path, label="none"), tmp_path / "out.raw"
    cache = listing(image.path, 0, "/var/cache")
    plan = split(image, output, "/var/cache=none")
    root, new = partitions(output)
    assert (root["start"], root["name"], new["name"]) == (2048, "root", "none")
    assert listing(output, plan.partitions[0].start) == cache
    run("e2fsck", "-fn", f"{output}?offset={MIB}")


@pytest.mark.parametrize("options", [["-b", "4096"], ["-t", "ext2"], ["-t", "ext3", "-I", "128"]])
def test_other_shapes_of_file_systems_are_kept(tmp_path: pathlib.Path, options: list[str]) -> None:
    image, output = make_image(tmp_path, options=options), tmp_path / "out.raw"
    home = listing(image.path, image.root_start, "/home")
    plan = split(image, output, "/home=none")
    start = plan.partitions[0].start
    assert listing(output, start) == home

    def features(path: pathlib.Path, place: int) -> set[str]:
        found = run("dumpe2fs", "-h", f"{path}?offset={place}")
        (line,) = [one for one in found.splitlines() if one.startswith("Filesystem features:")]
        return set(line.split()[2:]) - {"orphan_file", "metadata_csum_seed"}

    assert features(output, start) <= features(image.path, image.root_start)
    run("e2fsck", "-fn", f"{output}?offset={start}")


def test_root_grows_before_what_is_put_behind_it(tmp_path: pathlib.Path) -> None:
    image, output = make_image(tmp_path), tmp_path / "out.raw"
    wanted = dataclasses.replace(request(image, output, "/home=none"), root_size_bytes=100 * MIB)
    plan = splitting.split(wanted, Progress())
    root = partitions(output)[1]
    assert int(str(root["size"])) * 512 == 100 * MIB
    assert plan.partitions[0].start == split_images.ROOT_START + 100 * MIB
    blocks = run("dumpe2fs", "-h", f"{output}?offset={split_images.ROOT_START}")
    assert f"Block count:              {100 * MIB // 1024}" in blocks


def acstor(*arguments: object) -> tuple[int, str, str]:
    """Run the command line; return its status, what it prints and what it says of errors."""
    output, error = io.StringIO(), io.StringIO()
    application = app.Application(output, error)
    application.command_manager.add_command("image split", image_split.SplitImage)
    status = application.run([str(one) for one in arguments])
    return status, output.getvalue(), error.getvalue()


def test_command_makes_qcow2_of_qcow2_and_tells_programs_of_it(tmp_path: pathlib.Path) -> None:
    image = make_image(tmp_path)
    source, output = tmp_path / "in.qcow2", tmp_path / "out.qcow2"
    run("qemu-img", "convert", "-O", "qcow2", "-c", str(image.path), str(source))
    rules = tmp_path / "table.toml"
    rules.write_text("version = 1\n[[path]]\npath = '/home'\nclass = 'none'\nsize = '32MiB'\n")
    command: list[object] = [
        "image",
        "split",
        source,
        output,
        "-f",
        "json",
        "--disk-format",
        "qcow2",
    ]
    command += ["--table", rules, "--path", "/var/cache=write-back"]
    status, text, error = acstor(*command, "--dry-run")
    assert status == 0, error
    assert not output.exists()
    planned = json.loads(text)
    status, text, error = acstor(*command)
    assert status == 0, error
    made = json.loads(text)
    assert made["regions"] == planned["regions"] == "none=none,write-back=write-back"
    places = [(one["path"], one["start"], one["size"]) for one in made["partitions"]]
    assert places == [(one["path"], one["start"], one["size"]) for one in planned["partitions"]]
    assert [one["path"] for one in made["partitions"]] == ["/home", "/var/cache"]
    run("qemu-img", "check", str(output))
    info = json.loads(run("qemu-img", "info", "--output=json", str(output)))
    assert (info["format"], info["virtual-size"]) == ("qcow2", made["size"])
    raw = tmp_path / "raw"
    run("qemu-img", "convert", "-O", "raw", str(output), str(raw))
    home = listing(image.path, image.root_start, "/home")
    assert listing(raw, made["partitions"][0]["start"]) == home
    assert sorted(os.listdir(tmp_path)) == [
        "image.raw", "in.qcow2", "out.qcow2", "raw", "root", "table.toml",
    ]  # fmt: skip
    status, text, error = acstor(*command)
    assert (status, text) == (8, "")
    assert "is there already" in error
