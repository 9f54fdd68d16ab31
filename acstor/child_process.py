"""Children of this program: processes of its own that talk to it through one socket."""

import os
import pathlib
import subprocess
import sys
from collections.abc import Collection, Mapping, Sequence
from typing import IO

from acstor import exception


def interpreter() -> str:
    """Return the path of Python: a server that embeds it, as uWSGI does, gives its own as that.

    :raises UnavailableError: when it is not where this installation, or virtual environment, is.
    """
    if pathlib.PurePath(sys.executable or "").name.startswith("python"):
        return sys.executable
    name = f"python{sys.version_info.major}.{sys.version_info.minor}"
    for prefix in (sys.prefix, sys.base_prefix):
        found = pathlib.Path(prefix, "bin", name)
        if os.access(found, os.X_OK):
            return str(found)
    raise exception.UnavailableError(
        f"there is no {name} in {sys.prefix}, and {sys.executable!r} is none",
        hint="tell the WSGI server where it is; uWSGI: py-executable",
    )


def start(
    command: Sequence[str],
    descriptor: int,
    purpose: str,
    *,
    variables: Mapping[str, str] | None = None,
    inherited: Collection[str] | None = None,
    stdout: int | IO[bytes] | None = None,
    stderr: int | IO[bytes] | None = None,
) -> "subprocess.Popen[bytes]":
    """Start a child of this thread, which must not end before it where the child asks for that.

    Credentials of other services stay here, and the working directory is no place to import from.

    :param command: of Python, such as ``("-m", "a.module")``; the number of the descriptor follows.
    :param descriptor: of its end of the socket.
    :param purpose: what it is for, with an article, for people.
    :param variables: of its environment, beside this one's.
    :param inherited: names of those of this one's that it has; None: all but credentials.
    :raises UnavailableError: when it cannot be started.
    """
    environment = {
        name: value
        for name, value in os.environ.items()
        if (name in inherited if inherited is not None else not name.startswith("OS_"))
    }
    try:
        return subprocess.Popen(
            [interpreter(), "-P", *command, str(descriptor)],
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
