"""The keys of Ceph that the page for operators has them make."""

import pathlib
import re
import urllib.parse

from acstor.origin.rados.origin import NAMESPACE_DEFAULT
from testbed.fixtures.ceph import CephNode
from tests.ceph import POOL, REF_POOL
from tests.compliance.origins import RADOS_SECONDS

PAGE = pathlib.Path(__file__).parents[2] / "doc" / "source" / "admin" / "ceph.rst"
_COMMAND = re.compile(
    r"# ceph auth get-or-create client\.(?P<name>\S+) mon '(?P<mon>[^']+)' \\\s+"
    r"osd '(?P<osd>[^']+)'"
)
CONTROLLER, HOST, READER = "acstor", "acstor-host", "acstor-reader"


def make(node: CephNode, namespace: str = NAMESPACE_DEFAULT, ref_pool: str = POOL) -> None:
    """Make all of them, for the repository in a namespace."""
    made = set()
    for found in _COMMAND.finditer(PAGE.read_text()):
        osd = " ".join(found["osd"].split()).replace("namespace=acstor.", f"namespace={namespace}.")
        osd = osd.replace(f"pool={REF_POOL} ", f"pool={ref_pool} ")
        node.make_client(f"{found['name']}.{namespace}", mon=found["mon"], osd=osd)
        made.add(found["name"])
    assert made == {CONTROLLER, HOST, READER}


def url(node: CephNode, name: str, namespace: str = NAMESPACE_DEFAULT, ref_pool: str = POOL) -> str:
    """Return the URL that the page has one of its clients open a repository by."""
    options = {
        "conf": str(node.configuration),
        "namespace": namespace,
        "timeout": f"{RADOS_SECONDS:g}",
    }
    if ref_pool != POOL:
        options["ref_pool"] = ref_pool
    if name != CONTROLLER:
        options["role"] = "host"
    return f"rados://{name}.{namespace}@{POOL}?{urllib.parse.urlencode(options)}"
