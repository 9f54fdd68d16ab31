"""Making os-brick know the connector, in the process that calls this.

os-brick has no plug-in interface: its factory looks into a mapping per processor architecture, and
the connector properties of a host are asked of a list of classes. Both are public names of
``os_brick.initiator.connector`` and hold dotted paths.
"""

from typing import Any

from acstor import exception

CONNECTOR = "acstor.drivers.brick.connector.AcstorConnector"
PROTOCOL = "ACSTOR"
"""Protocol that os-brick's factory derives from ``driver_volume_type``."""
MAPPINGS = (
    "_connector_mapping_linux",
    "_connector_mapping_linux_s390x",
    "_connector_mapping_linux_ppc64",
)
LIST = "unix_connector_list"


def register() -> None:
    """Register the connector; again does nothing.

    :raises UnsupportedError: when this os-brick has no place for it; nothing was changed then.
    """
    from os_brick.initiator import connector

    mappings = [_place(connector, name, dict) for name in MAPPINGS]
    known = _place(connector, LIST, list)
    for mapping in mappings:
        mapping[PROTOCOL] = CONNECTOR
    if CONNECTOR not in known:
        known.append(CONNECTOR)


def _place(module: Any, name: str, kind: type) -> Any:
    found = getattr(module, name, None)
    if not isinstance(found, kind):
        raise exception.UnsupportedError(
            f"os_brick.initiator.connector.{name} is no {kind.__name__} in this os-brick",
            hint="use a release of os-brick that this release of ACStor was tested with",
        )
    return found
