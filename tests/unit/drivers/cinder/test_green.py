"""The driver in a process that eventlet has patched, as cinder-volume is by default."""

import json
import subprocess
import sys

PROGRAM = """
import eventlet
eventlet.monkey_patch()
import json, os, sys, tempfile, threading, time
from acstor import exception
from acstor.drivers.cinder.disk_import import DiskImport
from acstor.drivers.cinder.hosts import call_each
from acstor.origin.opening import open_origin
from acstor.repository import registration
from acstor.repository.repository import Repository
from acstor.rpc import transport

ticks = 0


def tick():
    global ticks
    while True:
        ticks += 1
        eventlet.sleep(0.005)


eventlet.spawn(tick)
with tempfile.TemporaryDirectory() as directory:
    os.mkdir(f"{directory}/origin")
    repository = Repository.init(open_origin(f"posix://{directory}/origin", 5))
    importer = DiskImport(repository, None)
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
    transport.within(0.1, lambda: time.sleep(30))
    in_time = False
except TimeoutError:
    in_time = True
print(json.dumps([len(published), packs, len(answers), in_time, ticks > 10]))
"""


def test_storing_and_calling_give_way_to_others_and_end() -> None:
    run = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", PROGRAM],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert run.returncode == 0, run.stderr
    assert json.loads(run.stdout.splitlines()[-1]) == [1, 16, 8, True, True]
