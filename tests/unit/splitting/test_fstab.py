"""Lines of fstab."""

import pytest

from acstor import exception
from acstor.splitting import fstab
from acstor.splitting.fstab import Mount

FORMER = b"# comment /x y\n/dev/vda1 / ext4 defaults 0 1\n/dev/vdb1 /data xfs defaults 0 2\n"


def test_lines_are_added_at_the_end() -> None:
    mount = Mount("UUID=1", b"/var/cache", "defaults")
    assert fstab.with_mounts(FORMER, [mount]) == (
        FORMER + fstab.COMMENT + b"\nUUID=1 /var/cache ext4 defaults 0 2\n"
    )


def test_lines_come_before_what_is_mounted_below_them() -> None:
    mounts = [Mount("UUID=1", b"/var", "defaults"), Mount("UUID=2", b"/var/x", "defaults")]
    content = fstab.with_mounts(FORMER + b"tmpfs /var/lock tmpfs\n/dev/c /last ext4", mounts)
    assert fstab.mount_points(content) == [
        b"/",
        b"/data",
        b"/var",
        b"/var/x",
        b"/var/lock",
        b"/last",
    ]


def test_blanks_in_a_path_are_escaped() -> None:
    line = Mount("UUID=1", b"/srv/a b#\\", "defaults").line
    assert line == rb"UUID=1 /srv/a\040b\043\134 ext4 defaults 0 2"
    assert fstab.mount_points(line) == [b"/srv/a b#\\"]


@pytest.mark.parametrize("path", [b"/data", b"/data/below"])
def test_path_of_another_file_system_is_refused(path: bytes) -> None:
    with pytest.raises(exception.InvalidError, match="fstab"):
        fstab.check_free(FORMER, path)


@pytest.mark.parametrize("path", [b"/database", b"/var", b"/x"])
def test_path_of_the_root_is_not(path: bytes) -> None:
    fstab.check_free(FORMER + b"swap none swap sw 0 0\n/swap swap swap\nshort\n", path)


def test_root_that_is_named_by_its_device_is_named_otherwise() -> None:
    assert fstab.with_root(FORMER, "UUID=7") == FORMER.replace(b"/dev/vda1", b"UUID=7")
    named = FORMER.replace(b"/dev/vda1", b"LABEL=root")
    assert fstab.with_root(named, "UUID=7") == named


def test_file_without_lines_gets_them() -> None:
    assert fstab.mount_points(fstab.with_mounts(b"", [Mount("UUID=1", b"/home", "a")])) == [
        b"/home"
    ]
