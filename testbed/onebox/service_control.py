"""Starting and stopping the services of a one-box."""

import signal
import threading
import time

from testbed import exception
from testbed.onebox.directory import OneBoxDirectory
from testbed.onebox.host import Host
from testbed.onebox.services import Service, base_environment

READY_TIMEOUT_S = 120.0
POLL_INTERVAL_S = 0.1
LOG_LINES = 25


class ServiceFailedError(exception.TestbedError):
    """A service ended or did not become ready; the message ends with its log."""

    default_hint = "correct what its log says, then run the command again"

    def __init__(self, service: Service, outcome: str, directory: OneBoxDirectory) -> None:
        log = directory.log(service.host, service.name)
        super().__init__(
            f"{service.name} on {service.host} {outcome}; {log} ends with:\n{log_tail(log)}"
        )
        self.service = service


def log_tail(log: object, lines: int = LOG_LINES) -> str:
    """Return the last lines of a log file, empty when there is none."""
    try:
        with open(str(log), encoding="utf-8", errors="replace") as file:
            return "".join(file.readlines()[-lines:]).rstrip()
    except OSError:
        return ""


class ServiceControl:
    """Starts and stops services on the hosts of a one-box."""

    def __init__(self, directory: OneBoxDirectory, hosts: dict[str, Host]) -> None:
        self._directory = directory
        self._hosts = hosts
        self.cancelled = threading.Event()

    def start(self, service: Service) -> None:
        """Start a service, unless it runs, and wait until it is ready.

        :raises ServiceFailedError: when it ends, or is not ready in time.
        """
        self.spawn(service)
        self.wait_ready(service)

    def spawn(self, service: Service) -> None:
        """Start a service, unless it runs; does not wait.

        :raises ServiceFailedError: when it cannot be executed.
        """
        environment = {**base_environment(self._directory), **service.environment}
        try:
            self._hosts[service.host].spawn(service.name, service.argv, environment)
        except exception.ToolFailedError as error:
            raise ServiceFailedError(service, str(error), self._directory) from error

    def wait_ready(self, service: Service) -> None:
        """Wait until a service is ready.

        :raises ServiceFailedError: when it ends, or is not ready in time.
        """
        host = self._hosts[service.host]
        deadline = time.monotonic() + READY_TIMEOUT_S
        while True:
            self.check_alive(service)
            if service.ready is None or service.ready(host):
                return
            if time.monotonic() > deadline:
                outcome = f"was not ready within {READY_TIMEOUT_S:g} s"
                raise ServiceFailedError(service, outcome, self._directory)
            if self.cancelled.wait(POLL_INTERVAL_S):
                raise exception.TestbedError(f"gave up waiting for {service.name}")

    def check_alive(self, service: Service) -> None:
        """Raise when a service that was started has ended.

        :raises ServiceFailedError: when it has.
        """
        program = self._hosts[service.host].programs().get(service.name)
        if program is None:
            raise ServiceFailedError(service, "was not started", self._directory)
        if program["returncode"] is not None:
            outcome = f"ended with {program['returncode']}"
            raise ServiceFailedError(service, outcome, self._directory)

    def stop(self, service: Service, *, kill: bool = False) -> None:
        """Stop a service and what it started; what does not end in its time is killed.

        :param kill: kill it at once, as a crash would end it.
        :raises ServiceFailedError: when even that does not end it.
        """
        host = self._hosts[service.host]
        host.signal(service.name, signal.SIGKILL if kill else signal.SIGTERM)
        if not self._wait_ended(host, service, service.stop_timeout_s):
            host.signal(service.name, signal.SIGKILL, session=True)
            if not self._wait_ended(host, service, service.stop_timeout_s):
                raise ServiceFailedError(service, "does not end", self._directory)
        # Workers and helpers that outlived it.
        host.signal(service.name, signal.SIGKILL, session=True)

    @staticmethod
    def _wait_ended(host: Host, service: Service, timeout_s: float) -> bool:
        deadline = time.monotonic() + timeout_s
        while host.is_running(service.name):
            if time.monotonic() > deadline:
                return False
            time.sleep(POLL_INTERVAL_S)
        return True
