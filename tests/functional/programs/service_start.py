"""Start a service of OpenStack up to where it makes its service object; say what was registered.

Run as ``service_start.py <module of its main program> <configuration file>``.
"""

import importlib
import json
import sys
from typing import Any, NoReturn


def main() -> None:
    """Run the service's own main function, which never comes to serve."""
    program, config_file = sys.argv[1:]
    module = importlib.import_module(program)
    package = program.partition(".")[0]
    service = importlib.import_module(f"{package}.service")

    def report(*args: Any, **kwargs: Any) -> NoReturn:
        # cinder makes its notifiers as the first thing in here
        rpc = importlib.import_module(f"{package}.rpc")
        if package == "cinder" and not rpc.initialized():
            rpc.init(importlib.import_module("oslo_config.cfg").CONF)
        print(json.dumps(registered()), flush=True)
        sys.exit(0)

    service.Service.create = report
    sys.argv = [program.rpartition(".")[2], "--config-file", config_file]
    module.main()


def registered() -> dict[str, Any]:
    """Return what os-brick and Nova know of volumes, of modules that are loaded only."""
    found: dict[str, Any] = {}
    brick = sys.modules.get("os_brick.initiator.connector")
    if brick is not None:
        found["protocol"] = brick.get_connector_mapping().get("ACSTOR")
        found["properties"] = sum("acstor" in name for name in brick.unix_connector_list)
    nova = sys.modules.get("nova.virt.libvirt.driver")
    if nova is not None:
        found["volume_driver"] = nova.VOLUME_DRIVERS.get("acstor")
        disk = sys.modules["nova.virt.libvirt.config"].LibvirtConfigGuestDisk
        found["is_wrapped"] = hasattr(disk.parse_dom, "__wrapped__")
    return found


if __name__ == "__main__":
    main()
