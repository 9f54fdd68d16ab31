"""Tables of paths and durabilities."""

import pathlib

import pytest

from acstor import exception
from acstor.repository.volumes.durability import DurabilityClass, Region, format_regions
from acstor.splitting import table
from acstor.splitting.table import PathRule

GOLDEN = pathlib.Path(__file__).parents[2] / "golden" / "split-table-v1.toml"
NONE, BACK = DurabilityClass.NONE, DurabilityClass.WRITE_BACK


def written(folder: pathlib.Path, text: str) -> str:
    path = folder / "table.toml"
    path.write_text(text)
    return str(path)


def test_golden_file_is_read() -> None:
    assert table.load(str(GOLDEN)) == (
        PathRule("/var/cache", NONE),
        PathRule("/var/tmp", NONE, None, 4 << 30, "defaults,nofail,nosuid,nodev"),
        PathRule("/var/lib/docker", BACK, 3600.0, 20 << 30),
        PathRule("/home", DurabilityClass.WRITE_THROUGH),
    )


def test_names_of_partitions_are_regions_of_a_volume_type() -> None:
    rules = table.load(str(GOLDEN))
    assert [rule.partition_name for rule in rules] == [
        "none", "none", "write-back-3600s", "write-through",
    ]  # fmt: skip
    assert rules[2].region == Region(BACK, partition="write-back-3600s", period_s=3600.0)
    assert format_regions((rules[2].region,)) == "write-back-3600s=write-back@3600"


def test_option_is_read() -> None:
    assert table.parse_option("/var/cache=none") == PathRule("/var/cache", NONE)
    assert table.parse_option("/a=b=write-back@0.5,2GiB") == PathRule("/a=b", BACK, 0.5, 2 << 30)


def test_nested_paths_come_after_what_they_are_in() -> None:
    texts = ("/var/cache/apt=none", "/var/cache-2=none", "/var/cache=none", "/home=none")
    found = table.combine(map(table.parse_option, texts))
    assert [rule.path for rule in found] == [
        "/home", "/var/cache", "/var/cache/apt", "/var/cache-2",
    ]  # fmt: skip


@pytest.mark.parametrize(
    "path",
    ["/", "/etc", "/etc/x", "/boot", "/boot/efi", "/usr", "/usr/lib", "/lib64", "/run/x", "/proc"],
)
def test_path_that_the_system_starts_from_is_refused(path: str) -> None:
    with pytest.raises(exception.InvalidError, match="cannot be split"):
        PathRule(path, NONE)


@pytest.mark.parametrize("path", ["/usr/local", "/usr/share/doc", "/bootless", "/etcetera", "/var"])
def test_path_beside_those_is_not(path: str) -> None:
    assert PathRule(path, NONE).path == path


@pytest.mark.parametrize(
    "path", ["", "var", "/var/", "//var", "/var/../etc", "/var/.", "/a\nb", "/\udcff"]
)
def test_path_that_is_not_written_out_is_refused(path: str) -> None:
    with pytest.raises(exception.InvalidError):
        PathRule(path, NONE)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "version = None"),
        ("version = 2\n", "version = 2"),
        ("version = true\n", "version = True"),
        ("version = 1\nmore = 2\n", "unknown field 'more'"),
        ("version = 1\npath = 3\n", "no list"),
        ("version = 1\npath = [3]\n", "no table"),
        ("version = 1\n[[path]]\nclass = 'none'\n", "no field path"),
        ("version = 1\n[[path]]\npath = '/home'\n", "class None"),
        ("version = 1\n[[path]]\npath = '/home'\nclass = 'fast'\n", "class 'fast'"),
        ("version = 1\n[[path]]\npath = '/home'\nclass = 'none'\nperiod = 5\n", "has a period"),
        ("version = 1\n[[path]]\npath = '/home'\nclass = 'none'\nsize = 1\n", "1 bytes"),
        ("version = 1\n[[path]]\npath = '/home'\nclass = 'none'\nsize = 'x'\n", "'x'"),
        ("version = 1\n[[path]]\npath = '/home'\nclass = 'none'\noptions = 'a b'\n", "options"),
        ("version = 1\n[[path]]\npath = '/home'\nclass = 'none'\nsise = 1\n", "'sise'"),
        (f"version = 1\n[[path]]\npath = '/a'\nclass = 'none'\nperiod = 0x{'f' * 300}\n", "large"),
        ("version = [", "no TOML"),
    ],
)
def test_malformed_table_is_refused(tmp_path: pathlib.Path, text: str, said: str) -> None:
    with pytest.raises(exception.InvalidError, match="table ") as caught:
        table.load(written(tmp_path, text))
    assert said in str(caught.value)


def test_table_that_is_no_file_or_no_text_is_refused(tmp_path: pathlib.Path) -> None:
    with pytest.raises(exception.InvalidError, match="No such file"):
        table.load(str(tmp_path / "none"))
    (tmp_path / "bytes").write_bytes(b"\xff\xfe")
    with pytest.raises(exception.InvalidError, match="no TOML"):
        table.load(str(tmp_path / "bytes"))
    (tmp_path / "long").write_bytes(b"#" * (table.FILE_BYTES_MAX + 1))
    with pytest.raises(exception.InvalidError, match="longer"):
        table.load(str(tmp_path / "long"))


def test_path_with_two_durabilities_is_refused() -> None:
    with pytest.raises(exception.InvalidError, match="two durabilities"):
        table.combine([PathRule("/home", NONE), PathRule("/home", BACK)])
    with pytest.raises(exception.InvalidError, match="no path"):
        table.combine([])


@pytest.mark.parametrize("text", ["/home", "/home=none@5", "/home=write-back@x", "/home=none,big"])
def test_malformed_option_is_refused(text: str) -> None:
    with pytest.raises(exception.InvalidError):
        table.parse_option(text)
