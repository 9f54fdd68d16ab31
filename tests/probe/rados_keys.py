"""The keys of Ceph that the page for operators has them make."""

import pathlib
import re
import urllib.parse

from acstor.origin.rados.origin import RadosOrigin
from testbed.fixtures.ceph import CephNode
from tests.ceph import POOL
from tests.compliance.origins import RADOS_SECONDS

PAGE = pathlib.Path(__file__).parents[2] / "doc" / "source" / "admin" / "ceph.rst"
_COMMAND = re.compile(
    r"# ceph auth get-or-create client\.(?P<name>\S+) mon '(?P<mon>[^']+)' \\\s+"
    r"osd '(?P<osd>[^']+)'"
)
CONTROLLER, HOST, READER = "acstor", "acstor-host", "acstor-reader"


def make(node: CephNode) -> None:
    """Make all of them."""
    made = set()
    for found in _COMMAND.finditer(PAGE.read_text()):
        osd = " ".join(found["osd"].split())
        node.make_client(found["name"], mon=found["mon"], osd=osd)
        made.add(found["name"])
    assert made == {CONTROLLER, HOST, READER}


def opened(node: CephNode, name: str) -> RadosOrigin:
    """Open the repository that the page names, as one of its clients."""
    options = {"conf": str(node.configuration), "timeout": f"{RADOS_SECONDS:g}"}
    if name != CONTROLLER:
        options["role"] = "host"
    url = f"rados://{name}@{POOL}?{urllib.parse.urlencode(options)}"
    return RadosOrigin.from_url(urllib.parse.urlsplit(url))
