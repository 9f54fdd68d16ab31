"""Files of versions: what is shown, what is downloaded and how, what is refused."""

import datetime
import html
import io
import json
import pathlib
import re
import tarfile
from typing import Any

import pytest
import requests

from acstor.api.places import PlaceKind
from acstor.browsing.disk_files import DiskFiles
from acstor_dashboard import wording
from acstor_dashboard.versions import file_downloads, file_rows, files
from acstor_dashboard.versions.file_rows import Place
from acstorclient.exception import DownloadFailed
from testbed.fixtures.file_systems import make_ext4, make_tree
from tests.unit.dashboard.site import Site, text_of
from tests.unit.dashboard.test_pages import check_structure
from tests.unit.dashboard.test_versions import NASTY, PANEL, SERVER_DISK
from tests.unit.repository.images import image_id, register

ODD = (
    "<img src=x onerror=alert(1)>{$7*7$}",
    "{{ 7|add:7 }}",
    "new\nline",
    "\u202egpj.exe",
    "a b+c#d",
)
"""Names that are markup, code, lines or another direction to somebody."""


def add(site: Site, disk: bytes, number: int = 0, **fields: Any) -> str:
    """Return the path of the pages of a version that has a disk."""
    setting = site.setting
    register(setting.versions.repository, number, disk)
    manifest = setting.versions.repository.get_image(image_id(number)).record.manifest
    known = {"manifest": manifest, "size_bytes": len(disk), "disk": SERVER_DISK, **fields}
    version = setting.add_version(**known)
    site.take_calls()
    return f"{PANEL}{version}/"


@pytest.fixture
def version(site: Site, ext4_disk: bytes) -> str:
    """Return the path of the pages of a version with a few files."""
    return add(site, ext4_disk, name="before")


def page(site: Site, path: str, /, **query: Any) -> str:
    """Return a page, looked at as a reader of the screen does."""
    answer = site.get(path, **query)
    assert answer.status_code == 200, path
    text = text_of(answer)
    check_structure(text, path)
    return text


def links(text: str) -> list[str]:
    """Return where the links of a page lead."""
    return [html.unescape(each) for each in re.findall(r'href="([^"]*)"', text)]


def test_way_from_the_version_to_a_file(site: Site, version: str) -> None:
    assert f"{version}files/" in links(page(site, version))
    site.take_calls()
    text = page(site, f"{version}files/")
    assert [call.path.rpartition("/")[2] for call in site.take_calls()][1:] == ["partitions"]
    assert "Whole disk" in text
    (root,) = [each for each in links(text) if "?" in each and "files/" in each]
    text = text_of(site.browser.get(root))
    assert len(site.take_calls()) == 2
    (etc,) = [each for each in links(text) if each.endswith("files/?partition=0&path=%2Fetc")]
    site.take_calls()
    text = text_of(site.browser.get(etc))
    assert "hostname" in text
    assert "&rarr; hostname" in text or "→ hostname" in text
    assert "0644" in text
    (hostname,) = [each for each in links(text) if each.endswith("hostname")]
    answer = site.browser.get(hostname)
    assert b"".join(answer.streaming_content) == b"web-1\n"
    assert [call.path.rpartition("/")[2] for call in site.take_calls()][1:] == ["files", "content"]


def test_breadcrumbs_lead_back(site: Site, version: str) -> None:
    text = page(site, f"{version}files/", partition="0", path="/etc/deep")
    for path in ("%2F", "%2Fetc"):
        assert f"{version}files/?partition=0&path={path}" in links(text)
    assert f"{version}files/" in links(text)
    assert '<span aria-current="page">deep</span>' in text


def test_directory_goes_on_by_its_marker(
    site: Site, version: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "FILES_MAX", 8)
    path, seen = f"{version}files/?partition=0&path=/many", []
    while path:
        text = text_of(site.browser.get(path))
        seen += re.findall(r"<td>(file\d+)</td>", text)
        path = next(iter(re.findall(r'rel="next" href="([^"]*)"', text)), "")
        path = html.unescape(path)
    assert seen == [f"file{number:02}" for number in range(20)]
    assert "First page" in text


def test_file_alone_has_a_page(site: Site, version: str) -> None:
    text = page(site, f"{version}files/", path="/etc/hostname")
    assert f"{version}files/content/?path=%2Fetc%2Fhostname" in links(text)


def test_file_comes_as_it_is_and_is_never_shown(site: Site, version: str) -> None:
    path = f"{version}files/content/"
    answer = site.get(path, partition="0", path="/etc/deep/large")
    assert (answer.status_code, answer.streaming) == (200, True)
    assert answer["Content-Type"] == "application/octet-stream"
    assert answer["Content-Disposition"] == 'attachment; filename="large"'
    assert answer["X-Content-Type-Options"] == "nosniff"
    assert answer["Cache-Control"] == "private, no-store"
    assert answer["Content-Length"] == str(256 * 2000)
    assert len(site.take_calls()) == 1
    parts = list(answer.streaming_content)
    assert b"".join(parts) == bytes(range(256)) * 2000
    assert max(len(part) for part in parts) <= file_downloads.PART_BYTES
    assert site.browser.head(path, {"path": "/etc/hostname"}).status_code == 405


def test_download_goes_on_where_it_broke_off(site: Site, version: str) -> None:
    path, query = f"{version}files/content/", {"path": "/etc/deep/large"}
    whole = site.browser.get(path, query)
    content, etag = b"".join(whole.streaming_content), whole["ETag"]
    headers = {"Range": "bytes=1000-", "If-Range": etag}
    rest = site.browser.get(path, query, headers=headers)
    assert rest.status_code == 206
    assert rest["Content-Range"] == f"bytes 1000-{len(content) - 1}/{len(content)}"
    assert b"".join(rest.streaming_content) == content[1000:]
    beyond = site.browser.get(path, query, headers={"Range": f"bytes={len(content)}-"})
    assert beyond.status_code == 416
    assert 'data-acstor-failure="invalid"' in text_of(beyond)


def test_directory_comes_as_an_archive(site: Site, version: str) -> None:
    answer = site.get(f"{version}files/archive/", path="/etc")
    assert answer["Content-Disposition"] == 'attachment; filename="etc.tar"'
    content = b"".join(answer.streaming_content)
    with tarfile.open(fileobj=io.BytesIO(content)) as archive:
        assert "etc/deep/large" in archive.getnames()
    root = site.get(f"{version}files/archive/", path="/")
    assert root["Content-Disposition"] == f'attachment; filename="{version.split("/")[-2]}.tar"'
    root.close()


def test_download_that_nobody_wants_any_more_gives_its_place_back(site: Site, version: str) -> None:
    answer = site.get(f"{version}files/content/", path="/etc/deep/large")
    places = site.setting.backends.files._places[PlaceKind.DOWNLOAD]
    assert places._taken.total() == 1
    assert "data-acstor-failure" not in page(site, f"{version}files/"), "lists have their own"
    answer.close()
    assert places._taken.total() == 0


@pytest.mark.parametrize(
    ("name", "content"),
    [("content", b"short"), ("archive", b"\0" * 512), ("archive", b"no archive" * 100)],
)
def test_end_that_is_missing_breaks_the_download(
    site: Site, version: str, monkeypatch: pytest.MonkeyPatch, name: str, content: bytes
) -> None:
    def broken(*_: object) -> Any:
        yield content

    def failing(*given: object) -> Any:
        yield from broken(*given)
        raise ConnectionError("the origin is away")

    method = "archive" if name == "archive" else "content"
    monkeypatch.setattr(DiskFiles, method, broken if name == "archive" else failing)
    answer = site.get(f"{version}files/{name}/", path="/etc/hostname")
    with pytest.raises((DownloadFailed, requests.exceptions.ChunkedEncodingError)):
        list(answer.streaming_content)


@pytest.mark.parametrize(
    ("path", "query", "status", "kind"),
    [
        ("content", "/none", 404, "gone"),
        ("content", "/etc", 400, "invalid"),
        ("content", "relative", 400, "invalid"),
        ("archive", "/none", 404, "gone"),
    ],
)
def test_download_that_cannot_begin_is_a_page(
    site: Site, version: str, path: str, query: str, status: int, kind: str
) -> None:
    answer = site.get(f"{version}files/{path}/", path=query)
    assert answer.status_code == status
    text = text_of(answer)
    check_structure(text, path)
    assert f'data-acstor-failure="{kind}"' in text
    assert answer["Content-Type"].startswith("text/html")
    assert "Content-Disposition" not in answer


def test_what_is_not_there_is_told(site: Site, version: str) -> None:
    for query in ({"path": "/none"}, {"partition": "7"}):
        assert 'data-acstor-failure="gone"' in page(site, f"{version}files/", **query)
    for query in ({"path": "none"}, {"partition": "x"}, {"path": "/\\"}):
        assert 'data-acstor-failure="invalid"' in page(site, f"{version}files/", **query)
    for path in ("/a\0b", "/..", "/etc/../../x", "/" + "x" * 5000, "/" + "x/" * 2500):
        text = page(site, f"{version}files/", path=path)
        assert "data-acstor-failure" in text or path == "/.."
        assert len(text) < 400_000


def test_name_of_a_version_is_text(site: Site, ext4_disk: bytes) -> None:
    path = add(site, ext4_disk, name=NASTY)
    for text in (page(site, f"{path}files/", path="/"), page(site, f"{path}compare/files/")):
        assert "<script>alert" not in text
        assert "{$7" not in text


def test_session_that_is_over_leads_to_the_login(site: Site, version: str) -> None:
    site.api.answer = ("401 Unauthorized", b"{}")
    for path in ("files/", "files/content/", "files/archive/", "compare/files/"):
        answer = site.get(f"{version}{path}", path="/etc/hostname")
        assert answer.status_code == 302
        assert "?next=" in answer["Location"]


def test_disk_that_is_encrypted_is_said_to_be(site: Site) -> None:
    path = add(site, b"LUKS\xba\xbe" + bytes((1 << 16) - 6), 1)
    text = page(site, f"{path}files/")
    assert "It is encrypted (LUKS)." in text
    assert "an export as image leads" in text
    assert not [each for each in links(text) if "files/?" in each]
    assert 'data-acstor-failure="invalid"' in page(site, f"{path}files/", path="/")


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (requests.exceptions.ConnectionError("refused"), "down"),
        (requests.exceptions.ReadTimeout("late"), "slow"),
    ],
)
def test_pages_stand_without_the_api(site: Site, version: str, error: Exception, kind: str) -> None:
    site.api.error = error
    for path in ("files/", "compare/files/"):
        assert text_of(site.get(f"{version}{path}")).count(f'failure="{kind}"') == 1
    download = site.get(f"{version}files/content/", path="/etc/hostname")
    assert download.status_code == 503
    words = " ".join(re.sub(r"<[^>]*>", " ", text_of(download)).split())
    assert f'failure="{kind}"' in text_of(download)
    assert ("It was waited for 50 seconds. Nothing was changed." in words) == (kind == "slow")


def test_older_api_is_told(site: Site, version: str) -> None:
    error = {"title": "t", "detail": "no such path", "code": "acstor.path.not_found"}
    site.api.answer = ("404 Not Found", json.dumps({"errors": [error]}).encode())
    for path in ("files/content/?path=/a", "files/archive/?path=/a"):
        answer = site.browser.get(f"{version}{path}")
        assert answer.status_code == 404
        assert 'data-acstor-failure="other_release"' in text_of(answer)


@pytest.mark.parametrize("content", [b"[]", b"{}", b'{"files": [{}], "file": {}}', b"x"])
def test_answer_that_is_none_is_told(content: bytes) -> None:
    from types import SimpleNamespace

    from openstack import exceptions

    def load(**_: object) -> object:
        return json.loads(content)

    api: Any = SimpleNamespace(get=lambda *_, **__: SimpleNamespace(json=load, url="u"))
    place = Place("v", "", "/")
    for ask in (
        lambda: files.fetch_partitions(api, "v"),
        lambda: files.fetch_listing(api, place, ""),
        lambda: files.fetch_changes(api, place, "w", ""),
    ):
        with pytest.raises(exceptions.InvalidResponse):
            ask()


def test_reader_is_shown_nothing_of_it(site: Site, version: str) -> None:
    site.api.role = "reader"
    for path in ("files/", "files/content/", "files/archive/", "compare/files/"):
        assert site.get(f"{version}{path}", path="/").status_code == 403
    for path in ("", "compare/"):
        text = text_of(site.get(f"{version}{path}"))
        assert "files/" not in "".join(each for each in links(text) if PANEL in each)
    assert not [call for call in site.take_calls() if "files" in call.path]


def test_rights_to_single_pages_hold_for_their_links(
    site: Site, version: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from acstor_dashboard import authorization

    may = authorization.may

    def fewer(request: Any, *rules: str, project_id: str | None = None) -> bool:
        denied = {"versions:file_content", "versions:file_archive", "versions:file_diff"}
        return not denied & set(rules) and may(request, *rules, project_id=project_id)

    monkeypatch.setattr(authorization, "may", fewer)
    text = page(site, f"{version}files/", path="/etc")
    assert "hostname" in text
    assert not [each for each in links(text) if "content/" in each or "archive/" in each]
    assert not [each for each in links(page(site, f"{version}compare/")) if "files/" in each]


def test_odd_names_are_text_everywhere(site: Site, tmp_path: pathlib.Path) -> None:
    tree = make_tree(tmp_path)
    (tree / "odd").mkdir()
    for name in ODD:
        (tree / "odd" / name).write_text(name)
        (tree / "odd" / f"dir {name}").mkdir()
        (tree / "odd" / f"link {name}").symlink_to(name)
    after = add(site, make_ext4(tree, tmp_path / "odd.img"), 1)
    before = add(site, make_ext4(make_tree(tmp_path / "plain"), tmp_path / "plain.img"), 2)
    listing = page(site, f"{after}files/", path="/odd")
    compared = page(site, f"{after}compare/files/", against=before.split("/")[-2])
    below = page(site, f"{after}files/", path=f"/odd/dir {ODD[0]}")
    for text in (listing, compared, below):
        body = text[text.index('<div class="acstor"') : text.index('<div id="footer"')]
        assert "<img" not in body
        assert "{$7" not in text
        assert "\u202e" not in text
        assert not re.search(r">\s*14\s*<", body)
    assert "\\u202egpj.exe" in listing
    assert "new\\x0aline" in listing
    found = [each for each in links(listing) if "/content/" in each]
    got = {b"".join(site.browser.get(each).streaming_content).decode() for each in found}
    assert got == set(ODD)


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("/etc/a b.txt", 'filename="a b.txt"'),
        ("/etc/.bashrc", 'filename=".bashrc"'),
        ('/x"; filename="y', 'filename="x_; filename=_y"'),
        ("/a\r\nSet-Cookie: b", 'filename="a__Set-Cookie_ b"'),
        ("/\u202egpj.exe", 'filename="_gpj.exe"'),
        ("/odd\\xff", 'filename="odd_xff"'),
        ("/größe", "filename*=utf-8''gr%C3%B6%C3%9Fe"),
        ("/100%41", 'filename="100_41"'),
        ("/..", 'filename="file"'),
        ("/", 'filename="file"'),
        (f"/{'x' * 300}", f'filename="{"x" * file_downloads.NAME_MAX}"'),
    ],
)
def test_name_of_a_download_is_safe(path: str, name: str) -> None:
    safe = file_downloads.safe_name(Place("v", "", path).name) or "file"
    header = file_downloads.protection(safe)["Content-Disposition"]
    assert header == f"attachment; {name}"


def test_long_ways_are_cut() -> None:
    found = file_rows.crumbs(Place("0" * 8 + "-0000-4000-8000-" + "0" * 12, "", "/a" * 5000))
    assert len(found) == file_rows.CRUMBS_MAX
    assert (found[0]["text"], found[-1]["url"]) == ("/", "")


@pytest.mark.parametrize("text", ["9999-12-31T23:59:59Z", "0001-01-01T00:00:00Z", "soon"])
def test_time_of_a_disk_may_be_any(text: str) -> None:
    from django.utils import timezone

    for zone in (datetime.timezone(datetime.timedelta(hours=hours)) for hours in (-12, 12)):
        with timezone.override(zone):
            assert wording.moment(text)


def test_files_of_versions_are_compared(
    site: Site, tmp_path: pathlib.Path, ext4_disk: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    tree = make_tree(tmp_path)
    before = add(site, make_ext4(tree, tmp_path / "one"), 1)
    (tree / "etc" / "hostname").write_text("web-2 since today\n")
    (tree / "many" / "file03").unlink()
    (tree / "new").mkdir()
    after = add(site, make_ext4(tree, tmp_path / "two"), 2)
    against = before.split("/")[-2]
    choice = page(site, f"{after}compare/")
    assert f'formaction="{after}compare/files/"' in choice
    extents = page(site, f"{after}compare/", against=against)
    url = f"{after}compare/files/?against={against}"
    assert url in links(extents)
    site.take_calls()
    text = text_of(site.browser.get(url))
    assert len(site.take_calls()) == 2
    rows = [re.findall(r"<td>(.*?)</td>", row) for row in re.findall(r"<tr><td>.*</tr>", text)]
    plain = [[re.sub(r"<[^>]*>", "", cell) for cell in row] for row in rows]
    assert [row[:2] for row in plain] == [
        ["Added", "/new"],
        ["Changed", "/etc/hostname"],
        ["Removed", "/many/file03"],
    ]
    assert "size" in plain[1][4]
    assert f"{before}files/?path=%2Fmany%2Ffile03" in links(text), "who has it still"
    assert f"{after}compare/?against={against}" in links(text)
    monkeypatch.setattr(files, "CHANGES_MAX", 2)
    text = text_of(site.browser.get(url))
    (onward,) = re.findall(r'rel="next" href="([^"]*)"', text)
    text = text_of(site.browser.get(html.unescape(onward)))
    assert "/many/file03" in text
    assert "/etc/hostname" not in text
    same = page(site, f"{after}compare/files/", against=against, path="/etc/deep")
    assert "No file differs." in same


def test_refused_comparison_can_be_changed(site: Site, version: str) -> None:
    against = version.split("/")[-2]
    text = page(site, f"{version}compare/files/", against=against, partition="7")
    assert "data-acstor-failure" in text
    assert 'name="partition"' in text
    assert 'value="7"' in text
