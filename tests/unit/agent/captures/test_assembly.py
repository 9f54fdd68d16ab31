"""Captures as the configuration has them, and what their metrics tell."""

import dataclasses
import pathlib

import pytest
from oslo_config import cfg

from acstor import exception
from acstor.agent.captures import assembly, child
from acstor.agent.captures.assembly import make_scratch
from acstor.agent.metrics import AgentMetrics
from acstor.conf import loading
from acstor.versions.host_capture.states import CaptureState
from tests.unit.agent.captures.test_formats import RECORD


@pytest.fixture
def conf(tmp_path: pathlib.Path) -> cfg.ConfigOpts:
    path = tmp_path / "acstor.conf"
    path.write_text(
        f"[DEFAULT]\nstate_path = {tmp_path}\n"
        f"[captures]\nenabled = true\nscratch_path = {tmp_path}/scratch\nqemu_user =\n"
    )
    return loading.load("test", ["--config-file", str(path)])


def test_captures_are_off_by_default(tmp_path: pathlib.Path) -> None:
    (tmp_path / "acstor.conf").write_text("")
    conf = loading.load("test", ["--config-file", str(tmp_path / "acstor.conf")])
    assert assembly.build(conf, lambda records: None, lambda outcome: None) is None


def test_host_without_libvirt_captures_volumes_and_says_why(
    conf: cfg.ConfigOpts, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail() -> None:
        raise exception.UnsupportedError("no binding", hint="install it")

    monkeypatch.setattr("acstor.agent.hypervisor.libvirt_driver.import_binding", fail)
    found = assembly.build(conf, lambda records: None, lambda outcome: None)
    assert found is not None
    assert found._hypervisor is None
    assert "no binding" in found._no_hypervisor
    assert pathlib.Path(conf.captures.scratch_path).is_dir()


def test_user_of_qemu_that_is_not_there_is_told(tmp_path: pathlib.Path) -> None:
    make_scratch(str(tmp_path / "scratch"), "")
    if (tmp_path / "scratch").stat().st_uid == 0:
        with pytest.raises(exception.ConfigurationError, match="no user"):
            make_scratch(str(tmp_path / "scratch"), "nobody-of-that-name")


def test_unit_that_allows_no_priorities_is_no_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(increment: int) -> int:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr("os.nice", refuse)
    monkeypatch.setattr("platform.machine", lambda: "another")
    child.yield_to_others(10)


def test_settings_follow_the_configuration(conf: cfg.ConfigOpts) -> None:
    found = assembly.settings_of(conf)
    assert (found.jobs, found.capacity, found.bounds.seconds) == (2, 20 << 30, 120.0)
    order = found.read_order(RECORD.request, "/folder", 4 << 30, None)
    assert order.limits.room_bytes == 8 << 30
    assert order.limits.read_rate == 100 << 20


def test_metrics_tell_of_what_would_be_lost() -> None:
    metrics = AgentMetrics()
    done = dataclasses.replace(RECORD, state=CaptureState.COMMITTED)
    frozen = dataclasses.replace(RECORD, state=CaptureState.READING, frozen="a guest")
    metrics.set_captures([RECORD, done, frozen])
    text = metrics.text()
    assert 'acstor_agent_captures{state="held"} 1.0' in text
    assert 'acstor_agent_captures{state="queued"} 0.0' in text
    assert "acstor_agent_capture_held_bytes 4096.0" in text
    assert "acstor_agent_capture_frozen_guests 1.0" in text
    metrics.set_captures([done])
    assert "acstor_agent_capture_age_seconds 0.0" in metrics.text()
