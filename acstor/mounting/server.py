"""The end of acstor-mount: carries out what the data plane asks for, and nothing else."""

import contextlib
import logging
import os
import pwd
import select
import socket
import threading
from collections.abc import Callable

from acstor import exception, sockets
from acstor.mounting import mount_point, protocol, safe_path
from acstor.mounting.mounter import Mounter, MountOptions
from acstor.mounting.protocol import Operation

LOG = logging.getLogger(__name__)

_LISTEN_BACKLOG = 4
STOP_TIMEOUT = protocol.OPERATIONS[Operation.UNMOUNT].timeout
"""Seconds for an operation that is under way when the process is asked to end."""
_NEW = ".new"
"""Suffix of the socket's name before it listens, beside its final one; no longer than most of
those."""
_MODE = 0o660


class MountServer:
    """Answers one connection after the other, so that no two operations meet.

    :param path: of the socket; what is left there of a process that is gone is replaced.
    :param user: name of the one user who is answered; the socket is open to his group.
    :param load: returns the options of the mount as they are now.
    :param make_mounter: returns what mounts by options.
    """

    def __init__(
        self,
        path: str,
        user: str,
        load: Callable[[], MountOptions],
        make_mounter: Callable[[MountOptions], Mounter],
    ) -> None:
        self._path = path
        self._user = user
        self._load = load
        self._make_mounter = make_mounter
        self._uid = -1
        self._listener: socket.socket | None = None
        self._thread: threading.Thread | None = None
        self._is_stopping = threading.Event()

    def start(self) -> None:
        """Bind the socket and start answering.

        :raises ConfigurationError: when there is no such user.
        :raises InvalidError: when others than root could put another directory above the socket.
        :raises OSError: when the socket cannot be bound, or given to the group.
        """
        try:
            account = pwd.getpwnam(self._user)
        except KeyError as error:
            raise exception.ConfigurationError(
                f"[dataplane] user = {self._user!r} is no user of this host",
                hint="make it (systemd-sysusers), or name the user who runs the data plane",
            ) from error
        self._uid = account.pw_uid
        os.makedirs(os.path.dirname(self._path), mode=0o755, exist_ok=True)
        if os.geteuid() == 0:
            # Its name is changed by path below.
            safe_path.require_root_alone(self._path)
        # Under its name when it can be used: a data plane waits for one that is missing.
        new = os.path.join(os.path.dirname(self._path), _NEW)
        with contextlib.suppress(FileNotFoundError):
            os.unlink(new)
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET | socket.SOCK_CLOEXEC)
        try:
            # The mode with which it is bound (Linux).
            os.fchmod(listener.fileno(), 0o600)
            listener.bind(new)
            # systemd starts the process in that group, which needs no capability then.
            if os.stat(new).st_gid != account.pw_gid:
                os.chown(new, -1, account.pw_gid)
            os.chmod(new, _MODE)
            listener.listen(_LISTEN_BACKLOG)
            os.rename(new, self._path)
        except OSError:
            listener.close()
            raise
        self._listener = listener
        self._thread = threading.Thread(
            target=self._accept_all, args=(listener,), name="mount-accept", daemon=True
        )
        self._thread.start()

    def stop(self) -> None:
        """Close the socket once an operation under way has ended, at most :data:`STOP_TIMEOUT`."""
        if self._listener is None:
            return
        self._is_stopping.set()
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        if self._thread is not None:
            self._thread.join(STOP_TIMEOUT)
        self._listener.close()
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self._path)

    def _accept_all(self, listener: socket.socket) -> None:
        for connection in sockets.accepted(listener, self._is_stopping):
            with connection:
                try:
                    self._serve(connection)
                except OSError as error:  # TimeoutError too
                    LOG.warning("a request was given up: %s", error)
                except Exception:
                    LOG.exception("a request failed")

    def _serve(self, connection: socket.socket) -> None:
        descriptor: int | None = None
        mounter: Mounter | None = None
        failure: exception.AcstorError | None = None
        connection.settimeout(protocol.REQUEST_DEADLINE)
        try:
            request = self._receive(connection)
            # Who gave up and is gone: another may be served by the mount by now.
            if request is None or _is_gone(connection):
                return
            operation, wanted = request
            options = self._load()
            _require_same(wanted, options.mount_point)
            mounter = self._make_mounter(options)
            LOG.info("%s", operation)
            descriptor = _carry_out(operation, mounter)
        except exception.AcstorError as error:
            LOG.error("%s; %s", error, error.hint)
            failure = error
        except OSError as error:
            LOG.error("%s", error)
            failure = exception.UnavailableError(str(error))
        connection.settimeout(protocol.RESPONSE_DEADLINE)
        passed = [] if descriptor is None else [descriptor]
        try:
            socket.send_fds(connection, [protocol.encode_response(failure)], passed)
        except OSError:
            if descriptor is not None and mounter is not None:
                mounter.detach()  # nobody has it
            raise
        finally:
            # The one who asked has it: the connection ends with him, and not with this process.
            if descriptor is not None:
                os.close(descriptor)

    def _receive(self, connection: socket.socket) -> tuple[Operation, str] | None:
        """Return what is asked for, and where; None: the connection was closed without it.

        :raises InvalidError: when it may not be asked for.
        """
        # Without room for descriptors: the kernel closes those that somebody sends. Before the user
        # is looked at, since an answer does not reach whose packet is not read.
        packet, _, flags, _ = connection.recvmsg(protocol.REQUEST_BYTES_MAX)
        if not packet and not flags & (socket.MSG_TRUNC | socket.MSG_CTRUNC):
            return None
        uid = sockets.user_of(connection)
        if uid != self._uid:
            raise exception.InvalidError(
                f"user {uid} asked, and only {self._user} is answered",
                hint="run the data plane as the user whom [dataplane] user names",
            )
        if flags & (socket.MSG_TRUNC | socket.MSG_CTRUNC):
            raise exception.InvalidError("a request was too long, or had descriptors")
        try:
            return protocol.decode_request(packet)
        except protocol.MalformedMessageError as error:
            raise exception.InvalidError(f"a request was malformed: {error}") from error


class GuardedMounter:
    """A mounter that works only where nobody but root can move the mount point.

    :param inner: does it.
    """

    def __init__(self, options: MountOptions, inner: Mounter) -> None:
        self._path = options.mount_point
        self._inner = inner

    def mount(self) -> int:
        """See :class:`acstor.mounting.mounter.Mounter`."""
        self._require_safe()
        if mount_point.is_mounted(self._path):
            if mount_point.is_connected(self._path):
                raise exception.FencedError(f"another process holds the mount at {self._path}")
            self._inner.detach()
        with contextlib.suppress(FileExistsError):
            os.mkdir(self._path, mode=0o755)
        safe_path.require_directory_of_root(self._path)
        return self._inner.mount()

    def set_read_ahead(self) -> None:
        """See :class:`acstor.mounting.mounter.Mounter`."""
        self._inner.set_read_ahead()

    def unmount(self) -> None:
        """See :class:`acstor.mounting.mounter.Mounter`."""
        self._require_safe()
        self._inner.unmount()

    def detach(self) -> None:
        """See :class:`acstor.mounting.mounter.Mounter`."""
        self._require_safe()
        self._inner.detach()

    def _require_safe(self) -> None:
        safe_path.require_root_alone(self._path)


def _is_gone(connection: socket.socket) -> bool:
    poll = select.poll()
    poll.register(connection, 0)
    return bool(poll.poll(0))


def _require_same(wanted: str, configured: str) -> None:
    if wanted != configured:
        raise exception.InvalidError(
            f"the data plane mounts at {wanted[:200]!r}, this process at {configured!r}",
            hint="give both one configuration: [dataplane] mount_point",
        )


def _carry_out(operation: Operation, mounter: Mounter) -> int | None:
    """Carry an operation out; return the descriptor of those that have one."""
    match operation:
        case Operation.MOUNT:
            return mounter.mount()
        case Operation.SET_READ_AHEAD:
            mounter.set_read_ahead()
        case Operation.UNMOUNT:
            mounter.unmount()
        case Operation.DETACH:
            mounter.detach()
    return None
