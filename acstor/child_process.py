"""Children of this program: processes of its own that talk to it through one socket."""

import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from typing import IO

from acstor import exception


def start(
    command: Sequence[str],
    descriptor: int,
    purpose: str,
    *,
    variables: Mapping[str, str] | None = None,
    stdout: int | IO[bytes] | None = None,
    stderr: int | IO[bytes] | None = None,
) -> "subprocess.Popen[bytes]":
    """Start a child of this thread, which must not end before it where the child asks for that.

    Credentials of other services stay here, and the working directory is no place to import from.

    :param command: of Python, such as ``("-m", "a.module")``; the number of the descriptor follows.
    :param descriptor: of its end of the socket.
    :param purpose: what it is for, with an article, for people.
    :param variables: of its environment, beside this one's.
    :raises UnavailableError: when it cannot be started.
    """
    environment = {name: value for name, value in os.environ.items() if not name.startswith("OS_")}
    try:
        return subprocess.Popen(
            [sys.executable, "-P", *command, str(descriptor)],
            stdin=subprocess.DEVNULL,
            stdout=stdout,
            stderr=stderr,
            pass_fds=(descriptor,),
            env=environment | dict(variables or {}),
        )
    except OSError as error:
        raise exception.UnavailableError(
            f"no process for {purpose} can be started: {error.strerror}",
            hint="look at the limits of the service, and at the memory of the machine",
        ) from error
