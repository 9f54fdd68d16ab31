"""Ids of things of other services, by their names, asked with the user's token."""

from typing import Any

from acstorclient.v1.base import is_uuid


def server_id(connection: Any, name_or_id: str) -> str:
    """Return the id of a server of Nova.

    A UUID is taken as it is: a server that is gone has versions still.
    """
    if is_uuid(name_or_id):
        return name_or_id
    return str(connection.compute.find_server(name_or_id, ignore_missing=False, details=False).id)


def volume_id(connection: Any, name_or_id: str) -> str:
    """Return the id of a volume of Cinder; a UUID is taken as it is."""
    if is_uuid(name_or_id):
        return name_or_id
    return str(connection.block_storage.find_volume(name_or_id, ignore_missing=False).id)


def image_id(connection: Any, name_or_id: str) -> str:
    """Return the id of an image of Glance; a UUID is taken as it is."""
    if is_uuid(name_or_id):
        return name_or_id
    return str(connection.image.find_image(name_or_id, ignore_missing=False).id)


def nics(connection: Any, wanted: list[tuple[str, str]]) -> Any:
    """Return the networks of a new server as Nova takes them.

    :param wanted: ``network`` or ``port``, and its name or id; in the order of the interfaces.
    """
    found = []
    for kind, name_or_id in wanted:
        if kind == "port":
            port = connection.network.find_port(name_or_id, ignore_missing=False)
            found.append({"port": port.id})
        else:
            network = connection.network.find_network(name_or_id, ignore_missing=False)
            found.append({"uuid": network.id})
    return found or "auto"
