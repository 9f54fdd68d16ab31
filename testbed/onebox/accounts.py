"""Users and groups of the hosts: the machine's, and ACStor's as its installation guide makes them.

Every host has the same ones, in files of its own below ``/etc``: the machine's stay as they are.
"""

import dataclasses
import os
import pathlib
import tempfile

from testbed import processes
from testbed.onebox.configuration import acstor
from testbed.onebox.directory import OneBoxDirectory
from testbed.onebox.environment import CHECKOUT

#: What the guide has installed in ``/etc/sysusers.d``.
SYSUSERS = CHECKOUT / "etc" / "sysusers.d" / "acstor.conf"
_FILES = ("passwd", "group")
_OWN_PREFIX = "acstor"


@dataclasses.dataclass(frozen=True)
class Account:
    """Numbers of a user and of his group."""

    uid: int
    gid: int

    def own(self, path: pathlib.Path) -> None:
        """Give him a file or directory, without what is in it.

        :raises OSError: when this process is not root.
        """
        os.chown(path, self.uid, self.gid)


def texts(directory: OneBoxDirectory, host: str) -> dict[str, str]:
    """Return the account files of the hosts by name.

    :param host: one whose files of before, where it has them, say which numbers ours keep.
    :raises ToolFailedError: when ``systemd-sysusers`` fails.
    """
    with tempfile.TemporaryDirectory() as name:
        etc = pathlib.Path(name) / "etc"
        etc.mkdir()
        for file in _FILES:
            lines = (pathlib.Path("/etc") / file).read_text().splitlines(keepends=True)
            (etc / file).write_text("".join([*lines, *_kept(directory.etc(host) / file, lines)]))
        rules = pathlib.Path(name) / "acstor.conf"
        members = [f"m {user} {group}\n" for user, group in acstor.MEMBERS]
        rules.write_text(SYSUSERS.read_text() + "".join(members))
        sysusers = processes.require("systemd-sysusers")
        processes.run([sysusers, f"--root={name}", str(rules)])
        return {file: (etc / file).read_text() for file in _FILES}


def _kept(before: pathlib.Path, lines: list[str]) -> list[str]:
    """Return our lines of a file of before, but for those that the machine has by now."""
    if not before.exists():
        return []
    known = {line.partition(":")[0] for line in lines}
    return [
        line
        for line in before.read_text().splitlines(keepends=True)
        if line.startswith(_OWN_PREFIX) and line.partition(":")[0] not in known
    ]


def user_of(directory: OneBoxDirectory, host: str) -> Account:
    """Return ACStor's user on a host whose account files are written."""
    lines = (directory.etc(host) / "passwd").read_text().splitlines()
    fields = next(line.split(":") for line in lines if line.startswith(f"{acstor.USER}:"))
    return Account(int(fields[2]), int(fields[3]))
