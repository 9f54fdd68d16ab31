"""Power of members, as the configuration has it."""

import pathlib

import pytest

from acstor import exception
from acstor.conf import loading
from acstor.origin.replicated.members_status import PowerStatus
from acstor.origin.replicated.power.budgets.base import Unit
from acstor.origin.replicated.power.record import PowerEntry, PowerRecord
from acstor.origin.replicated.power.states import PowerState
from acstor.registrar import metrics
from acstor.registrar.member_power import PowerParts, power_parts
from acstor.registrar.metrics import RegistrarMetrics

MEMBERS = "home=posix:///home,near=posix:///near"
MACHINES = 'version = 1\n[members.home]\nwatts = 3\n[members.near]\nwatts = 2\ndriver = "fake"\n'


def parts(folder: pathlib.Path, machines: str = MACHINES, **options: str) -> PowerParts:
    """Return the parts of a configuration."""
    path = folder / "power.toml"
    path.write_text(machines)
    lines = [f"members_file = {path}", *(f"{name} = {value}" for name, value in options.items())]
    config = folder / "acstor.conf"
    config.write_text(f"[origin]\nmembers = {MEMBERS}\n[power]\n" + "\n".join(lines) + "\n")
    return power_parts(loading.load("test", ["--config-file", str(config)]))


def test_cloud_without_options_has_no_power() -> None:
    found = power_parts(loading.load("test", []))
    assert (found.machines, found.source, found.budget()) == ({}, None, None)


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("file:///run/budget", "file /run/budget"),
        ("https://facility.example/budget?key=s3cret", "https://facility.example/budget"),
        ("prometheus+https://prometheus:9090", "Prometheus at https://prometheus:9090, up"),
    ],
)
def test_source_of_the_budget(url: str, expected: str, tmp_path: pathlib.Path) -> None:
    found = parts(tmp_path, budget=url, budget_query="up", policy="budget", budget_unit="members")
    assert found.source is not None
    assert found.source.description == expected
    assert found.settings.unit is Unit.MEMBERS
    budget = found.budget()
    assert budget is not None
    assert budget.reading().value is None


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"policy": "nonsense"}, "no 'nonsense'"),
        ({"policy": "budget"}, "there is none"),
        ({"budget": "facility.example"}, "no URL"),
        ({"budget": "file://host/path"}, "no URL"),
        ({"budget": "prometheus+file:///x", "budget_query": "up"}, "no URL"),
        ({"budget": "prometheus+https://p"}, "not asked for anything"),
        ({"budget": "http://user:secret@facility"}, "password"),
    ],
)
def test_what_makes_no_sense_is_refused(
    options: dict[str, str], message: str, tmp_path: pathlib.Path
) -> None:
    with pytest.raises(exception.ConfigurationError, match=message):
        parts(tmp_path, **options)


@pytest.mark.parametrize(
    ("machines", "message"),
    [
        (MACHINES + "[members.other]\n", "other, which is not in"),
        (MACHINES.replace("watts = 3", 'driver = "fake"'), "the home, has a driver"),
        (MACHINES.replace("watts = 2\n", ""), "no watts of near"),
    ],
)
def test_machines_fit_to_the_members(machines: str, message: str, tmp_path: pathlib.Path) -> None:
    with pytest.raises(exception.ConfigurationError, match=message):
        parts(tmp_path, machines, budget="file:///run/budget", policy="budget")


def test_metrics_of_power() -> None:
    shown = RegistrarMetrics()
    shown.set_power(None, PowerRecord({}))
    assert f"\n{metrics.MEMBER_POWER_STATE}{{" not in shown.text()
    status = PowerStatus("budget", "memory", "watts", 350.0, 12.0, "", "")
    record = PowerRecord({"near": PowerEntry(PowerState.STUCK, 1.0, alarm="it does not answer")})
    shown.set_power(status, record)
    shown.note_switch("near", "on", False)
    text = shown.text()
    assert f'{metrics.MEMBER_POWER_STATE}{{member="near",state="stuck"}} 1.0' in text
    assert f'{metrics.MEMBER_POWER_STATE}{{member="near",state="off"}} 0.0' in text
    assert f'{metrics.MEMBER_POWER_ALARM}{{member="near"}} 1.0' in text
    assert f'{metrics.POWER_BUDGET}{{unit="watts"}} 350.0' in text
    assert f'{metrics.POWER_BUDGET_AGE_SECONDS}{{unit="watts"}} 12.0' in text
    assert f'{metrics.MEMBER_SWITCHES}_total{{member="near",outcome="failed",to="on"}} 1.0' in text
