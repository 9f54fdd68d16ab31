"""Service of ACStor in a connection of openstacksdk."""

from typing import cast

from openstack import connection, service_description

from acstorclient.v1.proxy import Proxy

SERVICE_TYPE = "acstor"
"""Type in Keystone's catalogue."""


def attach(to: connection.Connection) -> Proxy:
    """Give a connection the attribute ``acstor``, and return it.

    Source: ``openstack.connection.Connection.add_service``.

    :raises openstack.exceptions.ServiceDisabledException: with the first call, where the catalogue
        has no such service.
    """
    description: service_description.ServiceDescription[Proxy] = (
        service_description.ServiceDescription(SERVICE_TYPE, {"1": Proxy})
    )
    to.add_service(description)
    return cast(Proxy, getattr(to, SERVICE_TYPE))
