"""'acstor origin sleep', 'wake' and 'power' on directories, and the registrar's part."""

import json
import pathlib

import pytest

from acstor.conf import loading
from acstor.origin.opening import open_driver
from acstor.origin.replicated.driver import ReplicatedOrigin
from acstor.origin.replicated.power.power_keeping import PowerKeeping
from acstor.origin.replicated.power.record import Desired, PowerEntry, read_power, swap_power
from acstor.origin.replicated.power.states import PowerState
from acstor.origin.replicated.power.switching import PowerSwitching
from acstor.origin.replicated.sync.keeping import MemberKeeping
from acstor.registrar.member_power import power_parts
from acstor.registrar.member_upkeep import check_readable
from tests.unit.cli.test_origin import Deployment

MACHINES = """
version = 1
[members.home]
watts = 300
[members.near]
watts = 200
driver = "fake"
[members.far]
watts = 100
driver = "fake"
"""


class PoweredDeployment(Deployment):
    """Three members, two of which may sleep; the budget is in a file."""

    def __init__(self, folder: pathlib.Path) -> None:
        super().__init__(folder)
        self.options = "policy = budget\nmin_on = 0\nmin_off = 0\n"
        self.budget = folder / "budget"
        self.budget.write_text("600\n")
        self.machines = folder / "power.toml"
        self.machines.write_text(MACHINES)
        self.configure("home", "near", "far")
        self.run("origin", "create")
        self.lead()

    def configure(self, *names: str) -> None:
        """Have the configuration name these members, and their power."""
        super().configure(*names)
        if len(names) < 3:
            return
        with self.config.open("a") as file:
            file.write(
                f"[power]\nmembers_file = {self.machines}\nbudget = file://{self.budget}\n"
                f"journal_path = {self.folder / 'power.jsonl'}\n{self.options}"
            )

    def power(self) -> dict[str, object]:
        found: dict[str, object] = json.loads(self.run("origin", "power", "-f", "json"))
        return found

    def rows(self, *arguments: str) -> dict[str, dict[str, object]]:
        """Return the rows of an explanation by the members' names."""
        text = self.run("origin", "power", *arguments, "-f", "json")
        rows = json.loads(text[text.index("[") : text.rindex("]") + 1])
        return {row["Name"]: row for row in rows}

    def entry(self, name: str) -> PowerEntry:
        return read_power(open_driver(self.addresses[0].url))[0].entry(name)

    def put(self, name: str, entry: PowerEntry) -> None:
        home = open_driver(self.addresses[0].url)
        record, token = read_power(home)
        swap_power(home, token, record.with_entry(name, entry))

    def lead_power(self, passes: int = 1) -> None:
        """Make passes of the registrar that leads, with what the configuration says."""
        parts = power_parts(loading.load("test", ["--config-file", str(self.config)]))
        origin = ReplicatedOrigin(self.addresses, open_driver)
        keeping = MemberKeeping(origin, check_readable, 1 << 30, "registrar")
        switching = PowerSwitching(origin, keeping, {}, "registrar", times=parts.times)
        power = PowerKeeping(
            origin, switching, parts.machines, parts.settings, parts.policy, parts.budget(),
            lambda: keeping.away, journal=parts.journal,
        )  # fmt: skip
        keeping.power_status = power.status
        for _ in range(passes):
            keeping.run()
            power.run()
        origin.close()


@pytest.fixture
def deployment(tmp_path: pathlib.Path) -> PoweredDeployment:
    return PoweredDeployment(tmp_path)


def test_member_is_sent_to_sleep_and_woken(deployment: PoweredDeployment) -> None:
    assert "shall sleep" in deployment.run("origin", "sleep", "near")
    deployment.lead_power()
    assert deployment.entry("near").state is PowerState.QUIESCING
    deployment.lead_power(2)
    assert deployment.entry("near").state is PowerState.SWITCHING_OFF
    assert deployment.list()["near"]["State"] == "active, switching-off"
    assert "shall be on" in deployment.run("origin", "wake", "near")
    deployment.lead_power(4)
    entry = deployment.entry("near")
    assert (entry.state, entry.desired) == (PowerState.ACTIVE, Desired.AWAKE)
    assert "as the policy decides" in deployment.run("origin", "wake", "near", "--auto")
    assert deployment.entry("near").desired is None
    assert deployment.list()["near"]["State"] == "active"


def test_power_is_shown(deployment: PoweredDeployment) -> None:
    shown = deployment.power()
    assert shown["reason"] == "no registrar has decided anything yet"
    deployment.lead_power(2)
    shown = deployment.power()
    assert (shown["policy"], shown["budget"], shown["unit"]) == ("budget", 600.0, "watts")
    assert shown["source"] == f"file {deployment.budget}"
    assert shown["watts_on"] == 600.0
    members = shown["members"]
    assert isinstance(members, dict)
    assert members["near"]["is_switchable"]
    assert not members["home"]["is_switchable"]
    deployment.put("near", PowerEntry(PowerState.OFF, 1.0))
    assert deployment.power()["watts_on"] == 400.0


def test_home_and_minimum_stay_on(deployment: PoweredDeployment) -> None:
    for command in ("sleep", "wake"):
        status, text = deployment("origin", command, "home")
        assert status
        assert "the home is always on" in text
    assert "no member other" in deployment("origin", "sleep", "other")[1]
    deployment.options += "members_min = 2\n"
    deployment.configure("home", "near", "far")
    deployment.run("origin", "sleep", "near")
    status, text = deployment("origin", "sleep", "far")
    assert status
    assert "2 always are" in text
    deployment.machines.write_text(MACHINES.replace('watts = 200\ndriver = "fake"', "watts = 200"))
    assert "has no driver" in deployment("origin", "sleep", "near")[1]


def test_operators_word_clears_an_alarm_and_begins_anew(deployment: PoweredDeployment) -> None:
    deployment.put("near", PowerEntry(PowerState.STUCK, 1.0, alarm="it does not answer"))
    deployment.run("origin", "wake", "near")
    entry = deployment.entry("near")
    assert (entry.state, entry.alarm) == (PowerState.WAKING, "")
    deployment.put("near", PowerEntry(PowerState.ACTIVE, 1.0, alarm="it was not off"))
    deployment.run("origin", "sleep", "near")
    assert deployment.entry("near").alarm == ""


def test_decisions_are_explained_tried_and_computed_again(deployment: PoweredDeployment) -> None:
    deployment.lead_power()
    assert {row["Shall Be"] for row in deployment.rows("explain").values()} == {"on"}
    tried = deployment.rows("dry-run", "--budget", "450")
    assert (tried["near"]["Shall Be"], tried["near"]["Now"]) == ("off", "sleep")
    assert tried["home"]["Why"] == "home"
    assert deployment.entry("near").state is PowerState.ACTIVE, "nothing is changed"
    tried = deployment.rows("dry-run", "--budget", "450", "--members-min", "3")
    assert tried["near"]["Why"] == "minimum"
    tried = deployment.rows("dry-run", "--policy", "none")
    assert tried["near"]["Now"] == ""
    deployment.budget.write_text("450")
    deployment.lead_power()
    assert deployment.entry("near").state is PowerState.QUIESCING
    journal = deployment.folder / "power.jsonl"
    assert deployment.rows("explain", "--journal", str(journal))["near"]["Now"] == "sleep"
    status, text = deployment("origin", "power", "replay", str(journal), "-f", "json")
    assert status == 0
    assert json.loads(text)[0]["Now"] == "same"
    journal.write_text(journal.read_text().replace('"near", "sleep"', '"far", "sleep"'))
    status, text = deployment("origin", "power", "replay", str(journal))
    assert status == 1
    assert "change" in text


def test_budget_that_cannot_be_read_is_told(deployment: PoweredDeployment) -> None:
    deployment.budget.write_text("much")
    deployment.lead_power(2)
    shown = deployment.power()
    assert shown["budget"] is None
    assert "which is no budget" in str(shown["problem"])
    assert shown["reason"] == "the budget is unknown, so all are to be on"
