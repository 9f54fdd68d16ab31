"""The driver in a process that eventlet has patched, as cinder-volume is by default."""

import json
import subprocess
import sys
import types

import pytest

from acstor.drivers.cinder.native_threads import DirectCaller, NativeThreadCaller, find_caller

pytest.importorskip("eventlet", reason="eventlet is not installed")

PROGRAM = """
import eventlet
eventlet.monkey_patch()
import json, os, sys, tempfile, threading, time
from acstor import exception
from acstor.drivers.cinder.disk_import import DiskImport
from acstor.drivers.cinder.hosts import call_each
from acstor.drivers.cinder.native_threads import around, find_caller
from acstor.origin.opening import open_origin
from acstor.repository.images import registration
from acstor.repository.repository import Repository
from acstor import abandoned_call

ticks = 0


def tick():
    global ticks
    while True:
        ticks += 1
        eventlet.sleep(0.005)


eventlet.spawn(tick)
with tempfile.TemporaryDirectory() as directory:
    os.mkdir(f"{directory}/origin")
    url = f"posix://{directory}/origin"
    repository = Repository.init(
        open_origin(url, 5, lambda origin: around(find_caller(), origin))
    )
    importer = DiskImport(repository, None, find_caller())
    importer._settings = registration.Settings(pack_size=1 << 20, workers=2)
    with open(f"{directory}/disk", "wb") as file:
        file.write(os.urandom(16 << 20))
    published = []
    importer.store(f"{directory}/disk", published.append)
    packs = len(list(repository.origin.list("packs/")))
# Nobody passes the barrier before all have come to it.
together = threading.Barrier(8)
answers = call_each({str(n): lambda: together.wait(60) for n in range(8)})
try:
    abandoned_call.within(0.1, lambda: time.sleep(30))
    in_time = False
except TimeoutError:
    in_time = True
print(json.dumps([len(published), packs, len(answers), in_time, ticks > 10]))
"""

HANGING_ORIGIN = """
import eventlet
eventlet.monkey_patch()
import json, os, tempfile, types
from eventlet import patcher, tpool
from acstor.drivers.cinder import back_end
from acstor.origin.faulty import Effect, Fault, FaultyOrigin, Operation
from acstor.origin.posix import PosixOrigin
from acstor.origin.retrying import RetryingOrigin
from acstor.repository.repository import Repository

Event = patcher.original("threading").Event  # what a call into the kernel is: no green thread
ticks = 0


def tick():
    global ticks
    while True:
        ticks += 1
        eventlet.sleep(0.001)


def reached(condition):
    with eventlet.Timeout(60, False):
        while not condition():
            eventlet.sleep(0.001)
        return True
    return False


begun, answered = Event(), Event()


def hang(seconds):
    begun.set()
    answered.wait(seconds)


tpool.set_num_threads(2)  # for all back-ends of the process
with tempfile.TemporaryDirectory() as directory:
    Repository.init(PosixOrigin(directory))
    faulty = FaultyOrigin(PosixOrigin(directory), sleep=hang)
    settings = {"acstor_origin_url": f"posix://{directory}", "acstor_origin_timeout": 5.0}
    driver = back_end.open_back_end(
        types.SimpleNamespace(safe_get=settings.get),
        None,
        open_origin=lambda url, timeout, around: RetryingOrigin(around(faulty), timeout),
        hosts=object(),
    )
    faulty.faults = [Fault(Operation.GET_REF, Effect.DELAY, call=None, delay_seconds=100)]
    eventlet.spawn(tick)
    name = "00000000-0000-0000-0000-000000000001"
    calls = [eventlet.spawn(driver.volumes.find, name) for _ in range(4)]
    is_hung = reached(begun.is_set) and not answered.is_set()
    before = ticks
    goes_on = reached(lambda: ticks >= before + 100) and not any(call.dead for call in calls)
    others = eventlet.spawn(tpool.execute, os.getpid)  # another driver's
    others_go_on = reached(lambda: others.dead) and not any(call.dead for call in calls)
    answered.set()
    ended = [call.wait() for call in calls]
    total = driver.capacity().total
print(json.dumps([is_hung, goes_on, others_go_on, ended, total > 0]))
"""


def run(program: str) -> object:
    """Return what a program prints in its last line, JSON."""
    ended = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", program],
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    return json.loads(ended.stdout.splitlines()[-1])


def test_storing_and_calling_give_way_to_others_and_end() -> None:
    assert run(PROGRAM) == [1, 16, 8, True, True]


def test_origin_that_hangs_stops_neither_the_service_nor_other_back_ends() -> None:
    assert run(HANGING_ORIGIN) == [True, True, True, [None] * 4, True]


@pytest.mark.parametrize("is_patched", [None, False, True])
def test_native_threads_are_for_patched_processes(is_patched: bool | None) -> None:
    """None: eventlet is not loaded, and need not be installed."""
    patcher = types.SimpleNamespace(is_monkey_patched=lambda name: name == "thread" and is_patched)
    modules = {} if is_patched is None else {"eventlet.patcher": patcher}
    wanted = NativeThreadCaller if is_patched else DirectCaller
    assert type(find_caller(modules)) is wanted
