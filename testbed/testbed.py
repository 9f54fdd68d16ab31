"""The hosts of one run: a network, an origin, compute hosts, and the processes on them."""

import dataclasses
import json
import pathlib
from types import TracebackType
from typing import Self

from testbed import cleanup, exception, interruption, processes
from testbed.network import Namespace, Network
from testbed.rates import LinkRate
from testbed.run_directory import DEFAULT_ROOT, RunDirectory

HOSTS_MAX = 256
STATE_VERSION = 1

#: Four hosts on it have what forty have on 1 Gbit/s, or four hundred on 10 Gbit/s.
ORIGIN_RATE = LinkRate(100_000_000)
HOST_RATE = LinkRate(1_000_000_000)


@dataclasses.dataclass(frozen=True)
class TestbedSettings:
    """Size and speed of a testbed."""

    __test__ = False

    host_count: int = 4
    origin_rate: LinkRate = ORIGIN_RATE
    host_rate: LinkRate = HOST_RATE

    def __post_init__(self) -> None:
        if not 1 <= self.host_count <= HOSTS_MAX:
            raise exception.TestbedError(
                f"{self.host_count} hosts; 1 to {HOSTS_MAX} are possible", hint="correct --hosts"
            )


class Testbed:
    """A network of hosts; a context manager that leaves nothing behind.

    :param keep: keep logs and state in the run's directory.
    """

    __test__ = False

    def __init__(self, run: RunDirectory, settings: TestbedSettings, *, keep: bool = False) -> None:
        self.run = run
        self.settings = settings
        self.network = Network(run)
        self.table = processes.ProcessTable(run)
        self._keep = keep
        self._detached = False

    @classmethod
    def create(
        cls, settings: TestbedSettings, root: pathlib.Path = DEFAULT_ROOT, *, keep: bool = False
    ) -> Self:
        """Remove what crashed runs left, then create the hosts and their links.

        :raises TestbedError: when the network cannot be made.
        """
        for run in RunDirectory.abandoned(root):
            cleanup.remove(run)
        testbed = cls(RunDirectory.create(root), settings, keep=keep)
        try:
            testbed.network.create()
            testbed.network.add("origin", settings.origin_rate)
            for index in range(settings.host_count):
                testbed.network.add(f"h{index}", settings.host_rate)
            testbed.network.introduce()
        except BaseException:
            testbed.close()
            raise
        return testbed

    @classmethod
    def open(cls, run: RunDirectory) -> Self:
        """Take over a testbed that was left up.

        :raises TestbedError: when its state cannot be read, or another process has it.
        """
        try:
            state = json.loads((run.path / "testbed.json").read_text())
        except (OSError, json.JSONDecodeError) as error:
            raise exception.TestbedError(
                f"run {run.id} has no readable state: {error}",
                hint="remove it: tools/testbed down",
            ) from error
        if state["version"] != STATE_VERSION:
            raise exception.TestbedError(
                f"run {run.id} is of another release", hint="remove it: tools/testbed down"
            )
        members = [
            Namespace(**{**member, "rate": LinkRate(member["rate"])}) for member in state["members"]
        ]
        settings = TestbedSettings(
            host_count=len(members) - 1, origin_rate=members[0].rate, host_rate=members[1].rate
        )
        run.adopt()
        testbed = cls(run, settings)
        testbed.network.open(members)
        testbed._detached = True
        return testbed

    @property
    def origin(self) -> Namespace:
        """Return the member that the origin is."""
        return self.network.members["origin"]

    @property
    def hosts(self) -> list[Namespace]:
        """Return the compute hosts."""
        return [member for name, member in self.network.members.items() if name != "origin"]

    def detach(self) -> None:
        """Leave everything up when this object is closed."""
        members = [dataclasses.asdict(member) for member in self.network.members.values()]
        state = {"version": STATE_VERSION, "members": members}
        (self.run.path / "testbed.json").write_text(json.dumps(state, indent=2) + "\n")
        self.run.detach()
        self._detached = True

    def close(self) -> None:
        """Stop everything and remove it, unless the testbed is detached; bounded in time."""
        with interruption.held_back():
            self.network.close()
            if not self._detached:
                self.table.stop_all()
                cleanup.remove(self.run, keep_directory=self._keep)
            self.run.release()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()
