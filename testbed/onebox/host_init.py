"""The first process of a host: arranges its mounts, starts its programs, reaps what ends.

Runs as process 1 of the host's PID namespace: when it is killed, the kernel ends every process of
the host, and the host's mounts and network go with the last of them. Takes requests at a unix
socket, one JSON object on a line each:

``{"start": NAME, "argv": [...], "environment": {...}, "log": PATH}``
    Start a program in a session of its own, unless one of that name runs.
``{"signal": NAME, "number": N, "session": false}``
    Send a signal to a program, or to all processes of its session.
``{"status": true}``
    Tell the state of every program that was started.

The answer is one JSON object: ``{"programs": {NAME: {"pid", "returncode", "started_at",
"log_offset"}}}``, where the offset is that of the log's end when the program was started, or
``{"error": TEXT}``. Uses the standard library only, for its memory is that of each host.
"""

import contextlib
import ctypes
import json
import os
import pathlib
import selectors
import signal
import socket
import sys
import time
from collections.abc import Callable
from typing import Any

_REQUEST_BYTES_MAX = 1 << 20
_REQUEST_TIMEOUT_S = 5.0
_MS_NOSUID, _MS_NODEV, _MS_BIND, _MS_REC, _MS_PRIVATE = 2, 4, 4096, 16384, 1 << 18
_MS_SHARED = 1 << 20
_SOCKET_MODE = 0o600

_libc = ctypes.CDLL(None, use_errno=True)


def mount(
    source: str, target: str, kind: str | None = None, flags: int = 0, options: str | None = None
) -> None:
    """Mount a file system.

    :raises OSError: as the kernel says.
    """
    arguments = [None if text is None else os.fsencode(text) for text in (source, target, kind)]
    data = None if options is None else os.fsencode(options)
    if _libc.mount(*arguments, ctypes.c_ulong(flags), data) != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"mount: {os.strerror(number)}", target)


def unmount(target: str) -> None:
    """Detach a mount.

    :raises OSError: as the kernel says.
    """
    if _libc.umount2(os.fsencode(target), 2) != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"umount: {os.strerror(number)}", target)


def arrange_mounts(directory: str, overlaid: list[str], binds: list[tuple[str, str]]) -> None:
    """Give the host its own ``/proc``, ``/sys``, ``/run`` and the folders of its services.

    The overlays on ``overlaid`` only provide places to mount on, so that a host has an
    ``/etc/nova`` where the machine has none. Their upper layers are in memory.

    :param directory: of the one-box; stays what it is, also where it is below an overlay.
    :param binds: folders or files of the one-box, and where the host sees them.
    """
    mount("none", "/", flags=_MS_REC | _MS_PRIVATE)
    mount("proc", "/proc", "proc", _MS_NOSUID | _MS_NODEV)
    mount("sysfs", "/sys", "sysfs", _MS_NOSUID | _MS_NODEV)
    with contextlib.suppress(OSError):
        mount("fusectl", "/sys/fs/fuse/connections", "fusectl")
    mount("tmpfs", "/run", "tmpfs", _MS_NOSUID | _MS_NODEV, "mode=755")
    kept = "/run/onebox"
    os.mkdir(kept)
    mount(directory, kept, flags=_MS_BIND | _MS_REC)
    for number, top in enumerate(overlaid):
        layers = f"/run/overlay/{number}"
        os.makedirs(f"{layers}/upper")
        os.makedirs(f"{layers}/work")
        options = f"lowerdir={top},upperdir={layers}/upper,workdir={layers}/work"
        mount("overlay", top, "overlay", options=options)
    os.makedirs(directory, exist_ok=True)
    mount(kept, directory, flags=_MS_BIND | _MS_REC)
    unmount(kept)
    os.rmdir(kept)
    for source, target in binds:
        if os.path.isdir(source):
            os.makedirs(target, exist_ok=True)
        else:
            os.makedirs(os.path.dirname(target), exist_ok=True)
            pathlib.Path(target).touch()
        mount(source, target, flags=_MS_BIND | _MS_REC)
    _hide_kvm()
    # As systemd has it: what is mounted on the host appears in its services' mount namespaces.
    mount("none", "/", flags=_MS_REC | _MS_SHARED)


def _hide_kvm() -> None:
    """Put a file that nobody may open in the place of ``/dev/kvm``.

    Guests are emulated. Where QEMU, started by root, finds KVM and the guests' user may not use it,
    libvirt takes what it has found out about QEMU for outdated, and asks it again for each guest:
    two seconds of a processor a call (libvirt 9.0, ``virQEMUCapsIsValid``).
    """
    if os.path.exists("/dev/kvm"):
        nothing = "/run/no-kvm"
        pathlib.Path(nothing).touch(mode=0)
        mount(nothing, "/dev/kvm", flags=_MS_BIND)


class Programs:
    """The programs that were started by name."""

    def __init__(self) -> None:
        self._pids: dict[str, int] = {}
        self._started_at: dict[str, float] = {}
        self._log_offsets: dict[str, int] = {}
        self._returncodes: dict[str, int] = {}

    def start(self, name: str, argv: list[str], environment: dict[str, str], log: str) -> None:
        """Start a program unless it runs.

        :raises OSError: when it cannot be executed.
        """
        if name in self._pids and name not in self._returncodes:
            return
        descriptor = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
        null = os.open("/dev/null", os.O_RDONLY | os.O_CLOEXEC)
        log_offset = os.fstat(descriptor).st_size
        try:
            pid = os.posix_spawn(
                argv[0],
                argv,
                environment,
                file_actions=[
                    (os.POSIX_SPAWN_DUP2, null, 0),
                    (os.POSIX_SPAWN_DUP2, descriptor, 1),
                    (os.POSIX_SPAWN_DUP2, descriptor, 2),
                ],
                setsid=True,
                setsigmask=[],
                setsigdef=[signal.SIGPIPE, signal.SIGTERM, signal.SIGINT, signal.SIGCHLD],
            )
        finally:
            os.close(descriptor)
            os.close(null)
        self._pids[name] = pid
        self._started_at[name] = time.time()
        self._log_offsets[name] = log_offset
        self._returncodes.pop(name, None)

    def signal(self, name: str, number: int, *, session: bool) -> None:
        """Send a signal; nothing happens when the program has ended or never ran.

        With ``session`` also to what a program that has ended left behind.
        """
        pid = self._pids.get(name)
        if pid is None:
            return
        if session:
            for member in _members_of_session(pid):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(member, number)
        elif name not in self._returncodes:
            os.kill(pid, number)

    def reap(self) -> None:
        """Take notice of everything that has ended, orphans that fell to this process too."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            for name, known in self._pids.items():
                if known == pid and name not in self._returncodes:
                    self._returncodes[name] = os.waitstatus_to_exitcode(status)

    def status(self) -> dict[str, Any]:
        """Return the state of every program."""
        return {
            name: {
                "pid": pid,
                "returncode": self._returncodes.get(name),
                "started_at": self._started_at[name],
                "log_offset": self._log_offsets[name],
            }
            for name, pid in self._pids.items()
        }


def _members_of_session(session: int) -> list[int]:
    members = []
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            with contextlib.suppress(ProcessLookupError):
                if os.getsid(int(entry)) == session:
                    members.append(int(entry))
    return members


def answer(programs: Programs, request: dict[str, Any]) -> dict[str, Any]:
    """Carry out a request."""
    try:
        if "start" in request:
            programs.start(
                request["start"], request["argv"], request["environment"], request["log"]
            )
        elif "signal" in request:
            programs.signal(request["signal"], request["number"], session=request["session"])
        elif "status" not in request:
            return {"error": f"unknown request: {sorted(request)}"}
    except (OSError, KeyError, TypeError, ValueError) as error:
        return {"error": f"{type(error).__name__}: {error}"}
    return {"programs": programs.status()}


def _serve_one(listener: socket.socket, programs: Programs) -> None:
    connection, _ = listener.accept()
    with connection, contextlib.suppress(OSError):
        connection.settimeout(_REQUEST_TIMEOUT_S)
        line = connection.makefile("rb").readline(_REQUEST_BYTES_MAX)
        try:
            request = json.loads(line)
        except ValueError as error:
            request = {f"not JSON ({error})": None}
        connection.sendall(json.dumps(answer(programs, request)).encode() + b"\n")


def serve(listener: socket.socket, programs: Programs) -> None:
    """Take requests and reap, for ever."""
    wake, waker = socket.socketpair()
    for end in (wake, waker):
        end.setblocking(False)
    signal.signal(signal.SIGCHLD, lambda *_: None)  # else the kernel does not wake us
    signal.set_wakeup_fd(waker.fileno(), warn_on_full_buffer=False)
    selector = selectors.DefaultSelector()

    def reap() -> None:
        with contextlib.suppress(BlockingIOError):
            wake.recv(4096)
        programs.reap()

    selector.register(wake, selectors.EVENT_READ, reap)
    selector.register(listener, selectors.EVENT_READ, lambda: _serve_one(listener, programs))
    while True:
        for key, _ in selector.select():
            action: Callable[[], None] = key.data
            action()


def main() -> None:
    """Wait for the go-ahead on standard input, then be a host until killed."""
    specification = json.loads(sys.stdin.buffer.readline() or b"null")
    if specification is None:
        return  # who started us died before it had written down that it did
    os.close(0)
    os.open("/dev/null", os.O_RDONLY)
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    os.chdir("/")
    socket.sethostname(specification["name"])
    path = specification["socket"]
    with contextlib.suppress(FileNotFoundError):
        os.unlink(path)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    arrange_mounts(
        specification["directory"],
        specification["overlaid"],
        [(source, target) for source, target in specification["binds"]],
    )
    for directory in specification["directories"]:
        os.makedirs(directory, exist_ok=True)
    listener.bind(path)
    os.chmod(path, _SOCKET_MODE)
    listener.listen(64)
    serve(listener, Programs())


if __name__ == "__main__":
    main()
