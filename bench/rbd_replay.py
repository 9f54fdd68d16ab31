"""Replay a boot trace against an image of RBD, by librbd without its cache, one per process.

``python -m bench.rbd_replay CEPH_CONF TRACE POOL/IMAGE``; every byte is checked.
"""

import contextlib
import pathlib
import sys

from acstor.exception import AcstorError
from acstor.origin.rados import binding
from testbed import boot_trace
from testbed.replay import replay_by

CALL_S = 30
CONFIGURATION = {"rbd_cache": "false", "rados_osd_op_timeout": str(CALL_S)}


def main() -> int:
    """Replay without think times."""
    configuration, path, name = sys.argv[1:]
    pool, _, image_name = name.partition("/")
    rados, rbd = binding.load(), binding.load(binding.RBD)
    with contextlib.ExitStack() as stack:
        cluster = rados.Rados(conffile=configuration, conf=CONFIGURATION)
        cluster.connect(timeout=CALL_S)
        stack.callback(cluster.shutdown)
        context = stack.enter_context(cluster.open_ioctx(pool))
        image = stack.enter_context(rbd.Image(context, image_name, read_only=True))
        try:
            replay_by(image.read, boot_trace.load(pathlib.Path(path)), name, think_scale=0.0)
        except AcstorError as error:
            sys.stderr.write(f"{error}\n")
            return error.exit_status
    return 0


if __name__ == "__main__":
    sys.exit(main())
