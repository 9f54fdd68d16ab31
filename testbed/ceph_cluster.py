"""Making of a small Ceph: options, keys, and what makes the data of its daemons, wherever they run.

One monitor and one manager, everything at one address; BlueStore on files, one copy of each object
unless a pool says otherwise; everybody authenticates.
"""

import dataclasses
from collections.abc import Iterator, Mapping, Sequence

MONITOR, MANAGER = "a", "x"
CAPABILITIES = {
    "mon.": {"mon": "allow *"},
    "client.admin": {"mon": "allow *", "mgr": "allow *", "osd": "allow *"},
    f"mgr.{MANAGER}": {"mon": "allow profile mgr", "osd": "allow *"},
}
"""Of the keys that a new cluster has, beside those of OSDs."""
CAPABILITIES_OSD = {"mon": "allow profile osd", "mgr": "allow profile osd", "osd": "allow *"}
MANAGER_MODULES = (
    "balancer", "crash", "devicehealth", "orchestrator", "pg_autoscaler", "progress",
    "rbd_support", "status", "telemetry", "volumes",
)  # fmt: skip
"""Those that are loaded whatever is enabled: here without use, 300 MB, and most of the start."""
DAEMONS = ("mon", "osd", "mgr")
"""Kinds of daemons, and their sections of ceph.conf."""


@dataclasses.dataclass(frozen=True)
class Cluster:
    """A cluster to make.

    :param address: where all daemons listen.
    :param ports: of the monitor: of the newer protocol, and of the older one.
    :param data: directory of the daemons' data, the keyring among it.
    :param run: directory of their sockets, whose paths are short.
    :param osd_bytes: of each OSD's file, which is sparse.
    """

    fsid: str
    address: str
    ports: tuple[int, int]
    data: str
    run: str
    osd_bytes: int

    @property
    def monitors(self) -> str:
        """Addresses of the monitor; with the older protocol's alone clients hang."""
        newer, older = self.ports
        return f"[v2:{self.address}:{newer},v1:{self.address}:{older}]"

    @property
    def keyring(self) -> str:
        """Path of the file with every key."""
        return f"{self.data}/keyring"

    def options(self) -> dict[str, str]:
        """Return the section ``global`` of ceph.conf, without keyring and logs."""
        return {
            "fsid": self.fsid,
            "mon host": self.monitors,
            "public addr": self.address,
            "cluster addr": self.address,
            "auth cluster required": "cephx",
            "auth service required": "cephx",
            "auth client required": "cephx",
            "osd pool default size": "1",
            "osd pool default min size": "1",
            "mon allow pool size one": "true",
            "mon allow pool delete": "true",
            "osd crush chooseleaf type": "0",
            "mon data": f"{self.data}/mon",
            "osd data": f"{self.data}/osd.$id",
            "mgr data": f"{self.data}/mgr",
            "osd objectstore": "bluestore",
            "bluestore block size": str(self.osd_bytes),
            "osd memory target": str(896 << 20),
            "osd pool default pg autoscale mode": "off",
            "mon osd down out interval": "86400",
            "mon max pg per osd": "2000",
            "mon data avail crit": "1",
            "mgr initial modules": "",
            "mgr disabled modules": ",".join(MANAGER_MODULES),
        }

    def daemon_options(self) -> dict[str, str]:
        """Return what the section of each kind of daemon has, and clients have not."""
        return {"run dir": self.run, "admin socket": f"{self.run}/$name.asok"}

    def folders(self, osd_count: int = 1) -> Iterator[str]:
        """Yield the directories of the daemons' data."""
        for name in ("mon", "mgr", *(f"osd.{number}" for number in range(osd_count))):
            yield f"{self.data}/{name}"

    def key_commands(
        self, osd_count: int = 1, clients: Mapping[str, Mapping[str, str]] | None = None
    ) -> Iterator[Sequence[str]]:
        """Yield the commands that make the keyring.

        :param clients: capabilities of more keys, by the name, as ``client.acstor``.
        """
        yield "ceph-authtool", "--create-keyring", self.keyring
        osds = {f"osd.{number}": CAPABILITIES_OSD for number in range(osd_count)}
        for name, capabilities in {**CAPABILITIES, **osds, **(clients or {})}.items():
            options = [option for pair in capabilities.items() for option in ("--cap", *pair)]
            yield "ceph-authtool", self.keyring, "--gen-key", "--name", name, *options

    def monitor_commands(self) -> Iterator[Sequence[str]]:
        """Yield the commands that make the monitor, which knows the keys of the keyring."""
        table = f"{self.data}/monmap"
        yield (
            "monmaptool", "--create", "--addv", MONITOR, self.monitors, "--fsid", self.fsid, table,
        )  # fmt: skip
        mkfs = ("--mkfs", f"--id={MONITOR}", f"--monmap={table}", f"--keyring={self.keyring}")
        yield "ceph-mon", *mkfs

    def osd_commands(self, number: int, osd_uuid: str) -> Iterator[Sequence[str]]:
        """Yield the commands that make an OSD; the monitor is up, and this is the next number."""
        # With another uuid than that of its disk the monitor never takes the OSD for up.
        yield "ceph", "--connect-timeout", "200", "osd", "create", osd_uuid
        yield "ceph-osd", f"--id={number}", "--mkfs", f"--osd-uuid={osd_uuid}"
