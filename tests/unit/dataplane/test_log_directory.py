"""A directory of local logs whose file system is not mounted."""

import errno
import pathlib
import shutil

import pytest
from oslo_config import cfg

from acstor import exception
from acstor.dataplane.volumes.logs.directory import LogDirectory
from acstor.dataplane.volumes.logs.expected_mounts import Tables, unit_name
from acstor.repository.volumes.durability import Durability, DurabilityClass
from acstor.repository.volumes.store import VolumeStore
from testbed.fixtures.conditions import wait_for
from tests.unit.dataplane.volume_hosts import VOLUME, HostUnderTest

GOLDEN = pathlib.Path(__file__).parents[2] / "golden" / "volume-identity-v1.json"


@pytest.fixture
def mounted(conf: cfg.ConfigOpts, tmp_path: pathlib.Path) -> pathlib.Path:
    """The directory of the logs, on a file system of its own: elsewhere than its mount point."""
    file_system, mount_point = tmp_path / "disk", pathlib.Path(conf.volumes.directory)
    file_system.mkdir()
    mount_point.parent.mkdir(parents=True, exist_ok=True)
    mount_point.symlink_to(file_system)
    return mount_point


def unmount(mount_point: pathlib.Path) -> None:
    mount_point.unlink()
    mount_point.mkdir()


def mount(mount_point: pathlib.Path, file_system: pathlib.Path) -> None:
    shutil.rmtree(mount_point)
    mount_point.symlink_to(file_system)


def test_volume_is_not_taken_over_while_its_log_is_not_mounted(
    mounted: pathlib.Path, host: HostUnderTest, store: VolumeStore
) -> None:
    host.open()
    host.device.write(512)
    file_system = mounted.resolve()
    host.plane.stop_for_next()
    unmount(mounted)

    host.plane.start()

    # As stock Nova does at the boot of a host, or at a hard reboot.
    for call in (lambda: host.call("close", force=True), host.open):
        with pytest.raises(exception.UnavailableError, match="mount its file system"):
            call()
    assert store.get(VOLUME).record.epoch == 1

    # Mounted late it counts for the next process, which looks for what is in it.
    mount(mounted, file_system)
    with pytest.raises(exception.UnavailableError, match="is not the directory"):
        host.open()
    host.restart()
    assert host.open()["epoch"] == 1
    assert host.call("status")["dirty_bytes"] == 512


@pytest.mark.parametrize("is_full", [False, True])
def test_volumes_of_a_former_release_give_their_directory_an_identity(
    mounted: pathlib.Path,
    host: HostUnderTest,
    conf: cfg.ConfigOpts,
    monkeypatch: pytest.MonkeyPatch,
    is_full: bool,
) -> None:
    host.open()
    host.plane.stop_for_next()
    state = pathlib.Path(conf.state_path, "dataplane")
    identities = [mounted / "identity.json", state / "volumes-identity.json"]
    for identity in identities:
        identity.unlink()

    def refuse(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as full:
        if is_full:
            full.setattr("acstor.dataplane.volumes.logs.directory.write_atomically", refuse)
        host.plane.start()
    assert [identity.exists() for identity in identities] == [not is_full] * 2
    wait_for("it is served", lambda: host.call("status")["state"] == "serving")


def test_lost_directory_is_given_up_by_operators_only(
    mounted: pathlib.Path, host: HostUnderTest, store: VolumeStore, conf: cfg.ConfigOpts
) -> None:
    host.open()
    host.plane.stop_for_next()
    unmount(mounted)
    host.plane.start()
    with pytest.raises(exception.UnavailableError) as refused:
        host.open()
    copy = pathlib.Path(conf.state_path) / "dataplane" / "volumes-identity.json"
    assert str(copy) in str(refused.value)
    copy.unlink()
    host.restart()
    assert host.open()["epoch"] == 2


def test_identity_that_a_former_release_kept_elsewhere_counts(
    mounted: pathlib.Path, host: HostUnderTest, conf: cfg.ConfigOpts
) -> None:
    """In the state directory itself, where the data plane may not write."""
    host.open()
    host.plane.stop_for_next()
    state = pathlib.Path(conf.state_path)
    former = state / "volumes-identity.json"
    (state / "dataplane" / "volumes-identity.json").rename(former)
    unmount(mounted)
    host.plane.start()
    with pytest.raises(exception.UnavailableError, match=str(former)):
        host.open()


def test_directory_that_goes_while_nothing_is_open_is_noticed(
    mounted: pathlib.Path, host: HostUnderTest
) -> None:
    host.open()
    host.call("close", force=False)
    unmount(mounted)
    with pytest.raises(exception.UnavailableError, match="is not the directory"):
        host.open()


class TestIdentity:
    """Of a directory that is opened by itself."""

    @pytest.fixture
    def copy(self, tmp_path: pathlib.Path) -> pathlib.Path:
        return tmp_path / "state" / "identity.json"

    @pytest.fixture
    def path(self, tmp_path: pathlib.Path) -> pathlib.Path:
        return tmp_path / "logs"

    def test_directory_has_none_until_it_is_claimed(
        self, path: pathlib.Path, copy: pathlib.Path
    ) -> None:
        place = LogDirectory(str(path), str(copy))
        place.check()
        assert not path.exists()
        place.claim()
        place.claim()
        place.check()
        assert (path / "identity.json").read_bytes() == copy.read_bytes()

    def test_claim_that_was_cut_short_goes_on(self, path: pathlib.Path, copy: pathlib.Path) -> None:
        place = LogDirectory(str(path), str(copy))
        place.claim()
        copy.unlink()
        before = (path / "identity.json").read_bytes()
        place.claim()
        assert before == copy.read_bytes() == (path / "identity.json").read_bytes()

    def test_bytes_change_version_requires_update(
        self, path: pathlib.Path, copy: pathlib.Path
    ) -> None:
        path.mkdir()
        (path / "identity.json").write_bytes(GOLDEN.read_bytes())
        LogDirectory(str(path), str(copy)).claim()
        assert copy.read_bytes() == GOLDEN.read_bytes()

    def test_directory_that_moved_is_the_same(
        self, path: pathlib.Path, copy: pathlib.Path, tmp_path: pathlib.Path
    ) -> None:
        LogDirectory(str(path), str(copy)).claim()
        path.rename(tmp_path / "moved")
        LogDirectory(str(tmp_path / "moved"), str(copy)).check()

    @pytest.mark.parametrize(
        "content", [b"", b"{", b"[]", b"{}", b'{"version":2,"identity":"x"}', b'{"version":1}']
    )
    def test_malformed_identity_is_an_error(
        self, content: bytes, path: pathlib.Path, copy: pathlib.Path
    ) -> None:
        place = LogDirectory(str(path), str(copy))
        place.claim()
        for file in (copy, path / "identity.json"):
            before = file.read_bytes()
            file.write_bytes(content)
            with pytest.raises(exception.UnavailableError, match="does not say"):
                place.check()
            file.write_bytes(before)

    @pytest.mark.parametrize(
        ("place", "options", "is_refused"),
        [
            ("{path}", "defaults", True),
            ("{path.parent}", "defaults,nofail", True),
            ("{path}/below", "defaults", False),
            ("{path}-2", "defaults", False),
            ("{path}", "noauto", False),
            ("{path}", "noauto,x-systemd.automount", True),
            ("{path}", "noauto,x-systemd.wanted-by=acstor-dataplane.service", True),
        ],
    )
    def test_mount_point_without_its_file_system_is_given_no_identity(
        self,
        place: str,
        options: str,
        is_refused: bool,
        path: pathlib.Path,
        copy: pathlib.Path,
        tmp_path: pathlib.Path,
    ) -> None:
        """Nothing else tells of it on a host that never had a copy."""
        table, at = tmp_path / "fstab", place.format(path=path)
        lines = [
            "# a comment",
            "",
            "proc /proc proc",
            "disk none swap sw",
            f"disk {at} xfs {options}",
        ]
        table.write_text("\n".join(lines))
        directory = LogDirectory(str(path), str(copy), Tables(str(table)))
        if not is_refused:
            directory.claim()
            return
        with pytest.raises(exception.UnavailableError, match=f"{at} is not mounted"):
            directory.claim()
        assert not copy.exists()
        assert not path.exists()
        # Who has an identity is the one: mounted by hand elsewhere, say.
        LogDirectory(str(path), str(copy), Tables(str(tmp_path / "none"))).claim()
        copy.unlink()
        directory.claim()
        directory.check()

    @pytest.mark.parametrize(
        ("unit", "content", "wanted_by", "is_refused"),
        [
            ("{path}.mount", "[Mount]\nWhat=/dev/vdb\n", "local-fs.target.requires", True),
            ("{path.parent}.mount", "[Mount]\n", "acstor-dataplane.service.wants", True),
            ("{path}.automount", "[Automount]\n", "multi-user.target.wants", True),
            ("{path}.mount", "[Mount]\n", None, False),
            ("{path}.mount", "", "local-fs.target.requires", False),
            ("{path}.mount", "SourcePath={fstab}\n[Mount]\n", "local-fs.target.wants", False),
            ("{path}-2.mount", "[Mount]\n", "local-fs.target.requires", False),
            ("{path}.service", "[Service]\n", "local-fs.target.requires", False),
        ],
    )
    def test_mount_point_of_an_enabled_unit_is_given_no_identity(
        self,
        unit: str,
        content: str,
        wanted_by: str | None,
        is_refused: bool,
        path: pathlib.Path,
        copy: pathlib.Path,
        tmp_path: pathlib.Path,
    ) -> None:
        """As that of an entry of fstab; a unit that is masked, or nobody wants, is none."""
        ours, vendor, fstab = tmp_path / "ours", tmp_path / "vendor", tmp_path / "fstab"
        point, _, kind = unit.format(path=path).rpartition(".")
        name = f"{unit_name(point)}.{kind}"
        for directory in (ours, vendor):
            directory.mkdir()
        (vendor / name).write_text("[Mount]\n")
        file = ours / name
        file.write_text(content.format(fstab=fstab))
        if wanted_by is not None:
            (ours / wanted_by).mkdir()
            (ours / wanted_by / name).symlink_to(file)
        tables = Tables(str(fstab), [str(ours), str(vendor), str(tmp_path / "none")])
        logs = LogDirectory(str(path), str(copy), tables)
        if not is_refused:
            logs.claim()
            return
        with pytest.raises(exception.UnavailableError) as refused:
            logs.claim()
        assert f"{point} is not mounted, which {file} names" in str(refused.value)
        assert not copy.exists()

    def test_mount_point_that_is_mounted_is_given_an_identity(
        self, path: pathlib.Path, copy: pathlib.Path, tmp_path: pathlib.Path
    ) -> None:
        table = tmp_path / "fstab"
        table.write_text("disk / ext4 defaults\nbroken\n")
        LogDirectory(str(path), str(copy), Tables(str(table))).claim()
        assert copy.exists()

    def test_full_file_system_is_told(
        self, path: pathlib.Path, copy: pathlib.Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def no_space(*_: object, **__: object) -> None:
            raise OSError(28, "No space left on device")

        monkeypatch.setattr("acstor.dataplane.volumes.logs.directory.write_atomically", no_space)
        with pytest.raises(exception.UnavailableError, match="No space left"):
            LogDirectory(str(path), str(copy)).claim()


def test_classes_that_cannot_lag_are_refused_as_well(
    mounted: pathlib.Path, host: HostUnderTest, store: VolumeStore
) -> None:
    """A directory that is missing is a fault of the host, whatever a volume would lose by it."""
    store.set_durability(VOLUME, Durability(DurabilityClass.WRITE_THROUGH))
    host.open()
    host.plane.stop_for_next()
    unmount(mounted)
    host.plane.start()
    with pytest.raises(exception.UnavailableError, match="is not the directory"):
        host.open()
