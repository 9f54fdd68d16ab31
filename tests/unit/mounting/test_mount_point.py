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
