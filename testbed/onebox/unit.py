"""Privileges of ACStor's units, applied to processes of hosts that have no systemd.

User, groups, capabilities, limits, directories and what runs before the start are read from the
unit files, so that the one-box follows them. System calls and read-only file systems are not
confined here: ``tests/functional/test_unit_privileges.py`` does that.
"""

import configparser
import functools
import os
import pathlib
import resource
import shlex
import stat
import sys
from collections.abc import Sequence

from testbed.onebox.directory import OneBoxDirectory
from testbed.onebox.environment import CHECKOUT

UNITS = CHECKOUT / "etc" / "systemd"
_ROOT = "root"
#: A unit with one of these gets a mount namespace of its own, in which the host's mounts appear.
_OWN_MOUNTS = ("PrivateMounts", "ProtectSystem", "PrivateTmp")
#: Options of ``prlimit`` by those of units.
_LIMITS = {"LimitNOFILE": "nofile", "LimitMEMLOCK": "memlock"}
_SUFFIXES = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}
#: Where a unit has its directories, by the option.
_DIRECTORIES = {"RuntimeDirectory": "/run", "StateDirectory": "/var/lib"}


def command(
    unit: str, program: Sequence[str], directory: OneBoxDirectory, *drop_ins: str
) -> tuple[str, ...]:
    """Return the command that becomes a program with what its unit leaves it; run it as root.

    :param unit: name of the unit's file without its suffix.
    :param drop_ins: names of files of ours that an operator adds to the unit, without theirs.
    """
    service = _service(unit, drop_ins)
    user = service.get("User", _ROOT)
    lines = [*_directories(service, user), *_before_start(service, directory)]
    kept = [f"exec {shlex.join([*_privileges(service, user), *program])}"]
    if any(option in service for option in _OWN_MOUNTS):
        inside = [*([] if user == _ROOT else _ways()), *kept]
        own = ["unshare", "--mount", "--propagation=slave", "sh", "-ec", "\n".join(inside)]
        lines.append(f"exec {shlex.join(own)}")
    else:
        lines += kept
    return ("/bin/sh", "-ec", "\n".join(lines))


@functools.cache
def _service(unit: str, drop_ins: tuple[str, ...] = ()) -> dict[str, str]:
    """Return the options of a unit; of those that are given several times the last.

    Capabilities that a drop-in names are added to those of the unit.
    """
    options = _options(f"{unit}.service")
    for name in drop_ins:
        added = _options(f"{name}.conf")
        capabilities = added.pop("CapabilityBoundingSet", "")
        options.update(added)
        known = options.get("CapabilityBoundingSet", "")
        options["CapabilityBoundingSet"] = f"{known} {capabilities}".strip()
    return options


def _options(file: str) -> dict[str, str]:
    parsed = configparser.ConfigParser(strict=False, interpolation=None)
    parsed.optionxform = str  # type: ignore[assignment, method-assign]
    parsed.read_string((UNITS / file).read_text())
    return dict(parsed["Service"])


def _privileges(service: dict[str, str], user: str) -> list[str]:
    """Return what a program is run by so that it has no more than its unit leaves it."""
    limits = [
        f"--{name}={_within_own(name, _number(service[option]))}"
        for option, name in _LIMITS.items()
        if option in service
    ]
    names = service.get("CapabilityBoundingSet", "").split()
    kept = ",".join(["-all", *(f"+{name.removeprefix('CAP_').lower()}" for name in names)])
    identity = []
    if user != _ROOT:
        identity = [f"--reuid={user}", f"--regid={service.get('Group', user)}", "--init-groups"]
    elif "Group" in service:
        identity = [f"--regid={service['Group']}", "--clear-groups"]
    return [
        "prlimit", *limits, "setpriv", *identity, "--no-new-privs", "--inh-caps=-all",
        "--ambient-caps=-all", f"--bounding-set={kept}",
    ]  # fmt: skip


def _number(value: str) -> int:
    return int(value.rstrip("KMG")) * _SUFFIXES.get(value[-1], 1)


def _within_own(name: str, wanted: int) -> int:
    """Return a limit, or the one of this process where root may not raise it (containers)."""
    hard = resource.getrlimit(getattr(resource, f"RLIMIT_{name.upper()}"))[1]
    return wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)


def _directories(service: dict[str, str], user: str) -> list[str]:
    """Return the lines of shell that make the unit's directories."""
    return [
        shlex.join([
            "install", "-d", "-m", service.get(f"{option}Mode", "0755"), "-o", user,
            "-g", service.get("Group", user), f"{top}/{name}",
        ])
        for option, top in _DIRECTORIES.items()
        for name in service.get(option, "").split()
    ]  # fmt: skip


def _before_start(service: dict[str, str], directory: OneBoxDirectory) -> list[str]:
    """Return the lines of shell that the unit has run, as root, before each start."""
    line = service.get("ExecStartPre", "")
    if not line:
        return []
    return [line.lstrip("+").replace("$$", "$").replace("/usr/bin/acstor-", _prefix(directory))]


def _prefix(directory: OneBoxDirectory) -> str:
    return directory.program("acstor-")


def _ways() -> list[str]:
    """Return the lines of shell that let every user get to the interpreter and the checkout.

    They may lie where only root gets to, a home directory for instance. In its own mount namespace
    such a process sees nothing but them there.
    """
    wanted: dict[str, list[str]] = {}
    for path in (sys.base_prefix, str(CHECKOUT / "acstor")):
        closed = _closed_above(pathlib.Path(path))
        if closed is not None:
            wanted.setdefault(str(closed), []).append(path)
    lines = []
    for number, (closed_path, paths) in enumerate(wanted.items()):
        kept = f"/run/onebox-ways/{number}"
        lines += [f"mkdir -p {kept}", f"mount --rbind {shlex.quote(closed_path)} {kept}"]
        lines.append(f"mount -t tmpfs -o mode=755 none {shlex.quote(closed_path)}")
        for path in paths:
            below = shlex.quote(os.path.relpath(path, closed_path))
            lines.append(f"mkdir -p {shlex.quote(path)}")
            lines.append(f"mount --bind {kept}/{below} {shlex.quote(path)}")
        lines.append(f"umount -l {kept}")
    return lines


def _closed_above(path: pathlib.Path) -> pathlib.Path | None:
    """Return the highest directory above that not every user may pass through."""
    for above in reversed(path.parents):
        if not above.stat().st_mode & stat.S_IXOTH:
            return above
    return None
