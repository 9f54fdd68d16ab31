"""Initial state of a one-box: filled databases, an uploaded guest. Made once, then copied."""

import contextlib
import hashlib
import pathlib
import shutil
from collections.abc import Callable

from testbed import processes
from testbed.guest import recipe
from testbed.onebox import environment, network
from testbed.onebox.configuration import endpoints, infrastructure
from testbed.onebox.directory import OneBoxDirectory
from testbed.onebox.host import Host
from testbed.onebox.services import base_environment

#: Raise it when what is put into fresh databases changes.
CONTENT_VERSION = 4
_COPY_TIMEOUT_S = 120.0
_SYNC_TIMEOUT_S = 420.0
#: The databases, and what their content belongs to: Keystone's keys, which decrypt credentials.
_COPIED = ("mariadb", "keystone")
#: The images' data, which Glance deletes but never changes.
_LINKED = ("glance/images",)


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
        digest.update(recipe.GuestRecipe().key().encode())
        digest.update(processes.run(["/usr/sbin/mariadbd", "--version"]).encode())
        return self._directory.cache / f"databases-{digest.hexdigest()[:16]}"

    def restore(self) -> None:
        """Put the cached databases in the place of incomplete ones, or nothing where none are.

        To be called before the controller starts: it sees the folders that are there then.
        """
        if self.are_complete:
            return
        for part in (*_COPIED, *_LINKED):
            shutil.rmtree(self._state / part, ignore_errors=True)
        if self.cached.is_dir():
            _copy(self.cached, self._state)
            self._complete.touch()

    def install(self) -> None:
        """Make MariaDB's own tables, unless they are there.

        :raises ToolFailedError: when MariaDB cannot make them.
        """
        if (self._state / "mariadb" / "mysql").is_dir():
            return
        self._run(
            "/usr/bin/mariadb-install-db", f"--defaults-file={infrastructure.MARIADB_CONFIG}",
            "--user=root", "--auth-root-authentication-method=normal", "--skip-test-db",
        )  # fmt: skip

    def sync(self, service: str) -> None:
        """Create the tables of a service.

        :raises ToolFailedError: when the service's program fails.
        """
        for command in _SYNCHRONIZATIONS[service]:
            self._run(*command)
        if service == "keystone":
            self._bootstrap()

    def upgrade_acstor(self) -> None:
        """Make the tables of ACStor, or those that a newer checkout has; never cached.

        :raises ToolFailedError: when its program fails.
        """
        self._run("acstor", "database", "upgrade")

    def complete(self, stop: Callable[[], None], start: Callable[[], None]) -> None:
        """Keep the filled databases for the next time.

        :param stop: stops MariaDB, whose files are consistent then.
        """
        stop()
        target = self.cached
        building = target.with_name(f"{target.name}.new")
        shutil.rmtree(building, ignore_errors=True)
        _copy(self._state, building)
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
            [program if program.startswith("/") else self._directory.program(program), *arguments],
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
    """Put the content of one folder in the place of another's."""
    for part in (*_COPIED, *_LINKED):
        shutil.rmtree(target / part, ignore_errors=True)
        (target / part).parent.mkdir(parents=True, exist_ok=True)
        link = ["--link"] if part in _LINKED else []
        copy = ["cp", "--archive", *link, str(source / part), str(target / part)]
        processes.run(copy, timeout_s=_COPY_TIMEOUT_S)
