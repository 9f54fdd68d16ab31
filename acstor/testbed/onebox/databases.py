"""The databases of a one-box: made once, then copied out of a cache."""

import contextlib
import hashlib
import pathlib
import shutil
from collections.abc import Callable

from acstor.testbed import processes
from acstor.testbed.onebox import environment, network
from acstor.testbed.onebox.configuration import endpoints, infrastructure, writer
from acstor.testbed.onebox.directory import OneBoxDirectory
from acstor.testbed.onebox.host import Host
from acstor.testbed.onebox.services import base_environment

#: Raise it when what is put into fresh databases changes.
CONTENT_VERSION = 1
_INSTALL_TIMEOUT_S = 120.0
_SYNC_TIMEOUT_S = 420.0
#: What the databases' content belongs to: Keystone's keys decrypt its credentials.
_PARTS = ("mariadb", "keystone")


class Databases:
    """The databases of one one-box."""

    def __init__(self, directory: OneBoxDirectory, controller: Host) -> None:
        self._directory = directory
        self._controller = controller
        self._state = directory.host(network.CONTROLLER)
        self._complete = self._state / "databases-complete"

    @property
    def are_complete(self) -> bool:
        """Return whether nothing is left to be put into the databases."""
        return self._complete.exists()

    @property
    def cached(self) -> pathlib.Path:
        """Return where the filled databases are kept for the next time."""
        digest = hashlib.sha256(f"{CONTENT_VERSION}".encode())
        digest.update(environment.CONSTRAINTS.read_bytes())
        digest.update(processes.run(["/usr/sbin/mariadbd", "--version"]).encode())
        return self._directory.cache / f"databases-{digest.hexdigest()[:16]}"

    def prepare(self) -> None:
        """Make the data directory: complete out of the cache, or empty.

        :raises ToolFailedError: when MariaDB cannot make it.
        """
        if self.are_complete:
            return
        for part in _PARTS:
            shutil.rmtree(self._state / part, ignore_errors=True)
        if self.cached.is_dir():
            for part in _PARTS:
                _copy(self.cached / part, self._state / part)
            self._complete.touch()
            return
        state = self._state / "mariadb"
        state.mkdir(parents=True)
        (self._state / "keystone").mkdir()
        writer.write(state / "my.cnf", infrastructure.mariadb(str(state)))
        writer.write(state / "create.sql", infrastructure.create_databases())
        install = [
            "/usr/bin/mariadb-install-db", f"--defaults-file={state}/my.cnf", "--user=root",
            "--auth-root-authentication-method=normal", "--skip-test-db",
        ]  # fmt: skip
        processes.run(install, timeout_s=_INSTALL_TIMEOUT_S)

    def sync(self, service: str) -> None:
        """Create the tables of a service.

        :raises ToolFailedError: when the service's program fails.
        """
        for command in _SYNCHRONIZATIONS[service]:
            self._run(*command)
        if service == "keystone":
            self._bootstrap()

    def complete(self, stop: Callable[[], None], start: Callable[[], None]) -> None:
        """Keep the filled databases for the next time.

        :param stop: stops MariaDB, whose files are consistent then.
        """
        stop()
        target = self.cached
        building = target.with_name(f"{target.name}.new")
        shutil.rmtree(building, ignore_errors=True)
        building.mkdir(parents=True)
        for part in _PARTS:
            _copy(self._state / part, building / part)
        with contextlib.suppress(FileExistsError, OSError):
            building.rename(target)
        for old in self._directory.cache.glob("databases-*"):
            if old != target:
                shutil.rmtree(old, ignore_errors=True)
        self._complete.touch()
        start()

    def _bootstrap(self) -> None:
        keys = ["--keystone-user", "root", "--keystone-group", "root"]
        self._run("keystone-manage", "fernet_setup", *keys)
        self._run("keystone-manage", "credential_setup", *keys)
        self._run(
            "keystone-manage", "bootstrap", "--bootstrap-password", endpoints.PASSWORD,
            "--bootstrap-region-id", endpoints.REGION,
            "--bootstrap-admin-url", endpoints.KEYSTONE_URL,
            "--bootstrap-internal-url", endpoints.KEYSTONE_URL,
            "--bootstrap-public-url", endpoints.KEYSTONE_URL,
        )  # fmt: skip

    def _run(self, program: str, *arguments: str) -> None:
        self._controller.run(
            [self._directory.program(program), *arguments],
            environment=base_environment(self._directory),
            timeout_s=_SYNC_TIMEOUT_S,
        )


_NEUTRON = ("neutron-db-manage", "--config-file", "/etc/neutron/neutron.conf")
_SYNCHRONIZATIONS: dict[str, list[tuple[str, ...]]] = {
    "keystone": [("keystone-manage", "db_sync")],
    "glance": [("glance-manage", "db_sync")],
    "placement": [("placement-manage", "db", "sync")],
    "nova_api": [
        ("nova-manage", "api_db", "sync"),
        (
            "nova-manage", "cell_v2", "map_cell0",
            "--database_connection", endpoints.database_url("nova_cell0"),
        ),
        ("nova-manage", "cell_v2", "create_cell", "--name", "cell1"),
        ("nova-manage", "db", "sync"),
    ],
    "cinder": [("cinder-manage", "db", "sync")],
    "neutron": [(*_NEUTRON, "upgrade", "heads")],
}  # fmt: skip
SYNCHRONIZED = tuple(_SYNCHRONIZATIONS)


def _copy(source: pathlib.Path, target: pathlib.Path) -> None:
    processes.run(["cp", "-a", "--sparse=auto", str(source), str(target)], timeout_s=120.0)
