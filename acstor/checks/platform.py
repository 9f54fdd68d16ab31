"""Checks of this host's kernel, QEMU and libvirt: they do what ACStor asks of them."""

import os
import re
import shutil
import subprocess

from oslo_config import cfg
from oslo_upgradecheck.upgradecheck import Result

from acstor.checks.host import NOT_COMPUTE, is_compute_host
from acstor.checks.verdict import failure, success, warning

KERNEL_MIN = (5, 16)
"""FUSE 7.35, the least that the data plane speaks."""
KERNEL_RESEND = (6, 9)
"""FUSE_NOTIFY_RESEND: reads in flight survive the death of the process that took them."""
QEMU_MIN = (6, 2)
LIBVIRT_MIN = (8, 0)
"""Least libvirt, and ``QEMU_MIN`` the least QEMU: those that Nova 34 takes."""
LIBVIRT_PROGRAMS = ("libvirtd", "virtqemud")
TRIED = "tried with QEMU 7.2 and 10.0, libvirt 9.0 and 11.3"
_TOOL_TIMEOUT = 10.0
_VERSION = re.compile(r"\b(\d+)\.(\d+)(?:\.\d+)?\b")


def check_kernel(conf: cfg.ConfigOpts) -> Result:
    """Check that the kernel's FUSE lets guests outlive a restart of the data plane."""
    if not is_compute_host(conf):
        return success(NOT_COMPUTE)
    release = os.uname().release
    found = parse_version(release)
    if found is None:
        return warning(f"{release!r} is no version that can be compared; Linux 6.9 is needed")
    if found < KERNEL_MIN:
        return failure(f"Linux {release} is too old; 5.16 is the least, 6.9 is recommended")
    if found < KERNEL_RESEND:
        return warning(
            f"Linux {release} cannot send FUSE requests again: reads that are in flight when the "
            "data plane is restarted or killed hang; install 6.9 or newer, or live-migrate guests "
            "away before each restart"
        )
    return success(f"Linux {release}")


def check_qemu(conf: cfg.ConfigOpts) -> Result:
    """Check that QEMU and its tools are there and new enough."""
    return _check_tools(
        conf, ("qemu-img", "qemu-system-x86_64", "qemu-system-aarch64"), QEMU_MIN, "QEMU"
    )


def check_libvirt(conf: cfg.ConfigOpts) -> Result:
    """Check that libvirt is there and new enough."""
    return _check_tools(conf, LIBVIRT_PROGRAMS, LIBVIRT_MIN, "libvirt")


def _check_tools(
    conf: cfg.ConfigOpts, names: tuple[str, ...], least: tuple[int, int], what: str
) -> Result:
    if not is_compute_host(conf):
        return success(NOT_COMPUTE)
    found = versions(names)
    if not found:
        return warning(
            f"none of {', '.join(names)} is on the PATH; install {what} {least[0]}.{least[1]} or "
            "newer, or look yourself if it runs in a container"
        )
    for name, text in found.items():
        parsed = parse_version(text)
        if parsed is None or parsed < least:
            return failure(
                f"{name} says {text!r}; {what} {least[0]}.{least[1]} is the least ({TRIED})"
            )
    return success("; ".join(found.values()))


def versions(names: tuple[str, ...]) -> dict[str, str]:
    """Return what each of the programs that is on the PATH says of its version."""
    found = {}
    for name in names:
        path = shutil.which(name)
        text = _first_line(path) if path else None
        if text is not None:
            found[name] = text
    return found


def _first_line(program: str) -> str | None:
    """Return what a program says of its version; None when it does not say."""
    try:
        result = subprocess.run(
            [program, "--version"],
            capture_output=True,
            text=True,
            timeout=_TOOL_TIMEOUT,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return (result.stdout.strip().splitlines() or [""])[0]


def parse_version(text: str) -> tuple[int, int] | None:
    """Return major and minor number of the first version in a text."""
    match = _VERSION.search(text)
    return (int(match[1]), int(match[2])) if match else None
