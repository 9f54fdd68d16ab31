"""A member on a machine of the Redfish emulator sleeps for a budget in a file, and wakes again."""

import dataclasses
import pathlib

import pytest

from acstor.conf import loading
from acstor.origin.opening import open_driver
from acstor.origin.posix import PosixOrigin
from acstor.origin.replicated.driver import ReplicatedOrigin
from acstor.origin.replicated.members import MemberAddress
from acstor.origin.replicated.membership import Membership
from acstor.origin.replicated.power.drivers.base import Machine, PowerDriver
from acstor.origin.replicated.power.record import read_power
from acstor.origin.replicated.power.states import PowerState
from acstor.origin.replicated.power.switching import SwitchTimes
from acstor.origin.retrying import RetryingOrigin
from acstor.registrar import member_upkeep
from acstor.registrar.member_power import power_parts
from acstor.registrar.member_upkeep import MemberUpkeep, upkeep_of
from acstor.registrar.metrics import RegistrarMetrics
from acstor.repository.repository import Repository
from testbed.fixtures.conditions import wait_for
from testbed.fixtures.redfish import running_emulator
from tests.unit.repository import images

pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]


TIMES = SwitchTimes(hosts_seconds=0.5)
"""There is no host that would have to hear of it."""


class Deployment:
    """Two directories as members; the second is there while its machine is on."""

    def __init__(self, folder: pathlib.Path, url: str, system: str) -> None:
        self.roots = {name: folder / name for name in ("home", "near")}
        for root in self.roots.values():
            root.mkdir()
        self.hidden = folder / "hidden"
        self.budget = folder / "budget"
        self.budget.write_text("500")
        machines = folder / "power.toml"
        machines.write_text(
            "version = 1\n[members.home]\nwatts = 300\n[members.near]\nwatts = 200\n"
            f'driver = "redfish"\nurl = "{url}"\nsystem = "{system}"\n'
        )
        self.addresses = [MemberAddress(name, f"posix://{at}") for name, at in self.roots.items()]
        members = ",".join(f"{one.name}={one.url}" for one in self.addresses)
        config = folder / "acstor.conf"
        config.write_text(
            f"[DEFAULT]\nstate_path = {folder / 'state'}\n[origin]\nmembers = {members}\n"
            f"[power]\nmembers_file = {machines}\nbudget = file://{self.budget}\n"
            "policy = budget\nmin_on = 0\nmin_off = 0\nmargin = 0\n"
        )
        self.conf = loading.load("test", ["--config-file", str(config)])
        self.stores = {name: PosixOrigin(str(root)) for name, root in self.roots.items()}
        self.repository: Repository = images.open_repository(self.stores["home"])
        images.register(self.repository, 1, images.disk(1, 2, 3))
        Membership("home", self.stores).create()

    def upkeep(self) -> MemberUpkeep:
        """Return the upkeep of a registrar that leads from now on."""
        origin = ReplicatedOrigin(self.addresses, open_driver)
        made = upkeep_of(
            RetryingOrigin(origin, 60.0), 100, "test", RegistrarMetrics(),
            lambda: dataclasses.replace(power_parts(self.conf), times=TIMES),
        )  # fmt: skip
        assert made is not None
        made.start()
        return made

    def state(self) -> PowerState:
        return read_power(self.stores["home"])[0].state("near")

    def follow(self, driver: PowerDriver) -> None:
        """Have the store be there as its machine is."""
        is_on = driver.state() is not Machine.OFF
        if is_on and self.hidden.exists():
            self.hidden.rename(self.roots["near"])
        elif not is_on and self.roots["near"].exists():
            self.roots["near"].rename(self.hidden)

    def reach(self, state: PowerState, driver: PowerDriver) -> None:
        def is_there() -> bool:
            self.follow(driver)
            return self.state() is state

        wait_for(f"near is {state}", is_there, timeout=150)


def test_member_sleeps_and_wakes_by_its_management_controller(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(member_upkeep, "PERIOD_SECONDS", 0.2)
    monkeypatch.setattr(member_upkeep, "UNDER_WAY_SECONDS", 0.2)
    with running_emulator(tmp_path) as emulator:
        deployment = Deployment(tmp_path, emulator.url, emulator.system)
        driver = power_parts(deployment.conf).machines["near"].driver
        assert driver is not None
        driver.switch_on()
        wait_for("the machine is on", lambda: driver.state() is Machine.ON)
        upkeep = deployment.upkeep()
        near = deployment.stores["near"]
        wait_for("near is filled", lambda: set(near.list("packs/")) != set())
        deployment.budget.write_text("400")
        deployment.reach(PowerState.OFF, driver)
        assert driver.state() is Machine.OFF
        deployment.follow(driver)
        assert not deployment.roots["near"].exists()
        upkeep.stop(60)

        images.register(deployment.repository, 2, images.disk(4, 5, 6))
        upkeep = deployment.upkeep()
        deployment.budget.write_text("500")
        deployment.reach(PowerState.ACTIVE, driver)
        home = deployment.stores["home"]
        assert set(near.list("packs/")) == set(home.list("packs/"))
        upkeep.stop(60)
        assert upkeep.problem is None
