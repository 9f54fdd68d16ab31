"""The clients of Ceph that the guide for operators has them make, with their capabilities."""

import pathlib
import re

PAGE = pathlib.Path(__file__).resolve().parents[1] / "doc" / "source" / "admin" / "ceph.rst"
CONTROLLER, HOST, READER = "acstor", "acstor-host", "acstor-reader"
_COMMAND = re.compile(
    r"# ceph auth get-or-create client\.(?P<name>\S+) mon '(?P<mon>[^']+)' \\\s+"
    r"osd '(?P<osd>[^']+)'"
)


def capabilities() -> dict[str, dict[str, str]]:
    """Return the capabilities of each client by the kind of daemon, in the guide's namespace."""
    return {
        found["name"]: {"mon": found["mon"], "osd": " ".join(found["osd"].split())}
        for found in _COMMAND.finditer(PAGE.read_text())
    }
