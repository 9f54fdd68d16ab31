import grp
import logging
import os
import pathlib
import types

import pytest
from oslo_config import cfg

from acstor import exception, native
from acstor.conf import loading
from acstor.dataplane import groups, origin_source, settings
from acstor.dataplane.attachments import Attachments
from acstor.dataplane.states import (
    TRANSITIONS,
    ProcessEvent,
    ProcessState,
    next_state,
)
from acstor.dataplane.volumes.logs import drain
from acstor.origin import opening
from acstor.origin.rados import native_reader
from acstor.origin.rados.connection import Connection
from acstor.states import IllegalTransitionError


def test_every_pair_of_state_and_event_is_listed_or_refused() -> None:
    for state in ProcessState:
        for event in ProcessEvent:
            if (state, event) in TRANSITIONS:
                assert next_state(state, event) is TRANSITIONS[state, event]
            else:
                with pytest.raises(IllegalTransitionError):
                    next_state(state, event)


def test_log_lines_keep_level_and_target(caplog: pytest.LogCaptureFixture) -> None:
    lines = ["WARN acstor_peer stalled for 3 s", "INFO acstor_store", "x"]
    with caplog.at_level(logging.DEBUG):
        assert drain.drain(lambda lines_max: lines[:lines_max], 2) == 2
    assert [(r.name, r.levelno, r.message) for r in caplog.records] == [
        ("acstor_peer", logging.WARNING, "stalled for 3 s"),
        ("acstor_store", logging.INFO, "INFO acstor_store"),
    ]


def test_kept_threshold_is_the_golden_file_or_nothing(tmp_path: pathlib.Path) -> None:
    attachments = Attachments(str(tmp_path / "d"))
    assert attachments.distance_threshold() is None
    attachments.keep_distance_threshold(5)
    kept = tmp_path / "d" / "placement.json"
    golden = pathlib.Path(__file__).parents[2] / "golden" / "dataplane-placement-v1.json"
    assert kept.read_bytes() == golden.read_bytes(), "another layout is another FORMAT_VERSION"
    assert attachments.distance_threshold() == 5
    attachments.keep_distance_threshold(None)
    assert attachments.distance_threshold() is None
    for damaged in ("", "[]", '{"version": 1}', '{"version": 2, "distance_threshold": 5}'):
        kept.write_text(damaged)
        assert attachments.distance_threshold() is None
    for hops in ("true", "-1", "256", "1.0", '"5"'):
        kept.write_text(f'{{"version": 1, "distance_threshold": {hops}}}')
        assert attachments.distance_threshold() is None


def test_chunk_size_is_asked_for_once(tmp_path: pathlib.Path) -> None:
    attachments = Attachments(str(tmp_path / "d"))
    assert origin_source.known_chunk_size(attachments, lambda: 65536) == 65536

    def unavailable() -> int:
        raise exception.UnavailableError("origin down")

    assert origin_source.known_chunk_size(attachments, unavailable) == 65536
    with pytest.raises(exception.UnavailableError):
        origin_source.known_chunk_size(Attachments(str(tmp_path / "e")), unavailable)


@pytest.mark.parametrize(
    "content", ["", "{", "[]", '{"version":2,"chunk_size":1}', '{"version":1}']
)
def test_unreadable_chunk_size_is_asked_for_anew(tmp_path: pathlib.Path, content: str) -> None:
    attachments = Attachments(str(tmp_path))
    (tmp_path / "repository.json").write_text(content)
    assert attachments.chunk_size() is None


def test_leftovers_of_a_kill_are_removed(tmp_path: pathlib.Path) -> None:
    Attachments(str(tmp_path))
    (tmp_path / "arriving-x").write_text("half")
    Attachments(str(tmp_path))
    assert [path.name for path in tmp_path.iterdir()] == ["images"]


@pytest.mark.parametrize("disk_id", ["..", "a/b", "6F1C8A52-0A5E-4D27-9A52-B3AD2A2C91F0", ""])
def test_id_that_is_no_uuid_names_no_file(tmp_path: pathlib.Path, disk_id: str) -> None:
    with pytest.raises(exception.InvalidError):
        Attachments(str(tmp_path)).forget_image(disk_id)


def test_posix_origin_is_read_natively_even_when_it_is_not_there(
    conf: cfg.ConfigOpts, tmp_path: pathlib.Path
) -> None:
    source = origin_source.open_source(conf, Attachments(str(tmp_path / "d")))
    assert source.reader is None
    assert source.posix_root is not None
    assert source.posix_root.endswith("/origin")


class NativeReader:
    """Stands in the place of a native reader."""

    is_closed = False

    def __init__(self, **settings: object) -> None:
        self.settings = settings

    def close(self) -> None:
        """Note the call."""
        self.is_closed = True


def test_origin_in_ceph_is_read_natively_even_when_it_is_not_there(
    conf: cfg.ConfigOpts, monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path
) -> None:
    monkeypatch.setattr(native_reader, "RadosReader", NativeReader)
    monkeypatch.setattr(origin_source, "RadosReader", NativeReader)
    conf.set_override("url", "rados://me@heads?namespace=n&role=host&timeout=4", group="origin")
    source = origin_source.open_source(conf, Attachments(str(tmp_path / "d")))
    assert source.posix_root is None
    reader: object = source.reader
    assert isinstance(reader, NativeReader)
    assert reader.settings == {
        "conf": "/etc/ceph/ceph.conf",
        "client": "me",
        "pool": "heads",
        "stripe_pool": "heads",
        "namespace": "n",
        "timeout_seconds": 4.0,
        "options": Connection("/etc/ceph/ceph.conf", "me", 4.0).options,
    }
    source.close()
    assert reader.is_closed


def test_origin_in_ceph_is_read_through_python_where_librados_cannot_be_loaded(
    conf: cfg.ConfigOpts,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    tmp_path: pathlib.Path,
) -> None:
    def fail(**settings: object) -> NativeReader:
        error = native.DataPlaneError("librados.so.2 cannot be loaded: install librados2")
        error.kind = "unsupported"
        raise error

    def open_origin(url: str, deadline_seconds: float) -> str:
        assert deadline_seconds == conf.readpath.origin_deadline
        return f"Python's reader of {url}"

    monkeypatch.setattr(native_reader, "RadosReader", fail)
    monkeypatch.setattr(opening, "open_origin", open_origin)
    conf.set_override("url", "rados://heads", group="origin")
    source = origin_source.open_source(conf, Attachments(str(tmp_path / "d")))
    reader: object = source.reader
    assert source.posix_root is None
    assert reader == "Python's reader of rados://heads"
    (record,) = caplog.records
    assert "install librados2" in record.getMessage()
    source.close()


@pytest.mark.parametrize(("processors", "threads"), [(1, 2), (12, 3), (64, 8)])
def test_fuse_threads_follow_the_processors_unless_configured(
    conf: cfg.ConfigOpts, monkeypatch: pytest.MonkeyPatch, processors: int, threads: int
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(processors)))

    def told() -> int:
        given = settings.from_conf(conf, version="1", chunk_size=65536, origin_posix_root="/o")
        return given["fuse_threads"]

    assert told() == threads
    conf.set_override("fuse_threads", 5, group="dataplane")
    assert told() == 5


@pytest.mark.parametrize(("memory_gib", "budget_mib"), [(4, 40), (512, 128)])
def test_read_ahead_has_a_hundredth_of_the_memory_at_most(
    conf: cfg.ConfigOpts, monkeypatch: pytest.MonkeyPatch, memory_gib: int, budget_mib: int
) -> None:
    pages = {"SC_PAGE_SIZE": 4096, "SC_PHYS_PAGES": memory_gib << 18}
    monkeypatch.setattr(os, "sysconf", lambda name: pages[name])

    def told() -> int:
        given = settings.from_conf(conf, version="1", chunk_size=65536, origin_posix_root="/o")
        return given["read_ahead_budget_bytes"]

    assert told() >> 20 == budget_mib
    conf.set_override("read_ahead_budget", 0, group="dataplane")
    assert told() == 0


@pytest.fixture
def image_groups(monkeypatch: pytest.MonkeyPatch) -> dict[str, list[str]]:
    """Members of the groups that this host has, of the numbers 900 and up; the test fills it."""
    found: dict[str, list[str]] = {}

    def group(name: str) -> object:
        number = 900 + list(found).index(name) if name in found else None
        if number is None:
            raise KeyError(name)
        return types.SimpleNamespace(gr_gid=number, gr_mem=found[name])

    monkeypatch.setattr(grp, "getgrnam", group)
    return found


def image_group_told(conf: cfg.ConfigOpts) -> int | None:
    told = settings.from_conf(conf, version="1", chunk_size=65536, origin_posix_root="/o")
    return told["image_group"]


def test_images_are_closed_as_soon_as_their_group_has_members(
    conf: cfg.ConfigOpts, image_groups: dict[str, list[str]], caplog: pytest.LogCaptureFixture
) -> None:
    assert image_group_told(conf) is None
    image_groups[groups.IMAGE_GROUP] = []
    assert image_group_told(conf) is None, "an upgrade makes the group before anybody is in it"
    assert caplog.text.count("every user of this host may read all images") == 2
    caplog.clear()
    image_groups[groups.IMAGE_GROUP] = ["nova"]
    assert image_group_told(conf) == 900
    assert not caplog.text


def test_configured_image_group_is_taken_as_it_is(
    conf: cfg.ConfigOpts, image_groups: dict[str, list[str]]
) -> None:
    image_groups.update({groups.IMAGE_GROUP: ["nova"], "readers": []})
    for configured, number in (("readers", 901), ("42430", 42430), ("", None)):
        conf.set_override("image_group", configured, group="dataplane")
        assert image_group_told(conf) == number


@pytest.mark.parametrize("configured", ["nobodys", "4294967295", "-1", "²"])
def test_image_group_that_is_none_is_a_configuration_error(
    conf: cfg.ConfigOpts, image_groups: dict[str, list[str]], configured: str
) -> None:
    conf.set_override("image_group", configured, group="dataplane")
    with pytest.raises(exception.ConfigurationError, match="image_group"):
        image_group_told(conf)


def test_settings_are_complete_and_in_their_units(conf: cfg.ConfigOpts) -> None:
    told = settings.from_conf(conf, version="1", chunk_size=65536, origin_posix_root="/o")
    assert set(told) == set(settings.DataPlaneSettings.__annotations__)
    assert told["store_capacity_bytes"] == 64 << 20
    assert told["read_deadline_ms"] == 30_000
    assert told["hedge_min_ms"] == 20
    assert told["peer_advertise_address"] == "127.0.0.1"


def test_name_without_an_address_is_a_configuration_error(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "acstor.conf"
    path.write_text("[DEFAULT]\nhost = no-such-host.invalid\n")
    conf = loading.load("test", ["--config-file", str(path)])
    with pytest.raises(exception.ConfigurationError, match=r"no-such-host\.invalid") as caught:
        settings.advertised_address(conf)
    assert "advertise_address" in caught.value.hint


@pytest.mark.parametrize(
    ("multicast", "group", "interface", "expected"),
    [
        ("off", "239.255.70.15", None, (None, "192.0.2.1")),
        ("auto", "239.255.70.15", None, ("239.255.70.15:7421", "192.0.2.1")),
        ("auto", "ff02::7070", "198.51.100.7", ("[ff02::7070]:7421", "198.51.100.7")),
    ],
)
def test_multicast_settings(
    conf: cfg.ConfigOpts,
    multicast: str,
    group: str,
    interface: str | None,
    expected: tuple[str | None, str],
) -> None:
    conf.set_override("advertise_address", "192.0.2.1", group="peer")
    conf.set_override("multicast", multicast, group="preload")
    conf.set_override("multicast_group", group, group="preload")
    conf.set_override("multicast_interface", interface, group="preload")
    given = settings.from_conf(conf, version="1", chunk_size=65536, origin_posix_root="/o")
    assert (given["multicast_group"], given["multicast_interface"]) == expected
