import os
import pathlib

from acstor.mounting import mount_point


def test_mounts_are_recognised_by_their_text(tmp_path: pathlib.Path) -> None:
    mounts = tmp_path / "mountinfo"
    mounts.write_text(
        "36 35 0:30 / /srv/a\\040b rw shared:1 - fuse.acstor acstor rw\n"
        "37 35 0:31 / /srv/plain rw - ext4 /dev/vda rw\n"
        "garbage\n"
    )
    assert mount_point.is_mounted("/srv/a b", str(mounts))
    assert not mount_point.is_mounted("/srv/plain", str(mounts))
    assert not mount_point.is_mounted("/srv", str(mounts))


def test_mount_of_somebody_else_on_top_is_not_ours_to_detach(tmp_path: pathlib.Path) -> None:
    mounts = tmp_path / "mountinfo"
    ours = "36 35 0:30 / /srv/images rw shared:1 - fuse.acstor acstor rw\n"
    theirs = "37 36 0:31 / /srv/images rw - tmpfs tmpfs rw\n"
    mounts.write_text(ours + theirs)
    assert not mount_point.is_mounted("/srv/images", str(mounts))
    mounts.write_text(theirs + ours)
    assert mount_point.is_mounted("/srv/images", str(mounts))


def test_mount_is_found_through_links_above_it(tmp_path: pathlib.Path) -> None:
    """The kernel names where it is; asking the directory itself would wait for its server."""
    mounts = tmp_path / "mountinfo"
    real = os.path.realpath(tmp_path)
    mounts.write_text(f"36 35 0:30 / {real}/disk/images rw shared:1 - fuse.acstor acstor rw\n")
    (tmp_path / "disk").mkdir()
    (tmp_path / "state").symlink_to("disk")
    assert mount_point.is_mounted(f"{tmp_path}/state/images", str(mounts))
    (tmp_path / "disk" / "images").symlink_to("elsewhere")
    assert mount_point.is_mounted(f"{tmp_path}/state/images/", str(mounts))
