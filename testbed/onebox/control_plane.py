"""The cloud's APIs, as its administrator uses them."""

import io
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any, BinaryIO

import keystoneauth1.exceptions
from keystoneauth1 import session
from keystoneauth1.identity import v3

from testbed import exception
from testbed.guest.build import GuestImage
from testbed.onebox.configuration import endpoints, networking
from testbed.onebox.host import Host

REQUEST_TIMEOUT_S = 60.0
UPLOAD_TIMEOUT_S = 600.0
#: Oldest microversion that can create servers without a network.
COMPUTE_VERSION = "2.37"
GUEST_IMAGE = "debian"
#: Shared by all projects; guests get their addresses by DHCP.
NETWORK = "guests"
SUBNET = "10.79.0.0/24"
#: Name, RAM in MiB, disk in GB. Guests are emulated: one processor each is what there is.
FLAVORS = (("small", 256, 2), ("medium", 384, 3), ("diskless", 256, 0))


class ControlPlane:
    """The administrator's session. Every call enters the controller's network."""

    def __init__(self, controller: Host, project: str = "admin", user: str = "admin") -> None:
        self._controller = controller
        self._session = session.Session(
            auth=v3.Password(
                auth_url=endpoints.KEYSTONE_URL,
                username=user,
                password=endpoints.PASSWORD,
                project_name=project,
                user_domain_name="Default",
                project_domain_name="Default",
            ),
            timeout=REQUEST_TIMEOUT_S,
        )

    def call(
        self, method: str, service: str, path: str, body: Any = None, **options: Any
    ) -> dict[str, Any]:
        """Call an API and return its answer.

        :param service: type of the service, as the catalogue names it.
        :raises TestbedError: when the service cannot be reached, or refuses.
        """
        filters = {"service_type": service, "region_name": endpoints.REGION}
        try:
            with self._controller.network():
                response = self._session.request(
                    path, method, endpoint_filter=filters, json=body, **options
                )
        except keystoneauth1.exceptions.ClientException as error:
            raise exception.TestbedError(
                f"{method} {path} of {service} failed: {error}",
                hint="look at the service's log below the one-box's directory",
            ) from error
        answer: dict[str, Any] = response.json() if response.content else {}
        return answer

    def create_identities(self) -> None:
        """Create the services' users, their roles, and the catalogue."""
        domain = "default"
        project = self._identity("projects", "project", name="service", domain_id=domain)
        roles = {role["name"]: role["id"] for role in self._identities("roles")}
        for user in endpoints.SERVICE_USERS:
            created = self._identity(
                "users", "user", name=user, password=endpoints.PASSWORD, domain_id=domain
            )
            for role in ("admin", "service"):
                path = f"/projects/{project['id']}/users/{created['id']}/roles/{roles[role]}"
                self.call("PUT", "identity", path)
        known = {entry["name"] for entry in self._identities("services")}
        for kind, (name, url) in endpoints.CATALOGUE.items():
            if name in known:
                continue
            service = self._identity("services", "service", name=name, type=kind)
            for interface in ("public", "internal", "admin"):
                endpoint = {
                    "service_id": service["id"], "interface": interface, "url": url,
                    "region_id": endpoints.REGION,
                }  # fmt: skip
                self.call("POST", "identity", "/endpoints", {"endpoint": endpoint})

    def create_flavors(self) -> None:
        """Create the flavors that are missing."""
        known = {flavor["name"] for flavor in self.call("GET", "compute", "/flavors")["flavors"]}
        for name, ram, disk in FLAVORS:
            if name not in known:
                flavor = {"name": name, "id": name, "ram": ram, "disk": disk, "vcpus": 1}
                self.call("POST", "compute", "/flavors", {"flavor": flavor})

    def create_network(self) -> None:
        """Create the network that every project may use, with its subnet, unless they are there."""
        found = self.call("GET", "network", f"/v2.0/networks?name={NETWORK}")["networks"]
        if not found:
            network = {
                "name": NETWORK, "shared": True, "provider:network_type": "flat",
                "provider:physical_network": networking.PHYSICAL_NETWORK,
            }  # fmt: skip
            found = [
                self.call("POST", "network", "/v2.0/networks", {"network": network})["network"]
            ]
        if not found[0]["subnets"]:
            subnet = {
                "network_id": found[0]["id"], "name": NETWORK, "ip_version": 4, "cidr": SUBNET,
                "enable_dhcp": True,
            }  # fmt: skip
            self.call("POST", "network", "/v2.0/subnets", {"subnet": subnet})

    def switches_up(self) -> set[str]:
        """Return the compute hosts on which ports can be bound."""
        agents = self.call("GET", "network", "/v2.0/agents")["agents"]
        return {agent["host"] for agent in agents if agent["alive"]}

    def create_volume_types(self, wanted: Sequence[tuple[str, Mapping[str, str]]]) -> None:
        """Create the volume types that are missing, with their extra specs."""
        known = {entry["name"] for entry in self._volume_types()}
        for name, specs in wanted:
            if name not in known:
                entry = {"name": name, "extra_specs": dict(specs)}
                self.call("POST", "block-storage", "/types", {"volume_type": entry})

    def _volume_types(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.call("GET", "block-storage", "/types")["volume_types"]
        return found

    def upload_guest(self, guest: GuestImage) -> None:
        """Upload a guest as three images, unless it is there: kernel, ramdisk, disk."""
        if self._image(GUEST_IMAGE) is not None:
            return
        kernel = self._upload(
            f"{GUEST_IMAGE}-kernel", "aki", without_boot_signature(guest.kernel), {}
        )
        with guest.initrd.open("rb") as file:
            ramdisk = self._upload(f"{GUEST_IMAGE}-ramdisk", "ari", file, {})
        properties = {
            "kernel_id": kernel,
            "ramdisk_id": ramdisk,
            "os_command_line": "root=/dev/vda ro console=ttyS0 quiet",
            "hw_rng_model": "virtio",
        }
        with guest.disk.open("rb") as file:
            self._upload(GUEST_IMAGE, "raw", file, properties)

    def hosts_up(self) -> set[str]:
        """Return the compute hosts that Nova can place servers on."""
        services = self.call("GET", "compute", "/os-services?binary=nova-compute")["services"]
        hypervisors = self.call("GET", "compute", "/os-hypervisors")["hypervisors"]
        mapped = {entry["hypervisor_hostname"] for entry in hypervisors}
        return {entry["host"] for entry in services if entry["state"] == "up"} & mapped

    def volume_services_up(self) -> set[str]:
        """Return the programs of Cinder that are up; those with backends as PROGRAM@BACKEND."""
        services = self.call("GET", "block-storage", "/os-services")["services"]
        return {
            "@".join([entry["binary"], *entry["host"].split("@")[1:]])
            for entry in services
            if entry["state"] == "up"
        }

    def _identities(self, kind: str) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.call("GET", "identity", f"/{kind}")[kind]
        return found

    def _identity(self, kind: str, singular: str, **fields: Any) -> dict[str, Any]:
        for entry in self._identities(kind):
            if entry["name"] == fields["name"]:
                return entry
        created: dict[str, Any] = self.call("POST", "identity", f"/{kind}", {singular: fields})
        entry = created[singular]
        assert isinstance(entry, dict)
        return entry

    def _image(self, name: str) -> dict[str, Any] | None:
        found = self.call("GET", "image", f"/v2/images?name={name}&status=active")["images"]
        return found[0] if found else None

    def _upload(self, name: str, kind: str, file: BinaryIO, properties: dict[str, str]) -> str:
        existing = self._image(name)
        if existing is not None:
            return str(existing["id"])
        container = kind if kind in ("aki", "ari") else "bare"
        fields = {
            "name": name, "disk_format": kind, "container_format": container,
            "visibility": "public", **properties,
        }  # fmt: skip
        image = str(self.call("POST", "image", "/v2/images", fields)["id"])
        self.call(
            "PUT", "image", f"/v2/images/{image}/file", data=file, timeout=UPLOAD_TIMEOUT_S,
            headers={"Content-Type": "application/octet-stream"},
        )  # fmt: skip
        return image


def without_boot_signature(kernel: pathlib.Path) -> BinaryIO:
    """Return a kernel without the signature with which firmware would boot its first sector.

    Before a live migration Nova fetches kernels as it does disks: its inspection takes the
    signature for that of a partition table, and refuses what is none. QEMU does not look at it.
    """
    content = bytearray(kernel.read_bytes())
    if content[510:512] == b"\x55\xaa":
        content[510:512] = b"\0\0"
    return io.BytesIO(content)
