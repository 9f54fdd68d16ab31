"""The network of a one-box: a bridge in the controller's namespace, a link to each compute host.

Nothing of it is in the machine's own network, so every one-box uses the same addresses and every
service its usual port. It leads nowhere else: passwords are fixed because nobody outside of the
namespaces can reach what they protect.
"""

from testbed import exception, processes
from testbed.onebox.host import Host

CONTROLLER = "controller"
CONTROLLER_ADDRESS = "10.78.0.1"
BRIDGE = "br0"
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
    for host in computes:
        if _has(host, "eth0"):
            continue
        _ip(host, "link", "set", "lo", "up")
        # Made from the machine's PID namespace, which knows both hosts' processes.
        peer = ["type", "veth", "peer", "name", "eth0", "netns", str(host.pid)]
        _ip(controller, "link", "add", host.name, *peer)
        _ip(controller, "link", "set", host.name, "master", BRIDGE, "up")
        _ip(host, "address", "add", f"{host.address}/{PREFIX_LENGTH}", "dev", "eth0")
        _ip(host, "link", "set", "eth0", "up")


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
