"""The image as an NBD export of qemu-nbd in the origin's namespace."""

from testbed import processes
from testbed.guest.build import GuestImage
from testbed.testbed import Testbed

PORT = 10809
EXPORT = "guest"
READY_TIMEOUT_S = 20.0


class NbdExport:
    """A read-only export for any number of clients."""

    def __init__(self, testbed: Testbed, image: GuestImage) -> None:
        self._testbed = testbed
        self._image = image
        self._process: processes.RunningProcess | None = None

    @property
    def uri(self) -> str:
        """Return where clients find it."""
        return f"nbd://{self._testbed.origin.address}:{PORT}/{EXPORT}"

    def start(self) -> None:
        """Start the server and wait until it answers.

        :raises NotReadyError: when it does not.
        """
        command = ["qemu-nbd", "--read-only", "--persistent", "--shared=0", "--format=raw"]
        command += ["--cache=writeback", "--aio=threads", f"--export-name={EXPORT}"]
        command += [f"--bind={self._testbed.origin.address}", f"--port={PORT}"]
        origin = self._testbed.origin
        self._process = self._testbed.table.spawn(
            "origin-nbd", [*command, str(self._image.disk)], namespace=origin
        )
        processes.wait_until(
            lambda: processes.is_listening(origin, PORT),
            "the NBD export of the origin answers",
            timeout_s=READY_TIMEOUT_S,
            processes=[self._process],
        )

    def stop(self) -> None:
        """Stop the server."""
        if self._process is not None:
            self._testbed.table.stop(self._process)
            self._process = None
