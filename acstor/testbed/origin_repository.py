"""The testbed's origin: a POSIX directory with one registered image, served in its namespace."""

import json
import pathlib
import uuid

from acstor.testbed import exception, processes
from acstor.testbed.guest.build import GuestImage
from acstor.testbed.host_processes import program, write_configuration
from acstor.testbed.testbed import Testbed

PORT = 8420
READY_TIMEOUT_S = 20.0
REGISTRATION_TIMEOUT_S = 300.0


class OriginRepository:
    """One repository per run: the image is registered once, by the command line, as anyone would.

    Registration reads and writes the directory itself; hosts reach it over HTTP, through the
    origin's shaped link.
    """

    def __init__(self, testbed: Testbed, image: GuestImage) -> None:
        self._testbed = testbed
        self._image = image
        self._directory = testbed.run.directory("origin")
        self._root = testbed.run.directory("origin", "repository")
        self._config = self._directory / "acstor.conf"
        self._server: processes.RunningProcess | None = None
        #: Derived from the guest, so that runs agree on it.
        self.image_id = str(uuid.uuid5(uuid.NAMESPACE_OID, image.directory.name))

    @property
    def url(self) -> str:
        """Return the URL that hosts have in their configuration."""
        return f"http://{self._testbed.origin.address}:{PORT}/"

    def register(self) -> None:
        """Make the repository and register the image, unless that is done.

        :raises ToolFailedError: when the command fails.
        """
        done = self._directory / "registered"
        if done.exists():
            return
        url = f"posix://{self._root}"
        write_configuration(
            self._config,
            {"DEFAULT": {"state_path": str(self._directory)}, "origin": {"url": url}},
        )
        self._command("repository", "init")
        disk = str(self._image.disk)
        self._command("image", "register", "--id", self.image_id, "--disk-format", "raw", disk)
        done.touch()

    def serve(self) -> None:
        """Start the web server in the origin's namespace and wait until it listens."""
        origin = self._testbed.origin
        command = [program("acstor-testbed"), "origin", f"posix://{self._root}"]
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
        record = json.loads((self._root / "refs" / "images" / self.image_id).read_text())
        manifest = str(record["manifest"])
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
