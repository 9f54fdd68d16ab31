"""One suite that every driver of a machine passes, see power/drivers/base.py.

Redfish is that of the emulator of sushy-tools, with machines that are nowhere (``--fake``).
"""

import pathlib
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator

import pytest

from acstor import exception
from acstor.origin.replicated.power.drivers.base import Machine, PowerDriver
from acstor.origin.replicated.power.drivers.command import CommandDriver
from acstor.origin.replicated.power.drivers.faulty import FaultyDriver, Misbehaviour
from acstor.origin.replicated.power.drivers.memory import MemoryDriver
from acstor.origin.replicated.power.drivers.redfish import (
    RESET_TYPES,
    RedfishAddress,
    RedfishDriver,
)
from testbed.fixtures.conditions import PATIENCE, wait_for
from testbed.fixtures.redfish import Emulator, running_emulator

SECONDS = 60.0
HASTY_SECONDS = 0.3
ANSWERS_SECONDS = 20.0 * PATIENCE
"""Longest time of a call whose deadline is hasty, however busy the machine is."""


@pytest.fixture(scope="module")
def emulator(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Emulator]:
    with running_emulator(tmp_path_factory.mktemp("emulator")) as found:
        yield found


def _memory(folder: pathlib.Path, emulator: Callable[[], Emulator]) -> PowerDriver:
    return MemoryDriver()


def _faulty(folder: pathlib.Path, emulator: Callable[[], Emulator]) -> PowerDriver:
    return FaultyDriver(MemoryDriver())


def _command(folder: pathlib.Path, emulator: Callable[[], Emulator]) -> PowerDriver:
    state = folder / "state"
    state.write_text("Chassis Power is On\n")
    copies = {"on": folder / "on", "off": folder / "off"}
    for name, path in copies.items():
        path.write_text(f"Chassis Power is {name.title()}\n")
    return CommandDriver(
        ["/bin/cp", str(copies["on"]), str(state)],
        ["/bin/cp", str(copies["off"]), str(state)],
        ["/bin/cat", str(state)],
        SECONDS,
    )


def _redfish(off: str) -> Callable[[pathlib.Path, Callable[[], Emulator]], PowerDriver]:
    def made(folder: pathlib.Path, emulator: Callable[[], Emulator]) -> PowerDriver:
        found = emulator()
        driver = RedfishDriver(RedfishAddress(found.url, found.system, off=off), SECONDS)
        driver.switch_on()
        wait_for("it is on", lambda: driver.state() is Machine.ON)
        return driver

    return made


FACTORIES = {
    "memory": _memory, "faulty": _faulty, "command": _command,
    **{f"redfish {off}": _redfish(off) for off in RESET_TYPES},
}  # fmt: skip


@pytest.fixture(params=sorted(FACTORIES))
def driver(request: pytest.FixtureRequest, tmp_path: pathlib.Path) -> PowerDriver:
    return FACTORIES[request.param](tmp_path, lambda: request.getfixturevalue("emulator"))


def test_machine_is_switched_off_and_on(driver: PowerDriver) -> None:
    assert driver.state() is Machine.ON
    driver.switch_off()
    wait_for("it is off", lambda: driver.state() is Machine.OFF)
    driver.switch_on()
    wait_for("it is on", lambda: driver.state() is Machine.ON)


def test_switching_may_be_repeated(driver: PowerDriver) -> None:
    driver.switch_on()
    driver.switch_on()
    assert driver.state() is Machine.ON
    driver.switch_off()
    wait_for("it is off", lambda: driver.state() is Machine.OFF)
    driver.switch_off()
    assert driver.state() is Machine.OFF


def test_slow_machine_changes_for_a_while() -> None:
    driver = MemoryDriver(is_slow=True)
    driver.switch_off()
    assert driver.state() is Machine.CHANGING
    driver.finish()
    assert driver.state() is Machine.OFF


def test_faults_of_the_faulty_driver() -> None:
    inner = MemoryDriver()
    driver = FaultyDriver(inner, Misbehaviour.LOST_ANSWER)
    with pytest.raises(exception.DeadlineError):
        driver.switch_off()
    assert driver.state() is Machine.OFF
    driver.fault = Misbehaviour.DEAF
    driver.switch_on()
    assert driver.state() is Machine.OFF
    driver.fault = Misbehaviour.UNREACHABLE
    for call in (driver.state, driver.switch_on, driver.switch_off):
        with pytest.raises(exception.UnavailableError):
            call()
    assert driver.attempts == 4


def test_controller_that_is_not_there_or_hangs_is_unavailable() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        address = RedfishAddress(f"http://127.0.0.1:{port}", "/redfish/v1/Systems/1")
        begun = time.monotonic()
        with pytest.raises(exception.DeadlineError):
            RedfishDriver(address, HASTY_SECONDS).state()
        assert time.monotonic() - begun < ANSWERS_SECONDS
    with pytest.raises(exception.UnavailableError):
        RedfishDriver(address, SECONDS).state()


def test_machine_that_the_controller_does_not_know_is_unavailable(emulator: Emulator) -> None:
    driver = RedfishDriver(RedfishAddress(emulator.url, "/redfish/v1/Systems/none"), SECONDS)
    for call in (driver.state, driver.switch_on, driver.switch_off):
        with pytest.raises(exception.UnavailableError, match="Systems/none"):
            call()


def test_password_that_others_may_read_is_not_sent(
    emulator: Emulator, tmp_path: pathlib.Path
) -> None:
    path = tmp_path / "password"
    path.write_text("s3cret")
    path.chmod(0o644)
    address = RedfishAddress(emulator.url, emulator.system, "acstor", str(path))
    with pytest.raises(exception.ConfigurationError, match="others may read it"):
        RedfishDriver(address, SECONDS).state()
    path.chmod(0o600)
    assert RedfishDriver(address, SECONDS).state() in set(Machine)


@pytest.mark.parametrize(
    ("state", "expected"),
    [
        (["/bin/echo", "Chassis Power is Off"], Machine.OFF),
        (["/bin/echo", "changing"], Machine.CHANGING),
        (["/bin/echo", "ON"], Machine.ON),
    ],
)
def test_last_word_of_a_program_is_the_state(state: list[str], expected: Machine) -> None:
    assert CommandDriver(state, state, state, SECONDS).state() is expected


@pytest.mark.parametrize(
    "state", [["/bin/echo"], ["/bin/echo", "unknown"], ["/bin/false"], ["/nowhere/ipmitool"]]
)
def test_program_that_fails_or_says_nothing_is_unavailable(state: list[str]) -> None:
    with pytest.raises(exception.UnavailableError):
        CommandDriver(state, state, state, SECONDS).state()


def test_arguments_go_through_no_shell(tmp_path: pathlib.Path) -> None:
    victim = tmp_path / "victim"
    vector = ["/bin/echo", f"$(touch {victim});on"]
    with pytest.raises(exception.UnavailableError):
        CommandDriver(vector, vector, vector, SECONDS).state()
    assert not victim.exists()


def test_program_that_hangs_is_killed_with_what_it_has_started(tmp_path: pathlib.Path) -> None:
    mark = tmp_path / "mark"
    program = f"import os,time; os.fork(); open({str(mark)!r}, 'a').write('x'); time.sleep(600)"
    vector = [sys.executable, "-c", program]
    begun = time.monotonic()
    with pytest.raises(exception.DeadlineError, match="did not end"):
        CommandDriver(vector, vector, vector, 3.0).switch_on()
    assert time.monotonic() - begun < ANSWERS_SECONDS

    def is_gone() -> bool:
        found = subprocess.run(["pgrep", "-f", str(mark)], capture_output=True, check=False)
        return found.stdout == b""

    wait_for("what was killed is gone", is_gone)
