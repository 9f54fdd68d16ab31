"""Configuration of what is not OpenStack: MariaDB, RabbitMQ, libvirt, sshd, sudo."""

import uuid

from testbed.onebox.configuration import endpoints
from testbed.onebox.network import CONTROLLER_ADDRESS

MARIADB_STATE = "/var/lib/mysql"
MARIADB_CONFIG = "/etc/mysql/my.cnf"
RABBITMQ_STATE = "/var/lib/rabbitmq"
RABBITMQ_CONFIG = "/etc/rabbitmq/rabbitmq.conf"


def mariadb() -> str:
    """Return my.cnf; durability is given up for speed, the data are for tests."""
    return f"""\
[mariadbd]
user = root
datadir = {MARIADB_STATE}
socket = /run/mariadb.sock
pid-file = /run/mariadb.pid
init-file = /etc/mysql/create.sql
bind-address = {CONTROLLER_ADDRESS}
port = {endpoints.MARIADB_PORT}
character-set-server = utf8mb3
collation-server = utf8mb3_general_ci
skip-name-resolve
skip-log-bin
max_connections = 2000
innodb_buffer_pool_size = 192M
innodb_log_file_size = 48M
innodb_flush_log_at_trx_commit = 0
innodb_doublewrite = 0
"""


def create_databases() -> str:
    """Return the statements that MariaDB runs whenever it starts."""
    user = f"'{endpoints.DATABASE_USER}'@'%'"
    statements = [
        f"CREATE USER IF NOT EXISTS {user} IDENTIFIED BY '{endpoints.PASSWORD}';",
        f"GRANT ALL ON *.* TO {user};",
    ]
    statements += [f"CREATE DATABASE IF NOT EXISTS {name};" for name in endpoints.DATABASES]
    return "\n".join(statements) + "\n"


def rabbitmq() -> str:
    """Return rabbitmq.conf."""
    return f"""\
listeners.tcp.1 = {CONTROLLER_ADDRESS}:{endpoints.RABBITMQ_PORT}
default_user = {endpoints.MESSAGE_USER}
default_pass = {endpoints.PASSWORD}
loopback_users = none
disk_free_limit.absolute = 100MB
log.console = true
log.console.level = info
log.file = false
"""


def rabbitmq_environment() -> dict[str, str]:
    """Return the environment with which RabbitMQ finds its configuration and data."""
    return {
        "HOME": RABBITMQ_STATE,
        "RABBITMQ_NODENAME": "onebox@localhost",
        "RABBITMQ_CONFIG_FILE": RABBITMQ_CONFIG,
        "RABBITMQ_CONF_ENV_FILE": "/dev/null",
        "RABBITMQ_ENABLED_PLUGINS_FILE": "/etc/rabbitmq/enabled_plugins",
        "RABBITMQ_MNESIA_BASE": f"{RABBITMQ_STATE}/mnesia",
        "RABBITMQ_LOG_BASE": f"{RABBITMQ_STATE}/log",
        "RABBITMQ_PID_FILE": f"{RABBITMQ_STATE}/rabbitmq.pid",
        # Busy waiting would take the time of the emulated guests.
        "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": "+S 2:2 +sbwt none +sbwtdcpu none +sbwtdio none",
    }


def libvirtd(name: str, address: str) -> str:
    """Return libvirtd.conf.

    The id must be set: the one of the machine's firmware is the same for all hosts, between
    which libvirt then refuses to migrate.
    """
    host_id = uuid.uuid5(uuid.NAMESPACE_DNS, f"{name}.onebox.acstor")
    return f"""\
listen_tls = 0
listen_tcp = 1
listen_addr = "{address}"
auth_tcp = "none"
auth_unix_rw = "none"
unix_sock_rw_perms = "0700"
host_uuid = "{host_id}"
"""


def qemu(address: str) -> str:
    """Return qemu.conf: guests run as QEMU's own user, as on a real host."""
    return f"""\
security_driver = "none"
namespaces = []
cgroup_controllers = []
migration_host = "{address}"
migration_address = "{address}"
"""


def sshd(address: str) -> str:
    """Return sshd_config: Nova copies disks of migrating servers over ssh."""
    return f"""\
ListenAddress {address}
HostKey /etc/ssh/ssh_host_ed25519_key
AuthorizedKeysFile /etc/ssh/authorized_keys
PermitRootLogin prohibit-password
PasswordAuthentication no
KbdInteractiveAuthentication no
UsePAM no
PidFile none
Subsystem sftp internal-sftp
"""


def ssh() -> str:
    """Return ssh_config."""
    return """\
Host *
    IdentityFile /etc/ssh/onebox_key
    StrictHostKeyChecking no
    UserKnownHostsFile /dev/null
    LogLevel ERROR
"""


def sudoers(venv: str) -> str:
    """Return the sudoers with which Cinder finds its rootwrap."""
    return f"""\
Defaults secure_path="{venv}/bin:/usr/sbin:/usr/bin:/sbin:/bin"
root ALL=(ALL:ALL) NOPASSWD: ALL
"""
