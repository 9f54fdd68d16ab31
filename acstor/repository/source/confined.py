"""A program that gives away what another one does not need, and becomes it.

``confined.py PARENT ADDRESS_SPACE CPU_SECONDS FILES USER GROUP ACCESS COMMAND ...``, run by its
path with ``python -I -S``: it imports nothing but the standard library. USER -1: this one. ACCESS
0: to files that the user may open, 1: to read those of everybody, 2: to write them, too; 3: to read
files that the user may open, and to write those in a folder, whose path is before the command.
Without a command it prints what this system does not let it give away, a word a line.

Not ``preexec_fn``: that runs Python between fork and exec of a process with threads. The network
is refused by a filter of system calls, which needs no privilege and no namespace: the unit of the
registrar allows none. Source: Documentation/userspace-api/seccomp_filter.rst and
include/uapi/linux/{filter,seccomp,audit}.h of Linux.
"""

import ctypes
import errno
import os
import platform
import resource
import shutil
import signal
import struct
import sys

_CLONE_NEWNET = 0x40000000
_PR_SET_PDEATHSIG = 1
_PR_SET_SECCOMP = 22
_PR_SET_NO_NEW_PRIVS = 38
_SECCOMP_MODE_FILTER = 2
_SOCKET_OF_MACHINE = {"x86_64": (0xC000003E, 41), "aarch64": (0xC00000B7, 198)}
"""Machine -> its name in the audit subsystem, and the number of socket(2)."""
_IO_URING_SETUP = 425
"""A ring opens sockets past any filter; QEMU does without."""
_X32_BIT = 0x40000000
_AF_UNIX = 1
_LOAD, _EQUALS, _AT_LEAST, _RETURN = 0x20, 0x15, 0x35, 0x06
_REFUSE, _ALLOW = 0x00050000 | errno.EPERM, 0x7FFF0000
_NUMBER, _ARCHITECTURE, _FIRST_ARGUMENT = 0, 4, 16
"""Offsets in struct seccomp_data, little-endian machines."""
WRITES = 2
"""Access of a program that writes the files that it is given."""
WRITES_FOLDER = 3
"""Access of a program that writes what is in one folder."""
RIGHTS = {0: "", 1: ",+dac_read_search", WRITES: ",+dac_override", WRITES_FOLDER: ""}
"""Rights that are kept, by the access."""


def limit(limits: dict[int, int]) -> None:
    """Set limits that the program cannot raise, nor its children.

    :param limits: by resource, as :mod:`resource` calls them.
    """
    for kind, wanted in limits.items():
        _, hardest = resource.getrlimit(kind)
        value = wanted if hardest == resource.RLIM_INFINITY else min(wanted, hardest)
        resource.setrlimit(kind, (value, value))


def end_with(parent: int, libc: ctypes.CDLL) -> None:
    """Have the kernel kill this process with its parent; end at once if that is gone already."""
    libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:
        sys.exit(1)


def refuse_network(libc: ctypes.CDLL) -> bool:
    """Give the network away; return whether that could be done."""
    if os.geteuid() == 0:
        libc.unshare(_CLONE_NEWNET)  # beside the filter: not everywhere may even root
    machine = _SOCKET_OF_MACHINE.get(platform.machine())
    if machine is None:
        return False
    architecture, socket = machine
    program = b"".join(
        struct.pack("<HBBI", *instruction)
        for instruction in (
            (_LOAD, 0, 0, _ARCHITECTURE),
            (_EQUALS, 0, 7, architecture),
            (_LOAD, 0, 0, _NUMBER),
            (_AT_LEAST, 5, 0, _X32_BIT),
            (_EQUALS, 4, 0, _IO_URING_SETUP),
            (_EQUALS, 0, 2, socket),
            (_LOAD, 0, 0, _FIRST_ARGUMENT),
            (_EQUALS, 0, 1, _AF_UNIX),
            (_RETURN, 0, 0, _ALLOW),
            (_RETURN, 0, 0, _REFUSE),
        )
    )
    code = ctypes.create_string_buffer(program, len(program))
    header = ctypes.create_string_buffer(
        struct.pack("@HP", len(program) // 8, ctypes.addressof(code)), 16
    )
    if libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0:
        return False
    return bool(libc.prctl(_PR_SET_SECCOMP, _SECCOMP_MODE_FILTER, header, 0, 0) == 0)


_LANDLOCK_CREATE, _LANDLOCK_ADD, _LANDLOCK_RESTRICT = 444, 445, 446
"""Numbers of system calls, on all machines."""
_LANDLOCK_VERSION = 1
_PATH_BENEATH = 1
_LANDLOCK_WRITE_FILE = 1 << 1
_LANDLOCK_CHANGES = _LANDLOCK_WRITE_FILE | 0x1FF << 4
"""Writing, removing and making files of each kind; include/uapi/linux/landlock.h."""
_LANDLOCK_TRUNCATE = 1 << 14
_TRUNCATE_VERSION = 3


def keep_writes_in(folder: str, libc: ctypes.CDLL) -> bool:
    """Refuse to change files outside of a folder; return whether this system can do that."""
    version = libc.syscall(_LANDLOCK_CREATE, None, ctypes.c_size_t(0), _LANDLOCK_VERSION)
    if version < 1:
        return False
    changes = _LANDLOCK_CHANGES | (_LANDLOCK_TRUNCATE if version >= _TRUNCATE_VERSION else 0)
    wanted = ctypes.create_string_buffer(struct.pack("<Q", changes), 8)
    rules = libc.syscall(_LANDLOCK_CREATE, wanted, ctypes.c_size_t(8), 0)
    if rules < 0:
        return False
    for path, allowed in ((folder, changes), (os.devnull, _LANDLOCK_WRITE_FILE)):
        beneath = os.open(path, os.O_PATH | os.O_CLOEXEC)
        rule = ctypes.create_string_buffer(struct.pack("<Qi", allowed, beneath), 12)
        if libc.syscall(_LANDLOCK_ADD, rules, _PATH_BENEATH, rule, 0) != 0:
            return False
        os.close(beneath)
    is_kept = libc.syscall(_LANDLOCK_RESTRICT, rules, 0) == 0
    os.close(rules)
    return bool(is_kept)


def as_user(user: int, group: int, access: int, command: list[str]) -> list[str]:
    """Return the command that runs another as a user without any other right.

    :param access: to files of everybody, those it has the names of; a key of :data:`RIGHTS`.
    """
    kept = RIGHTS[access]
    return [
        "setpriv",
        f"--reuid={user}",
        f"--regid={group}",
        "--clear-groups",
        f"--inh-caps=-all{kept}",
        f"--ambient-caps=-all{kept}",
        f"--bounding-set=-all{kept}",
        "--no-new-privs",
        "--pdeathsig=KILL",
        "--",
        *command,
    ]


def main(arguments: list[str]) -> int:
    """Become the command; return only when that fails."""
    parent, address_space, cpu_seconds, files, user, group, access = map(int, arguments[:7])
    command = arguments[7:]
    libc = ctypes.CDLL(None, use_errno=True)
    libc.prctl.argtypes = (
        ctypes.c_int, ctypes.c_ulong, ctypes.c_void_p, ctypes.c_ulong, ctypes.c_ulong
    )  # fmt: skip
    end_with(parent, libc)
    limit(
        {
            resource.RLIMIT_AS: address_space,
            resource.RLIMIT_CPU: cpu_seconds,
            resource.RLIMIT_NOFILE: files,
            resource.RLIMIT_CORE: 0,
        }
    )
    if access not in (WRITES, WRITES_FOLDER):
        limit({resource.RLIMIT_FSIZE: 0})
    missing = [] if refuse_network(libc) else ["network"]
    if access == WRITES_FOLDER:
        folder, *command = command
        if not keep_writes_in(folder, libc):
            missing.append("folder")
    if user >= 0:
        if shutil.which("setpriv"):
            command = as_user(user, group, access, command) if command else []
        else:
            missing.append("user")
    if not command:
        print("\n".join(missing))  # noqa: T201
        return 0
    try:
        os.execvp(command[0], command)  # noqa: S606 - that is what this program is for
    except OSError as error:
        sys.stderr.write(f"{command[0]} cannot be run: {error.strerror}\n")
    return 127


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
