"""Machines that programs of the operator switch: IPMI tools, sockets of power strips, clouds.

Each is an argument vector, run without a shell.
"""

import os
import signal
import subprocess
from collections.abc import Sequence

from acstor import exception
from acstor.origin.replicated.power.drivers.base import Machine

OUTPUT_SIZE_MAX = 64 << 10
"""Longest output that is looked at, bytes."""


class CommandDriver:
    """Runs one program for each call.

    :param on: argument vector that switches the machine on.
    :param off: likewise, off.
    :param state: likewise; the last word that it prints is ``on``, ``off`` or ``changing``, in
        capital letters or not (``ipmitool chassis power status`` does).
    :param seconds_max: longest time of a program; then it is killed, with what it has started.
    """

    def __init__(
        self, on: Sequence[str], off: Sequence[str], state: Sequence[str], seconds_max: float
    ) -> None:
        self._on = tuple(on)
        self._off = tuple(off)
        self._state = tuple(state)
        self._seconds_max = seconds_max

    def state(self) -> Machine:
        """Return what the program prints."""
        words = self._run(self._state).split()
        try:
            return Machine(words[-1].lower())
        except (IndexError, ValueError) as error:
            raise exception.UnavailableError(
                f"{self._state[0]} prints neither on, off nor changing as its last word",
                hint="correct 'state' in the file of [power] members_file",
            ) from error

    def switch_on(self) -> None:
        """Run the program."""
        self._run(self._on)

    def switch_off(self) -> None:
        """Run the program."""
        self._run(self._off)

    def _run(self, arguments: Sequence[str]) -> str:
        """Return what a program prints. Neither its arguments nor its output are told."""
        try:
            # Its own group, so that what it has started ends with it.
            process = subprocess.Popen(
                arguments,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
            )
        except OSError as error:
            raise exception.UnavailableError(
                f"{arguments[0]} cannot be run: {error.strerror}",
                hint="correct the file of [power] members_file",
            ) from error
        try:
            output, _ = process.communicate(timeout=self._seconds_max)
        except subprocess.TimeoutExpired as error:
            raise exception.DeadlineError(
                f"{arguments[0]} did not end within {self._seconds_max:g} s",
                hint="check the machine's management controller",
            ) from error
        finally:
            if process.returncode is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
                assert process.stdout is not None
                process.stdout.close()
        if process.returncode:
            raise exception.UnavailableError(
                f"{arguments[0]} ended with status {process.returncode}",
                hint="run it as the registrar's user; its output says more",
            )
        return output[-OUTPUT_SIZE_MAX:].decode(errors="replace")
