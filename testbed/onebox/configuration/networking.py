"""Neutron's configuration: its API and RPC server, and the agent of a compute host's switch.

Open vSwitch switches in its own process (``netdev``), since a kernel may have no module of it. Its
agent answers DHCP by itself and applies security groups; there are no other agents.
"""

import shlex

from testbed.onebox.configuration import endpoints
from testbed.onebox.configuration.writer import Configuration

STATE = "/var/lib/neutron"
CONFIG_FILE = "/etc/neutron/neutron.conf"
APPLICATION_FILE = "/etc/neutron/application.py"
#: The models of port forwarding must be known before the mappers are configured; under uWSGI the
#: service plugin that imports them is loaded after the first session.
APPLICATION = """\
import sqlalchemy.orm

import neutron.db.models.port_forwarding
from neutron.wsgi.api import application

sqlalchemy.orm.configure_mappers()
"""
PHYSICAL_NETWORK = "physnet1"
#: Of networks that users make.
_VLANS = "100:199"
SWITCH_DATABASE = "/run/openvswitch/db.sock"
#: Names the switch's process once it runs.
SWITCH_PID = "/run/openvswitch/ovs-vswitchd.pid"
_PHYSICAL_BRIDGE = "br-physical"
_SCHEMA = "/usr/share/openvswitch/vswitch.ovsschema"
#: Contexts of privileges in Neutron's agents.
_PRIVILEGES = (
    "privsep", "privsep_dhcp_release", "privsep_ovs_vsctl", "privsep_namespace",
    "privsep_conntrack", "privsep_link",
)  # fmt: skip


def neutron(venv: str) -> Configuration:
    """Return neutron.conf of the controller."""
    return {
        "DEFAULT": {
            "transport_url": endpoints.TRANSPORT_URL,
            "auth_strategy": "keystone",
            "state_path": STATE,
            "api_paste_config": f"{venv}/etc/neutron/api-paste.ini",
            "core_plugin": "ml2",
            "service_plugins": "router,port_forwarding",
            "rpc_workers": "1",
            "rpc_state_report_workers": "0",
            # The switches' agents answer DHCP.
            "enable_traditional_dhcp": "false",
            "agent_down_time": "30",
        },
        "ml2": {
            "mechanism_drivers": "openvswitch",
            "type_drivers": "flat,vlan",
            "tenant_network_types": "vlan",
        },
        "ml2_type_flat": {"flat_networks": PHYSICAL_NETWORK},
        "ml2_type_vlan": {"network_vlan_ranges": f"{PHYSICAL_NETWORK}:{_VLANS}"},
        "securitygroup": {"firewall_driver": "openvswitch"},
        "database": {"connection": endpoints.database_url("neutron")},
        "keystone_authtoken": endpoints.token_validation("neutron"),
        "nova": endpoints.login("nova"),
        "oslo_concurrency": {"lock_path": f"{STATE}/locks"},
        "oslo_messaging_notifications": {"driver": "noop"},
    }


def neutron_agent(venv: str, name: str) -> Configuration:
    """Return neutron.conf of a compute host: of the agent of its switch."""
    privsep = f"{venv}/bin/privsep-helper --config-file {CONFIG_FILE}"
    return {
        "DEFAULT": {
            "host": name,
            "transport_url": endpoints.TRANSPORT_URL,
            "state_path": STATE,
        },
        "ovs": {
            "bridge_mappings": f"{PHYSICAL_NETWORK}:{_PHYSICAL_BRIDGE}",
            "datapath_type": "netdev",
            "ovsdb_connection": f"unix:{SWITCH_DATABASE}",
        },
        "agent": {"extensions": "dhcp", "report_interval": "10", "root_helper": "sudo"},
        "DHCP": {"enable_ipv6": "false"},
        "securitygroup": {"firewall_driver": "openvswitch"},
        "oslo_concurrency": {"lock_path": f"{STATE}/locks"},
        **{context: {"helper_command": privsep} for context in _PRIVILEGES},
    }


def switch_database() -> tuple[str, ...]:
    """Return the command that becomes the database of a host's switch, made where it is missing."""
    folder = SWITCH_DATABASE.rpartition("/")[0]
    path = f"{folder}/conf.db"
    lines = [
        f"mkdir -p {folder}",
        f"[ -e {path} ] || ovsdb-tool create {path} {_SCHEMA}",
        f"exec ovsdb-server {path} --remote=punix:{SWITCH_DATABASE}",
    ]
    return ("/bin/sh", "-ec", "\n".join(lines))


def switch(interface: str) -> tuple[str, ...]:
    """Return the command that becomes a host's switch.

    :param interface: of the host, to the other hosts' switches.
    """
    arrange = [
        "ovs-vsctl", "--no-wait", "--", "init",
        # Else nobody fills in the checksums that guests leave to their cards: TCP does not work.
        "--", "set", "Open_vSwitch", ".", "other_config:userspace-tso-enable=true",
        "--", "--may-exist", "add-br", _PHYSICAL_BRIDGE,
        "--", "set", "Bridge", _PHYSICAL_BRIDGE, "datapath_type=netdev",
        "--", "--may-exist", "add-port", _PHYSICAL_BRIDGE, interface,
    ]  # fmt: skip
    run = ["exec", "ovs-vswitchd", f"unix:{SWITCH_DATABASE}", f"--pidfile={SWITCH_PID}"]
    return ("/bin/sh", "-ec", f"{shlex.join(arrange)}\n{shlex.join(run)}")
