"""A volume's file as cinder-volume and cinder-backup use it: under eventlet, and in its threads.

Run as ``green_volume_file.py <NBD socket> <export>``; says how often others had a turn meanwhile.
"""

import warnings

warnings.simplefilter("ignore")

import eventlet  # noqa: E402

eventlet.monkey_patch()

import json  # noqa: E402
import os  # noqa: E402
import sys  # noqa: E402

from eventlet import tpool  # noqa: E402

from acstor.drivers.brick.volume_file import VolumeFile  # noqa: E402

MIB = 1 << 20


def main() -> None:
    """Write and read in a green thread, then through a proxy in a native one."""
    turns = 0

    def take_turns() -> None:
        nonlocal turns
        while True:
            turns += 1
            eventlet.sleep(0)

    other = eventlet.spawn(take_turns)
    content = os.urandom(2 * MIB)
    with VolumeFile(*sys.argv[1:]) as file:
        file.write(content)
        file.seek(0)
        is_green_right = file.read(len(content)) == content
    green_turns, turns = turns, 0
    with VolumeFile(*sys.argv[1:]) as file:
        proxy = tpool.Proxy(file)
        proxy.seek(0)
        is_native_right = proxy.read(len(content)) == content
        proxy.write(content)
        proxy.flush()
    other.kill()
    print(json.dumps([is_green_right, green_turns > 0, is_native_right, turns > 0]))


main()
