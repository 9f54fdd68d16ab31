"""Images that were made to do harm, are damaged, or are not what can be split."""

import os
import pathlib
import random
import signal
import struct
import subprocess
import zlib
from typing import BinaryIO

import pytest

from acstor import exception
from acstor.repository.progress import Progress
from acstor.splitting import splitting, table
from testbed.fixtures.conditions import PATIENCE, wait_for
from testbed.fixtures.hosts import BIN
from testbed.fixtures.split_images import MIB, SplitImage, make_image, make_root, run

pytestmark = pytest.mark.timeout(300)


def split(image: SplitImage, *paths: str) -> pathlib.Path:
    output = image.path.with_name("out.raw")
    rules = table.combine(map(table.parse_option, paths or ("/home=none",)))
    request = splitting.Request(str(image.path), "raw", str(output), "raw", rules)
    splitting.split(request, Progress())
    return output


def check_refused(
    image: SplitImage, kind: type[exception.AcstorError], said: str, *paths: str
) -> None:
    """Check that an image is refused, as it was, and that nothing is left."""
    before = image.path.read_bytes()
    present = sorted(os.listdir(image.path.parent))
    with pytest.raises(kind) as caught:
        split(image, *paths)
    assert said in str(caught.value)
    assert image.path.read_bytes() == before
    assert sorted(os.listdir(image.path.parent)) == present


def test_paths_that_are_no_directories_are_refused(tmp_path: pathlib.Path) -> None:
    image = make_image(tmp_path)
    image.debugfs("symlink /linked /home", "cd /etc/systemd/system", "mkdir tmp.mount")
    image.debugfs("cd /", "mkdir mounted", "rm /etc/fstab", f"write {fstab(tmp_path)} /etc/fstab")
    large = tmp_path / "20MiB"
    large.write_bytes(os.urandom(20 * MIB))
    image.debugfs("cd /home", f"write {large} large-too")
    invalid = exception.InvalidError
    check_refused(image, invalid, "/linked is a symbolic link to /home", "/linked=none")
    check_refused(image, invalid, "symbolic link to /home", "/linked/user=none")
    check_refused(image, invalid, "is no directory", "/home/user/document=none")
    check_refused(image, exception.NotFoundError, "has no /none", "/none/x=none")
    check_refused(image, invalid, "is a mount point", "/mounted=none")
    check_refused(image, invalid, "tmp.mount mounts", "/tmp=none")
    check_refused(image, invalid, "but needs", "/home=none,16MiB")


def fstab(folder: pathlib.Path) -> pathlib.Path:
    path = folder / "fstab"
    path.write_text("/dev/vda2 / ext4 defaults 0 1\n/dev/vdb /mounted xfs defaults 0 2\n")
    return path


def test_hard_links_out_of_a_tree_are_refused(tmp_path: pathlib.Path) -> None:
    root = make_root(tmp_path)
    os.link(root / "var/cache/large", root / "outside")
    image = make_image(tmp_path, root=root)
    check_refused(image, exception.InvalidError, "3 names (hard links), 2 of", "/var/cache=none")
    check_refused(image, exception.InvalidError, "1 of them", "/var/cache/apt=none")


def test_names_with_commands_of_debugfs_are_names(tmp_path: pathlib.Path) -> None:
    """A line break would begin a command, such as one that writes a file of the host."""
    root, target = make_root(tmp_path), tmp_path / "written"
    (root / f'home/" dump <2> {str(target).replace("/", "_")} "').write_text("x")
    (root / "home/;!true").write_text("x")
    image = make_image(tmp_path, root=root)
    output = split(image)
    start = image.root_start + 60 * MIB
    names = run("debugfs", "-R", "ls -p /", f"{output}?offset={start}")
    assert "/;!true/" in names
    assert f'/" dump <2> {str(target).replace("/", "_")} "/' in names
    output.unlink()
    image.path.unlink()
    (root / "home/a\ndump <2> x").write_text("x")
    check_refused(make_image(tmp_path, root=root), exception.UnsupportedError, "line break")


def test_content_of_links_is_not_followed(tmp_path: pathlib.Path) -> None:
    """Files of the host that links of an image name are not in the output."""
    secret = tmp_path / "secret"
    secret.write_text("of the host")
    root = make_root(tmp_path)
    (root / "home/link").symlink_to(secret)
    (root / "home/up").symlink_to("../../../../../../../../etc")
    output = split(make_image(tmp_path, root=root))
    content = output.read_bytes()
    assert b"of the host" not in content
    assert str(secret).encode() in content


def test_damaged_file_system_is_refused(tmp_path: pathlib.Path) -> None:
    image = make_image(tmp_path)
    inode = run("debugfs", "-R", "stat /home", f"{image.path}?offset={image.root_start}").split()[1]
    image.debugfs(f"set_inode_field <{inode}> block[2] 0xffffffff", "clri /home/user")
    check_refused(image, exception.ImageRefusedError, "damaged")


def test_file_system_that_is_larger_than_its_partition_is_refused(tmp_path: pathlib.Path) -> None:
    image = make_image(tmp_path)
    with image.path.open("r+b") as file:
        file.seek(image.root_start + 1024 + 4)
        file.write((1 << 30).to_bytes(4, "little"))
    check_refused(image, exception.ImageRefusedError, "bytes in a partition of")


@pytest.mark.parametrize("label", ["gpt", "dos"])
def test_table_with_partitions_behind_the_end_of_the_image_is_refused(
    tmp_path: pathlib.Path, label: str
) -> None:
    """An image of some megabytes would become an output of a terabyte."""
    image = make_image(tmp_path, label=label)
    with image.path.open("r+b") as file:
        if label == "dos":
            file.seek(446 + 16 + 12)
            file.write(struct.pack("<I", (1 << 40) // 512))
        else:
            lie_of_end(file, (1 << 40) // 512)
    check_refused(image, exception.ImageRefusedError, "cut off")


def lie_of_end(file: BinaryIO, last: int) -> None:
    """Have the second entry of a GPT end at a sector, with sums that say that this is right."""
    file.seek(512)
    head = bytearray(file.read(92))
    place, count, size = struct.unpack_from("<QII", head, 72)
    file.seek(place * 512)
    entries = bytearray(file.read(count * size))
    struct.pack_into("<Q", entries, size + 40, last)
    file.seek(place * 512)
    file.write(entries)
    struct.pack_into("<Q", head, 48, last)
    struct.pack_into("<I", head, 88, zlib.crc32(entries))
    struct.pack_into("<I", head, 16, 0)
    struct.pack_into("<I", head, 16, zlib.crc32(head))
    file.seek(512)
    file.write(head)


def test_other_file_systems_are_refused_and_named(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "image.raw"
    path.write_bytes(b"")
    os.truncate(path, 400 * MIB)
    run("mkfs.xfs", "-q", str(path))
    image = SplitImage(path, 0)
    check_refused(image, exception.UnsupportedError, "the whole disk: xfs")
    path.write_bytes(bytes(8 * MIB))
    check_refused(image, exception.UnsupportedError, "no file system that can be split")


def test_encrypted_and_sealed_features_are_refused(tmp_path: pathlib.Path) -> None:
    image = make_image(tmp_path, options=["-O", "inline_data"])
    check_refused(image, exception.UnsupportedError, "inline_data")


@pytest.mark.parametrize("seed", range(3))
def test_random_damage_ends_in_an_error_or_a_sound_output(
    tmp_path: pathlib.Path, seed: int
) -> None:
    """Whatever bytes of the tables say: no crash, no input that changed, no half an output."""
    image = make_image(tmp_path)
    rng = random.Random(seed)
    with image.path.open("r+b") as file:
        for _ in range(60):
            file.seek(image.root_start + rng.randrange(1024, 2 * MIB))
            file.write(rng.randbytes(rng.choice((1, 2, 4, 64))))
    before = image.path.read_bytes()
    try:
        output = split(image)
    except (exception.InvalidError, exception.UnsupportedError, exception.NotFoundError):
        assert not (tmp_path / "out.raw").exists()
    else:
        run("e2fsck", "-fn", f"{output}?offset={image.root_start}")
    assert image.path.read_bytes() == before
    assert not [name for name in os.listdir(tmp_path) if name.startswith(".acstor")]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_killed_command_has_no_output(tmp_path: pathlib.Path, number: signal.Signals) -> None:
    image = make_image(tmp_path)
    program = (
        "import sys, types; from acstor.cli import app, image_split;"
        "from acstor.splitting import tools; real = tools.confinement; sleep = ['sleep', '3600'];"
        # The work has no end but that it is killed.
        "confine = lambda _, *how, **more: real.confine(sleep, *how, **more);"
        "tools.confinement = types.SimpleNamespace(environment=real.environment, confine=confine);"
        "application = app.Application();"
        "application.command_manager.add_command('image split', image_split.SplitImage);"
        "sys.exit(application.run(sys.argv[1:]))"
    )
    command = [str(BIN / "python"), "-c", program, "image", "split", str(image.path)]
    command += [str(tmp_path / "out.raw"), "--path", "/var/cache=none"]
    before = image.path.read_bytes()

    def works() -> bool:
        return any((folder / "disk").exists() for folder in tmp_path.glob(".acstor-split-*"))

    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        try:
            wait_for("the work has begun", works, 120)
        finally:
            process.send_signal(number)
        _, said = process.communicate(timeout=60 * PATIENCE)
    assert process.returncode != 0
    assert not (tmp_path / "out.raw").exists()
    assert image.path.read_bytes() == before
    if number == signal.SIGTERM:
        assert not list(tmp_path.glob(".acstor-split-*"))
        assert b"no output was made" in said
