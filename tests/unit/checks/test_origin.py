"""Checks of the origin."""

import json
import pathlib

import pytest
from oslo_config import cfg
from oslo_upgradecheck.upgradecheck import Code

from acstor.checks import origin
from acstor.native import RingHost, build_ring
from acstor.origin import mounts
from acstor.origin.opening import open_origin
from acstor.repository.repository import Format, Repository
from tests.unit.checks.conftest import Configure, text

MOUNTS = """\
22 1 259:1 / / rw - ext4 /dev/root rw
31 22 0:40 / /srv rw - tmpfs tmpfs rw
32 22 0:41 / /srv/acstor rw - nfs4 server:/export rw,vers=4.2,{options},addr=10.0.0.9
"""


def test_repository_of_this_release_is_fine(configure: Configure) -> None:
    conf = configure()
    Repository.init(open_origin(conf.origin.url, 1))
    result = origin.check_repository(conf)
    assert result.code is Code.SUCCESS
    assert "format version 8, chunks of 65536 bytes" in text(result)


def test_repository_of_the_release_before_is_to_be_upgraded(configure: Configure) -> None:
    conf = configure()
    older = Format("6f1c8a52-0a5e-4d27-9a52-b3ad2a2c91f0", 65536, version=1)
    open_origin(conf.origin.url, 1).put_if_absent("format", [older.encode()])
    result = origin.check_repository(conf)
    assert result.code is Code.WARNING
    assert "format version 1" in text(result)
    assert "'acstor repository upgrade'" in text(result)


def test_scopes_of_projects_need_the_version_that_has_them(configure: Configure) -> None:
    conf = configure("[repository]\ndedup_scope = project\n")
    older = Format("6f1c8a52-0a5e-4d27-9a52-b3ad2a2c91f0", 65536, version=3)
    opened = open_origin(conf.origin.url, 1)
    opened.put_if_absent("format", [older.encode()])
    result = origin.check_repository(conf)
    assert result.code is Code.FAILURE
    assert "dedup_scope = project needs 4" in text(result)
    assert "'acstor repository upgrade'" in text(result)
    opened.delete("format")
    Repository.init(opened)
    assert origin.check_repository(conf).code is Code.SUCCESS


def test_upgrade_that_was_ended_in_the_midst_is_to_be_repeated(
    configure: Configure, tmp_path: pathlib.Path
) -> None:
    conf = configure()
    (tmp_path / "origin" / "refs").mkdir()
    present = Format("6f1c8a52-0a5e-4d27-9a52-b3ad2a2c91f0", 65536)
    opened = open_origin(conf.origin.url, 1)
    opened.put_if_absent("format", [present.encode()])
    result = origin.check_repository(conf)
    assert result.code is Code.WARNING
    assert "repeat 'acstor repository upgrade'" in text(result)
    (tmp_path / "origin" / "refs").rename(tmp_path / "origin" / ".refs-former")
    result = origin.check_repository(conf)
    assert result.code is Code.FAILURE
    assert "being converted" in text(result)
    opened.convert_refs()
    assert origin.check_repository(conf).code is Code.SUCCESS


def test_absent_repository_says_what_to_do(configure: Configure) -> None:
    result = origin.check_repository(configure())
    assert result.code is Code.FAILURE
    assert "'acstor repository init' makes a new repository" in text(result)


def test_repository_of_a_newer_release_is_a_failure(
    configure: Configure, tmp_path: pathlib.Path
) -> None:
    conf = configure()
    Repository.init(open_origin(conf.origin.url, 1))
    path = tmp_path / "origin" / "format"
    fields = json.loads(path.read_text())
    path.unlink()
    path.write_text(json.dumps({**fields, "version": 99}))
    result = origin.check_repository(conf)
    assert result.code is Code.FAILURE
    assert "format version 99" in text(result)


def test_unreachable_origin_is_a_failure_with_its_url(
    configure: Configure, tmp_path: pathlib.Path
) -> None:
    (tmp_path / "origin").rmdir()
    result = origin.check_repository(configure())
    assert result.code is Code.FAILURE
    assert f"posix://{tmp_path}/origin: origin directory" in text(result)


def test_ring_is_read(configure: Configure) -> None:
    conf = configure()
    assert "none is published yet" in text(origin.check_ring(conf))
    store = open_origin(conf.origin.url, 1)
    ring = build_ring([RingHost("h1", "10.0.0.1:7420", 100)], 64)
    store.swap_ref("ring", None, ring.encode())
    assert text(origin.check_ring(conf)) == "generation 1, 1 hosts"
    ref = store.get_ref("ring")
    assert ref is not None
    store.swap_ref("ring", ref.token, b"not a ring")
    assert origin.check_ring(conf).code is Code.FAILURE


@pytest.mark.parametrize(
    ("options", "code"),
    [
        ("lookupcache=none,acdirmin=0,acdirmax=0", Code.SUCCESS),
        ("noac,lookupcache=none", Code.SUCCESS),
        ("acdirmin=0,acdirmax=0", Code.WARNING),
        ("relatime", Code.WARNING),
        ("lookupcache=none,acdirmin=0,acdirmax=0,soft", Code.WARNING),
        ("lookupcache=none,acdirmin=0,acdirmax=0,nolock", Code.SUCCESS),
    ],
)
def test_nfs_must_be_mounted_without_caches(
    configure: Configure,
    tmp_path: pathlib.Path,
    monkeypatch: pytest.MonkeyPatch,
    options: str,
    code: Code,
) -> None:
    mountinfo = tmp_path / "mountinfo"
    mountinfo.write_text(MOUNTS.format(options=options))
    monkeypatch.setattr(mounts, "MOUNTS", str(mountinfo))
    conf = configure("[origin]\nurl = posix:///srv/acstor/repository\n")
    assert origin.check_mount(conf).code is code


def test_origin_beside_the_nfs_mount_is_none_of_it(
    configure: Configure, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mountinfo = tmp_path / "mountinfo"
    mountinfo.write_text(MOUNTS.format(options="relatime"))
    monkeypatch.setattr(mounts, "MOUNTS", str(mountinfo))
    conf = configure("[origin]\nurl = posix:///srv/acstor-2\n")
    assert text(origin.check_mount(conf)) == "/srv/acstor-2 is on tmpfs"


def test_origin_behind_http_has_no_mount(configure: Configure) -> None:
    conf: cfg.ConfigOpts = configure("[origin]\nurl = http://origin.example:8080/\n")
    assert origin.check_mount(conf).code is Code.SUCCESS


def mounted(
    folder: pathlib.Path,
    monkeypatch: pytest.MonkeyPatch,
    kind: str = "nfs4",
    options: str = "rw,sec=sys",
) -> pathlib.Path:
    """Make a directory that seems to be a mount."""
    folder.mkdir(parents=True)
    table = folder.parent / "mountinfo"
    table.write_text(
        "22 1 259:1 / / rw - ext4 /dev/root rw\n"
        f"32 22 0:41 / {folder} rw - {kind} server:/export {options}\n"
    )
    monkeypatch.setattr(mounts, "MOUNTS", str(table))
    return folder


@pytest.fixture
def open_way(tmp_path: pathlib.Path) -> pathlib.Path:
    """Return a directory that everybody may enter, as far as the test can say."""
    tmp_path.chmod(0o755)
    return tmp_path


def check_access(configure: Configure, path: pathlib.Path) -> tuple[Code, str]:
    result = origin.check_access(configure(f"[origin]\nurl = posix://{path}/repository\n"))
    return result.code, text(result)


def test_nfs_origin_that_everybody_reaches_is_warned_of(
    configure: Configure, open_way: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Directories above the test's own, which may be closed, are left out."""
    path = mounted(open_way / "srv" / "acstor", monkeypatch)
    monkeypatch.setattr(origin, "_folders_above", lambda _: [str(path.parent), str(open_way)])
    path.parent.chmod(0o755)
    code, said = check_access(configure, path)
    assert code is Code.WARNING
    assert said.startswith(f"every user of this machine may enter {path}, ")
    assert "'Origin' in the installation guide" in said


@pytest.mark.parametrize("security", ["krb5", "krb5i", "krb5p"])
def test_nfs_origin_whose_server_tells_users_apart_is_fine(
    configure: Configure,
    open_way: pathlib.Path,
    monkeypatch: pytest.MonkeyPatch,
    security: str,
) -> None:
    path = mounted(open_way / "srv" / "acstor", monkeypatch, options=f"rw,sec={security}")
    monkeypatch.setattr(origin, "_folders_above", lambda _: [str(path.parent), str(open_way)])
    path.parent.chmod(0o755)
    assert check_access(configure, path)[0] is Code.SUCCESS


@pytest.mark.parametrize("mode", [0o750, 0o700, 0o754])
def test_nfs_origin_below_a_closed_directory_is_fine(
    configure: Configure, open_way: pathlib.Path, monkeypatch: pytest.MonkeyPatch, mode: int
) -> None:
    path = mounted(open_way / "origin" / "acstor", monkeypatch)
    path.parent.chmod(mode)
    code, said = check_access(configure, path)
    assert code is Code.SUCCESS
    assert said == f"{path.parent} lets in its owner and group only"


def test_closed_directory_further_up_is_enough(
    configure: Configure, open_way: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = mounted(open_way / "closed" / "open" / "acstor", monkeypatch)
    path.parent.chmod(0o755)
    path.parent.parent.chmod(0o750)
    assert check_access(configure, path)[0] is Code.SUCCESS


def test_directories_above_a_mount_are_named_without_the_root() -> None:
    assert list(origin._folders_above("/srv/origin/acstor")) == ["/srv/origin", "/srv"]
    assert list(origin._folders_above("/acstor")) == []


def test_local_origin_is_for_its_owner_to_close(
    configure: Configure, open_way: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = mounted(open_way / "srv" / "acstor", monkeypatch, kind="ext4")
    assert check_access(configure, path)[0] is Code.SUCCESS


def test_way_to_an_origin_behind_http_is_not_looked_at(configure: Configure) -> None:
    conf: cfg.ConfigOpts = configure("[origin]\nurl = http://origin.example:8080/\n")
    assert origin.check_access(conf).code is Code.SUCCESS


def test_mount_on_demand_that_fails_is_no_local_origin(
    configure: Configure, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mountinfo = tmp_path / "mountinfo"
    mountinfo.write_text("2 1 0:40 / /srv/acstor rw - autofs systemd-1 rw,direct\n")
    monkeypatch.setattr(mounts, "MOUNTS", str(mountinfo))
    conf = configure("[origin]\nurl = posix:///srv/acstor/repository\n")
    for check in (origin.check_mount, origin.check_access):
        assert check(conf).code is Code.WARNING
        assert "on demand, and that fails" in text(check(conf))
