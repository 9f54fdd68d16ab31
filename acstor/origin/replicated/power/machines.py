"""Machines of members: what each takes of power, and who switches it, from a file in TOML.

The page is ``doc/source/reference/formats/power-members.rst``.
"""

import dataclasses
import tomllib
import urllib.parse
from collections.abc import Mapping
from typing import Any

from acstor import exception, untrusted_json
from acstor.origin.http.credentials import LOOPBACK
from acstor.origin.replicated.members import check_name
from acstor.origin.replicated.power.drivers.base import PowerDriver
from acstor.origin.replicated.power.drivers.command import CommandDriver
from acstor.origin.replicated.power.drivers.memory import MemoryDriver
from acstor.origin.replicated.power.drivers.redfish import (
    RESET_TYPES,
    RedfishAddress,
    RedfishDriver,
)

MACHINES_VERSION = 1
"""Version of the file; this build reads this one only."""
FILE_SIZE_MAX = 64 << 10
"""Longest file, bytes."""
WATTS_MAX = 1e6
"""Largest power of a member, watts."""
SECONDS_MAX = 600.0
"""Longest deadline of a call of a driver."""
SECONDS = 30.0
"""Deadline of a call of a driver where the file has none."""
WORDS_MAX = 100
"""Longest argument vector, arguments."""
_COMMON = {"driver", "watts", "deadline"}
_FIELDS = {
    "": set(),
    "fake": set(),
    "command": {"on", "off", "state"},
    "redfish": {"url", "system", "username", "password_file", "ca_file", "off"},
}
"""Fields of a member by its driver, beside those that all have."""


@dataclasses.dataclass(frozen=True, slots=True)
class MachineSettings:
    """One member's machine."""

    watts: float | None
    """Power that it takes while it is on; None: not known."""
    driver: PowerDriver | None
    """None: nobody switches it."""


def load_machines(path: str) -> Mapping[str, MachineSettings]:
    """Return the machines that a file describes, by member.

    :raises ConfigurationError: when it cannot be read or is malformed.
    """
    try:
        with open(path, "rb") as file:
            content = file.read(FILE_SIZE_MAX + 1)
    except OSError as error:
        raise exception.ConfigurationError(
            f"the file of members' power {path}: {error.strerror}",
            hint="correct [power] members_file",
        ) from error
    try:
        if len(content) > FILE_SIZE_MAX:
            raise ValueError(f"it is longer than {FILE_SIZE_MAX} bytes")
        return parse_machines(tomllib.loads(content.decode()))
    except ValueError as error:  # of TOML and of UTF-8, too
        raise exception.ConfigurationError(
            f"the file of members' power {path}: {error}", hint="correct the file"
        ) from error


def parse_machines(fields: Mapping[str, Any]) -> Mapping[str, MachineSettings]:
    """Return the machines that the fields of a file describe.

    :raises ValueError: when something is malformed.
    """
    if fields.get("version") != MACHINES_VERSION:
        raise ValueError(f"version = {fields.get('version')!r:.20}, not {MACHINES_VERSION}")
    unknown = fields.keys() - {"version", "members"}
    members = fields.get("members", {})
    if unknown or not isinstance(members, dict):
        raise ValueError(f"unknown: {', '.join(sorted(unknown))}; there is version and members")
    return {check_name(name): _machine(name, one) for name, one in members.items()}


def _machine(name: str, fields: Any) -> MachineSettings:
    if not isinstance(fields, dict):
        raise ValueError(f"members.{name} is no table")
    kind = fields.get("driver", "")
    if kind not in _FIELDS:
        raise ValueError(f"members.{name}: driver is {' or '.join(filter(None, _FIELDS))}")
    unknown = fields.keys() - _COMMON - _FIELDS[kind]
    if unknown:
        raise ValueError(f"members.{name}: unknown: {', '.join(sorted(unknown))}")
    watts = fields.get("watts")
    if watts is not None:
        watts = untrusted_json.number(watts, f"members.{name}: watts", 0.0, WATTS_MAX)
    seconds = untrusted_json.number(
        fields.get("deadline", SECONDS), f"members.{name}: deadline", 0.1, SECONDS_MAX
    )
    return MachineSettings(watts, _driver(name, kind, fields, seconds))


def _driver(name: str, kind: str, fields: Mapping[str, Any], seconds: float) -> PowerDriver | None:
    if kind == "command":
        on, off, state = (_vector(name, one, fields.get(one)) for one in ("on", "off", "state"))
        return CommandDriver(on, off, state, seconds)
    if kind == "redfish":
        texts = {field: _text(name, field, fields.get(field, "")) for field in _FIELDS["redfish"]}
        texts["off"] = texts["off"] or RESET_TYPES[0]
        address = RedfishAddress(**texts)
        _check_address(name, address)
        return RedfishDriver(address, seconds)
    return MemoryDriver() if kind == "fake" else None


def _check_address(name: str, address: RedfishAddress) -> None:
    parts = urllib.parse.urlsplit(address.url)
    if parts.scheme not in {"http", "https"} or not parts.hostname or not address.system:
        raise ValueError(f"members.{name}: redfish needs url (https) and system")
    if parts.username is not None or parts.password is not None:
        raise ValueError(f"members.{name}: url has a password in it; use password_file")
    if bool(address.username) != bool(address.password_file):
        raise ValueError(f"members.{name}: username and password_file belong together")
    is_near = parts.hostname in LOOPBACK
    if address.username and parts.scheme != "https" and not is_near:
        raise ValueError(f"members.{name}: the password would go over the network in the clear")
    if address.off not in RESET_TYPES:
        raise ValueError(f"members.{name}: off is {' or '.join(RESET_TYPES)}")


def _text(name: str, field: str, value: object) -> str:
    if not isinstance(value, str):
        raise ValueError(f"members.{name}: {field} is no text")
    return value


def _vector(name: str, field: str, value: object) -> tuple[str, ...]:
    is_vector = isinstance(value, list) and all(isinstance(one, str) for one in value)
    if not is_vector or not value or len(value) > WORDS_MAX:  # type: ignore[arg-type]
        raise ValueError(f"members.{name}: {field} is no list of at most {WORDS_MAX} texts")
    if not value[0].startswith("/"):  # type: ignore[index]
        raise ValueError(f"members.{name}: {field} names no program by its whole path")
    return tuple(value)  # type: ignore[arg-type]
