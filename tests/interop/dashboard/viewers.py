"""Cost of the live page with many hosts and many viewers, on Horizon and on the API.

Horizon with the plug-in in one process, the API in a second one, viewers in this: each has logged
in, and asks for the page of the cluster at the page's own distance, with the cursor of what it saw
last, as the script of the page does. Two parts, each as long: hosts that tell their state, each
every five seconds, so every look finds something new; and hosts that say nothing.

Servers are the standard library's, with a thread for each connection, and one process each.

One command: ``python -m tests.interop.dashboard.viewers [--hosts N] [--viewers N] [--seconds S]``.
"""

import argparse
import contextlib
import dataclasses
import os
import pathlib
import random
import re
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import requests

from acstor.cluster.member import Member
from acstor.telemetry.host_states import HostState
from testbed.fixtures.conditions import wait_for
from testbed.fixtures.documents import ROOT
from tests.interop.dashboard import loopback
from tests.interop.dashboard.identity import PASSWORD, Identity
from tests.unit.dashboard.trusting_api import ROLES, Api

PAGE = "/admin/acstor_cluster/"
TELL_SECONDS = 5.0
"""Distance of the states that a host tells, as agents do by default."""
ANSWER_SECONDS = 60.0
START_SECONDS = 180.0
_TOKEN = re.compile(r'name="csrfmiddlewaretoken" value="(\w+)"')
_DISTANCE = re.compile(r'data-acstor-refresh="(\d+)"')
_CURSOR = re.compile(r'data-acstor-etag="&quot;([0-9a-f]+)&quot;"')


class Cluster:
    """The API with hosts that tell their states, and Keystone before it.

    :param count: of hosts.
    :param tells: whether they tell anything; a file, looked at before each state.
    """

    def __init__(self, count: int, tells: pathlib.Path) -> None:
        self.api = Api()
        self.api.role = "admin"
        self.api.setting.gate.checks_answers = False  # as deployments have it
        self._names = [f"cmp-{number:04}" for number in range(count)]
        self.api.setting.members = {name: _member(name) for name in self._names}
        self._tells = tells
        self._random = random.Random(1)
        self.identity: Callable[..., Iterable[bytes]] = lambda *_: []

    def __call__(self, environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
        """Answer."""
        if environ["PATH_INFO"].startswith("/identity"):
            return self.identity(environ, start_response)
        self.api.calls.clear()
        return self.api(environ, start_response)

    def tell(self) -> None:
        """Have each host tell its state, one after the other, for as long as they do."""
        for sequence in range(1, sys.maxsize):
            for name in self._names:
                time.sleep(TELL_SECONDS / len(self._names))
                if self._tells.exists():
                    self.api.setting.watch.note(self._state(name, sequence))

    def _state(self, name: str, sequence: int) -> Any:
        moved = [self._random.uniform(0, 1e9) for _ in range(2)]
        known = HostState(name, sequence, "0.1.0", is_up=True, is_draining=False)
        changes: dict[str, Any] = {
            "moved_in": moved[0], "moved_out": moved[1], "load": self._random.random(),
        }  # fmt: skip
        return dataclasses.replace(known, **changes).to_message()


def _member(name: str) -> Member:
    return Member(name, "192.0.2.1:9470", f"{name}:9471", 200 << 30, "0.1.0", "pod-1/rack-2")


def serve(folder: pathlib.Path, hosts: int) -> None:
    """Serve the API and Keystone until the process is ended; write the URL into a file."""
    cluster = Cluster(hosts, folder / "tells")
    with loopback.served(cluster) as url:
        cluster.identity = Identity(
            url, lambda: cluster.api.setting.project, lambda: ROLES[cluster.api.role]
        )
        (folder / "url.new").write_text(url)
        (folder / "url.new").rename(folder / "url")
        cluster.tell()


class Viewer(threading.Thread):
    """One who looks at the page.

    :param url: of Horizon.
    :param number: of the viewer: they do not look in step.
    """

    def __init__(self, url: str, number: int) -> None:
        super().__init__(name=f"viewer-{number}", daemon=True)
        self._url = url
        self._session = requests.Session()
        self._session.trust_env = False
        self._cursor: str | None = None
        self._is_over = threading.Event()
        self._random = random.Random(number)
        self._distance = 0.0
        self.looks: list[tuple[float, int]] = []
        """Seconds and status of each look."""

    def log_in(self) -> None:
        """Log in, and see the page once."""
        login = f"{self._url}/auth/login/"
        form = self._session.get(login, timeout=ANSWER_SECONDS).text
        found = _TOKEN.search(form)
        assert found is not None, form
        fields = {"csrfmiddlewaretoken": found[1], "username": "alice", "password": PASSWORD}
        fields |= {"region": "default", "next": PAGE}
        answer = self._session.post(
            login, fields, headers={"Referer": login}, timeout=ANSWER_SECONDS
        )
        assert answer.url.endswith(PAGE), answer.text
        self._see(answer)

    def run(self) -> None:
        """Look at the page's distance from the end of a look to the next, until told to stop."""
        pause = self._random.uniform(0, self._distance)
        while not self._is_over.wait(pause):
            pause = self._distance
            begun = time.monotonic()
            headers = {"If-None-Match": f'"{self._cursor}"'} if self._cursor else {}
            answer = self._session.get(
                f"{self._url}{PAGE}", headers=headers, timeout=ANSWER_SECONDS
            )
            self.looks.append((time.monotonic() - begun, answer.status_code))
            if answer.status_code == 200:
                self._see(answer)

    def stop(self) -> None:
        """End it, after the look that it is in."""
        self._is_over.set()
        self.join()

    def _see(self, answer: requests.Response) -> None:
        cursor, distance = _CURSOR.search(answer.text), _DISTANCE.search(answer.text)
        assert cursor is not None, answer.text
        assert distance is not None, answer.text
        self._cursor, self._distance = cursor[1], float(distance[1])


@contextlib.contextmanager
def started(
    command: list[str], told: pathlib.Path, environment: dict[str, str]
) -> Iterator[subprocess.Popen[bytes]]:
    """Run a process of Python within the block, once it has written the file."""
    process = subprocess.Popen(
        [sys.executable, "-m", *command], cwd=ROOT, env={**os.environ, **environment},
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    try:
        is_there = lambda: told.exists() or process.poll() is not None  # noqa: E731 - a condition
        wait_for(f"{command[0]} serves", is_there, START_SECONDS, interval=0.1)
        assert process.poll() is None, f"{command[0]} ended with {process.returncode}"
        yield process
    finally:
        process.kill()
        process.wait()


def processor_seconds(process: subprocess.Popen[bytes]) -> float:
    """Return the user and system time that a process has used."""
    fields = pathlib.Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def measure(
    what: str, viewers: list[Viewer], processes: dict[str, subprocess.Popen[bytes]], seconds: float
) -> str:
    """Return a line about what viewers and processes did in so many seconds."""
    before = {name: processor_seconds(process) for name, process in processes.items()}
    counts = [len(viewer.looks) for viewer in viewers]
    begun = time.monotonic()
    time.sleep(seconds)
    length = time.monotonic() - begun
    used = {name: (processor_seconds(process) - before[name]) / length
            for name, process in processes.items()}  # fmt: skip
    looks = [look for viewer, count in zip(viewers, counts, strict=True)
             for look in viewer.looks[count:]]  # fmt: skip
    times = sorted(taken for taken, _ in looks)
    same = sum(status == 304 for _, status in looks) / len(looks)
    bad = sum(status not in (200, 304) for _, status in looks)
    cores = ", ".join(f"{name} {one:.2f}" for name, one in used.items())
    return (
        f"{what}: {len(looks) / length:.1f} looks/s, {same:.0%} unchanged, {bad} failed; "
        f"p50 {statistics.median(times):.3f} s, p99 {times[int(0.99 * (len(times) - 1))]:.3f} s; "
        f"cores: {cores}"
    )


def main(argv: list[str] | None = None) -> int:
    """Measure, and print a line for each part."""
    parser = argparse.ArgumentParser(prog="python -m tests.interop.dashboard.viewers")
    parser.add_argument("--hosts", type=int, default=1000)
    parser.add_argument("--viewers", type=int, default=50)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--serve", type=pathlib.Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args(argv)
    if arguments.serve is not None:
        serve(arguments.serve, arguments.hosts)
    with tempfile.TemporaryDirectory(prefix="acstor-viewers-") as directory:
        folder = pathlib.Path(directory)
        own = ["tests.interop.dashboard.viewers", "--hosts", str(arguments.hosts)]
        with started([*own, "--serve", directory], folder / "url", {}) as api:
            environment = {
                **loopback.PAST_PROXIES,
                "ACSTOR_TEST_HORIZON": directory,
                "ACSTOR_TEST_KEYSTONE": f"{(folder / 'url').read_text()}/identity/v3",
                "PYTHONPATH": os.pathsep.join(
                    map(str, (ROOT, ROOT / "clients", ROOT / "dashboard"))
                ),
            }
            horizon_program = ["tests.interop.dashboard.horizon"]
            with started(horizon_program, folder / "port", environment) as horizon:
                url = f"http://127.0.0.1:{(folder / 'port').read_text()}"
                processes = {"horizon": horizon, "api": api}
                viewers = [Viewer(url, number) for number in range(arguments.viewers)]
                for viewer in viewers:
                    viewer.log_in()
                    viewer.start()
                (folder / "tells").touch()
                print(measure("hosts tell", viewers, processes, arguments.seconds), flush=True)
                (folder / "tells").unlink()
                print(measure("hosts silent", viewers, processes, arguments.seconds), flush=True)
                for viewer in viewers:
                    viewer.stop()
    return 0


if __name__ == "__main__":
    sys.exit(main())
