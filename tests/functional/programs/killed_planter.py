"""Plants a link and is killed, by SIGKILL, before or after one of the changes that takes.

Arguments: nova.conf, mount point, image id, number of the change, ``before`` or ``after``. Exits
with 0 when there are fewer changes.
"""

import os
import signal
import sys

from acstor.drivers.nova.image_links import nova_settings
from acstor.drivers.nova.image_links.planting import Planter
from testbed.doubles.faulty_file_operations import FaultyFileOperations


def main() -> None:
    configuration, mount_point, image_id, step, when = sys.argv[1:]
    files = FaultyFileOperations(
        int(step),
        is_after=when == "after",
        act=lambda: os.kill(os.getpid(), signal.SIGKILL),
    )
    settings = nova_settings.read([configuration], [])
    planter = Planter(settings, mount_point, "h1", files)
    planter.prepare()
    planter.plant(image_id)


if __name__ == "__main__":
    main()
