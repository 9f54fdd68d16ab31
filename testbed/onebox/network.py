"""The networks of a one-box: bridges in the controller's namespace, links to each compute host.

One is the hosts' own, the other carries what guests send between the hosts' switches.

Nothing of it is in the machine's own network, so every one-box uses the same addresses and every
service its usual port. It leads nowhere else: passwords are fixed because nobody outside of the
namespaces can reach what they protect.
"""

from testbed import exception, processes
from testbed.onebox.host import Host

CONTROLLER = "controller"
CONTROLLER_ADDRESS = "10.78.0.1"
BRIDGE = "br0"
INTERFACE = "eth0"
GUEST_BRIDGE = "br1"
GUEST_INTERFACE = "eth1"
PREFIX_LENGTH = 24
COMPUTE_HOSTS_MAX = 8


def compute_names(count: int) -> list[str]:
    """Return the names of the compute hosts."""
    if not 1 <= count <= COMPUTE_HOSTS_MAX:
        raise exception.TestbedError(f"a one-box has 1 to {COMPUTE_HOSTS_MAX} compute hosts")
    return [f"compute{number}" for number in range(1, count + 1)]


def address_of(name: str) -> str:
    """Return the address of a host."""
    if name == CONTROLLER:
        return CONTROLLER_ADDRESS
    return f"10.78.0.{10 + int(name.removeprefix('compute'))}"


def hosts_file(names: list[str]) -> str:
    """Return the text of ``/etc/hosts``, the same on every host."""
    lines = ["127.0.0.1 localhost"]
    lines += [f"{address_of(name)} {name}" for name in [CONTROLLER, *names]]
    return "\n".join(lines) + "\n"


def connect(controller: Host, computes: list[Host]) -> None:
    """Bring up the bridge and the links that are not there yet.

    :raises ToolFailedError: when the kernel refuses one.
    """
    if not _has(controller, BRIDGE):
        _ip(controller, "link", "set", "lo", "up")
        _ip(controller, "link", "add", BRIDGE, "type", "bridge")
        _ip(controller, "address", "add", f"{controller.address}/{PREFIX_LENGTH}", "dev", BRIDGE)
        _ip(controller, "link", "set", BRIDGE, "up")
    if not _has(controller, GUEST_BRIDGE):
        _ip(controller, "link", "add", GUEST_BRIDGE, "type", "bridge")
        _ip(controller, "link", "set", GUEST_BRIDGE, "up")
    for host in computes:
        if not _has(host, INTERFACE):
            _ip(host, "link", "set", "lo", "up")
            _link(controller, host, INTERFACE, host.name, BRIDGE)
            address = f"{host.address}/{PREFIX_LENGTH}"
            _ip(host, "address", "add", address, "dev", INTERFACE)
        if not _has(host, GUEST_INTERFACE):
            _link(controller, host, GUEST_INTERFACE, f"{host.name}-guests", GUEST_BRIDGE)


def _link(controller: Host, host: Host, interface: str, port: str, bridge: str) -> None:
    """Connect an interface of a host, made, to a bridge of the controller."""
    # Made from the machine's PID namespace, which knows both hosts' processes.
    peer = ["type", "veth", "peer", "name", interface, "netns", str(host.pid)]
    _ip(controller, "link", "add", port, *peer)
    _ip(controller, "link", "set", port, "master", bridge, "up")
    _ip(host, "link", "set", interface, "up")


def _has(host: Host, interface: str) -> bool:
    try:
        _ip(host, "link", "show", interface)
    except exception.ToolFailedError:
        return False
    return True


def _ip(host: Host, *arguments: str) -> str:
    # Only the network is entered, so that a process id is the one that this process knows.
    enter = [processes.require("nsenter"), f"--net=/proc/{host.pid}/ns/net", "--"]
    return processes.run([*enter, processes.require("ip"), *arguments])
