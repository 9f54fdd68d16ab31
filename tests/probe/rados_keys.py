"""The keys of Ceph that the page for operators has them make."""

from acstor.origin.rados.location import NAMESPACE_DEFAULT
from testbed import ceph_clients
from testbed.ceph_clients import CONTROLLER, HOST, READER
from testbed.fixtures.ceph import CephNode
from tests.ceph import POOL, REF_POOL
from tests.compliance.origins import RADOS_SECONDS


def make(node: CephNode, namespace: str = NAMESPACE_DEFAULT, ref_pool: str = POOL) -> None:
    """Make all of them, for the repository in a namespace."""
    found = ceph_clients.capabilities()
    assert found.keys() == {CONTROLLER, HOST, READER}
    for name, allowed in found.items():
        osd = allowed["osd"].replace("namespace=acstor.", f"namespace={namespace}.")
        osd = osd.replace(f"pool={REF_POOL} ", f"pool={ref_pool} ")
        node.make_client(f"{name}.{namespace}", mon=allowed["mon"], osd=osd)


def url(node: CephNode, name: str, namespace: str = NAMESPACE_DEFAULT, ref_pool: str = POOL) -> str:
    """Return the URL that the page has one of its clients open a repository by."""
    options: dict[str, str | float] = {"namespace": namespace, "timeout": f"{RADOS_SECONDS:g}"}
    if ref_pool != POOL:
        options["ref_pool"] = ref_pool
    if name != CONTROLLER:
        options["role"] = "host"
    return node.origin_url(POOL, f"{name}.{namespace}", **options)
