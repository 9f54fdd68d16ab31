"""Choose QEMU's accelerator by trying it.

``/dev/kvm`` may exist and guests may hang all the same (nested virtualisation). So the guest's own
kernel is started under KVM without a disk, and must get as far as to miss its root file system.
"""

import dataclasses
import json
import pathlib
import subprocess

from testbed import processes

PROBE_TIMEOUT_S = 6.0
PROBE_VERSION = 1
_REACHED = b"Unable to mount root fs"


@dataclasses.dataclass(frozen=True)
class Accelerator:
    """An accelerator and the CPU model that goes with it."""

    name: str
    qemu_arguments: tuple[str, ...]


# One thread per guest processor; "max" is all that TCG implements.
TCG = Accelerator("tcg", ("-accel", "tcg,thread=multi", "-cpu", "max"))
KVM = Accelerator("kvm", ("-accel", "kvm", "-cpu", "host"))


def choose(kernel: pathlib.Path, cache: pathlib.Path) -> Accelerator:
    """Return KVM when a guest kernel runs under it, else TCG.

    :param kernel: kernel of the guest.
    :param cache: directory that remembers the answer until the machine boots again.
    """
    boot_id = pathlib.Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    memory = cache / "accelerator.json"
    question = {"version": PROBE_VERSION, "boot_id": boot_id}
    try:
        known = json.loads(memory.read_text())
    except (OSError, json.JSONDecodeError):
        known = {}
    if {key: known.get(key) for key in question} == question:
        works = bool(known.get("kvm"))
    else:
        works = kvm_works(kernel)
        memory.write_text(json.dumps({**question, "kvm": works}))
    return KVM if works else TCG


def kvm_works(kernel: pathlib.Path) -> bool:
    """Return whether a kernel runs under KVM up to the search for its root file system."""
    if not pathlib.Path("/dev/kvm").exists():
        return False
    command = [processes.require("qemu-system-x86_64"), *KVM.qemu_arguments]
    command += ["-M", "pc", "-m", "256", "-nodefaults", "-display", "none", "-no-reboot"]
    command += ["-serial", "stdio", "-kernel", str(kernel), "-append", "console=ttyS0 panic=-1"]
    try:
        result = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=PROBE_TIMEOUT_S,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        return _REACHED in (error.stdout or b"")
    return _REACHED in result.stdout
