"""The caller's end of the admin protocol."""

import contextlib
import os
import socket
from typing import Any

from acstor import exception, sockets
from acstor.control import operations, protocol
from acstor.control.line_reader import LineReader, LineTooLongError

_HINT = "check that acstor-dataplane runs on this host and that [dataplane] admin_socket is right"


class AdminClient:
    """Calls methods of the data plane; a connection per call, so that its restarts do not matter.

    :param path: of the admin socket.
    :param timeout: seconds for a call without its own; None: those of each operation.
    """

    def __init__(self, path: str, timeout: float | None = None) -> None:
        self._path = path
        self._timeout = timeout

    def call(self, method: str, /, *, call_timeout: float | None = None, **params: object) -> Any:
        """Call a method and return its result.

        :param call_timeout: seconds; longer than what the method itself was given.
        :raises UnavailableError: when the data plane does not answer (in time).
        :raises InvalidError: and other classes of ``acstor.exception`` by the kind of the error
            with which the data plane answers.
        """
        request = protocol.Request(method, params)
        timeout = self._timeout if call_timeout is None else call_timeout
        if timeout is None:
            timeout = operations.timeout_of(method)
        try:
            line = protocol.encode_request(request)
            return protocol.decode_response(self._exchange(line, timeout), request)
        except (protocol.ProtocolError, LineTooLongError) as error:
            raise exception.InternalError(f"admin socket {self._path}: {error}") from error
        except TimeoutError as error:
            raise exception.DeadlineError(
                f"the data plane at {self._path} did not answer {method} in {timeout:g} s",
                hint=_HINT,
            ) from error
        except PermissionError as error:
            raise exception.InvalidError(
                f"the admin socket {self._path} is not accessible to this user", hint="run as root"
            ) from error
        except OSError as error:
            reason = error.strerror or error
            raise exception.UnavailableError(
                f"the data plane at {self._path} cannot be reached: {reason}", hint=_HINT
            ) from error

    def user(self) -> int | None:
        """Return the number of the user who runs the data plane; None: it does not run."""
        try:
            return os.stat(self._path).st_uid
        except OSError:
            return None

    def _exchange(self, line: bytes, timeout: float) -> bytes:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC) as connection:
            sockets.connect_within(connection, self._path, timeout)
            # A server that refuses the connection may have answered and left already.
            with contextlib.suppress(BrokenPipeError):
                connection.sendall(line)
            reader = LineReader(connection, protocol.RESPONSE_BYTES_MAX)
            answer = reader.read_line(timeout, timeout)
        if not answer:
            raise ConnectionResetError("it closed the connection")
        return answer
