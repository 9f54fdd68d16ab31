"""Neutron's configuration: its API without agents, which is what servers without a NIC need."""

from testbed.onebox.configuration import endpoints
from testbed.onebox.configuration.writer import Configuration

STATE = "/var/lib/neutron"
APPLICATION_FILE = "/etc/neutron/application.py"
#: The models of port forwarding must be known before the mappers are configured; under uWSGI the
#: service plugin that imports them is loaded after the first session.
APPLICATION = """\
import sqlalchemy.orm

import neutron.db.models.port_forwarding
from neutron.wsgi.api import application

sqlalchemy.orm.configure_mappers()
"""


def neutron(venv: str) -> Configuration:
    """Return neutron.conf."""
    return {
        "DEFAULT": {
            "transport_url": endpoints.TRANSPORT_URL,
            "auth_strategy": "keystone",
            "state_path": STATE,
            "api_paste_config": f"{venv}/etc/neutron/api-paste.ini",
            "core_plugin": "ml2",
            "service_plugins": "router,port_forwarding",
        },
        "ml2": {"mechanism_drivers": "", "type_drivers": "local", "tenant_network_types": "local"},
        "database": {"connection": endpoints.database_url("neutron")},
        "keystone_authtoken": endpoints.token_validation("neutron"),
        "nova": endpoints.login("nova"),
        "oslo_concurrency": {"lock_path": f"{STATE}/locks"},
        "oslo_messaging_notifications": {"driver": "noop"},
    }
