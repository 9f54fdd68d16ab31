"""The testbed's origin: a POSIX directory with one registered image, served in its namespace."""

import pathlib
import uuid

from acstor.origin.posix import PosixOrigin
from acstor.repository.repository import Repository
from testbed import exception, processes
from testbed.host_processes import program, write_configuration
from testbed.testbed import Testbed

PORT = 8420
READY_TIMEOUT_S = 20.0
REGISTRATION_TIMEOUT_S = 600.0


FORMAT_VERSION = "5"
"""Of the repository: its chunks are stored plain, so that bytes out of the origin are bytes that
guests read, as they are of the approaches that ACStor is compared with."""


class OriginRepository:
    """One repository per run: the image is registered once, by the command line, as anyone would.

    Registration reads and writes the directory itself; hosts reach it over HTTP, through the
    origin's shaped link.
    """

    def __init__(
        self, testbed: Testbed, disk: pathlib.Path, name: str, chunk_size: int | None = None
    ) -> None:
        """Make the directories; register nothing yet.

        :param disk: raw disk to register.
        :param name: names the disk's content; the image's id derives from it.
        :param chunk_size: bytes; None: the default of ``acstor repository init``.
        """
        self._testbed = testbed
        self._disk = disk
        self._init_options = ["--format-version", FORMAT_VERSION]
        if chunk_size is not None:
            self._init_options += ["--chunk-size", f"{chunk_size}B"]
        self._directory = testbed.run.directory("origin")
        self._root = testbed.run.directory("origin", "repository")
        self._config = self._directory / "acstor.conf"
        self._server: processes.RunningProcess | None = None
        self.image_id = str(uuid.uuid5(uuid.NAMESPACE_OID, name))

    @property
    def url(self) -> str:
        """Return the URL that hosts have in their configuration."""
        return f"http://{self._testbed.origin.address}:{PORT}/"

    @property
    def directory_url(self) -> str:
        """Return the URL of the same repository without the link: the directory itself."""
        return f"posix://{self._root}"

    def register(self) -> None:
        """Make the repository and register the image, unless that is done.

        :raises ToolFailedError: when the command fails.
        """
        done = self._directory / "registered"
        if done.exists():
            return
        options = {"state_path": str(self._directory)}
        write_configuration(
            self._config, {"DEFAULT": options, "origin": {"url": self.directory_url}}
        )
        self._command("repository", "init", *self._init_options)
        command = ["image", "register", "--id", self.image_id, "--disk-format", "raw"]
        self._command(*command, str(self._disk))
        done.touch()

    def serve(self) -> None:
        """Start the web server in the origin's namespace and wait until it listens."""
        origin = self._testbed.origin
        command = [*processes.module("testbed"), "origin", self.directory_url]
        command += ["--address", origin.address, "--port", str(PORT)]
        self._server = self._testbed.table.spawn("origin-http", command, namespace=origin)
        processes.wait_until(
            lambda: processes.is_listening(origin, PORT),
            "the origin listens",
            timeout_s=READY_TIMEOUT_S,
            processes=[self._server],
        )

    def manifest_file(self) -> pathlib.Path:
        """Return the file of the image's manifest."""
        found = Repository.open(PosixOrigin(str(self._root))).get_image(self.image_id)
        manifest = found.record.manifest
        path = self._root / "manifests" / manifest[:2] / manifest
        if not path.is_file():
            raise exception.TestbedError(
                f"the manifest of image {self.image_id} is missing: {path}"
            )
        return path

    def stop(self) -> None:
        """Stop the web server; the repository stays for the next approach."""
        if self._server is not None:
            self._testbed.table.stop(self._server)
            self._server = None

    def _command(self, *arguments: str) -> str:
        command = [program("acstor"), "--config-file", str(self._config), *arguments]
        return processes.run(command, timeout_s=REGISTRATION_TIMEOUT_S)
