"""Checks of the services that the control plane uses: coordination, messages, Keystone."""

from typing import Any

from oslo_config import cfg
from oslo_upgradecheck.upgradecheck import Result

from acstor import exception, identity, version
from acstor.checks.verdict import failure, failure_of, success, warning
from acstor.cluster import (
    member_list,
    membership,  # noqa: F401 - see below
)
from acstor.cluster.member import Member
from acstor.conf import loading
from acstor.rpc import transport
from acstor.rpc.signature import secrets_of

# Members are listed by code that imports membership then; checks run in threads of their own. And a
# thread that is the first to import eventlet, which tooz does where that is installed, never ends.

_CALL_TIMEOUT = 5.0
_NAMES_MAX = 8
_TOPIC = "acstor-status"


def check_coordination(conf: cfg.ConfigOpts) -> Result:
    """Check that the backend of membership and locks is reachable, and that hosts can share it."""
    try:
        members = member_list.list_members(conf)
    except exception.AcstorError as error:
        return failure_of(error)
    if not loading.is_written(conf, "coordination", "backend_url"):
        return warning(
            f"[coordination] backend_url is not set: {conf.coordination.backend_url} is for one "
            "machine; name an etcd, Redis or ZooKeeper, or a directory that all hosts share"
        )
    return success(f"{len(members)} hosts are members of group {conf.coordination.group}")


def check_agents(conf: cfg.ConfigOpts) -> Result:
    """Check that the agents of all hosts are of the installed release."""
    try:
        members = member_list.list_members(conf)
    except exception.AcstorError as error:
        return failure_of(error)
    installed = version.release()
    others = [member for member in members.values() if member.release != installed]
    if others:
        return warning(
            f"release {installed} is installed here, other releases run on {_listed(others)}; "
            "upgrade these hosts, or restart acstor-agent there if they have it already"
        )
    return success(f"release {installed} runs on all of {len(members)} hosts")


def _listed(members: list[Member]) -> str:
    names = [f"{member.name} ({member.release})" for member in members[:_NAMES_MAX]]
    left_out = len(members) - len(names)
    return ", ".join(names) + (f" and {left_out} more" if left_out else "")


def check_messages(conf: cfg.ConfigOpts) -> Result:
    """Check that the message broker takes messages of this user."""
    if not transport.is_configured(conf):
        return warning(
            "[DEFAULT] transport_url is not set: agents notice news at their next look only, the "
            "schedulers know nothing of the hosts' caches, and images cannot be preloaded on other "
            "hosts; set it"
        )
    try:
        with transport.opened(conf) as opened:
            return _send(opened)
    except exception.AcstorError as error:
        return failure_of(error)


def _send(opened: object) -> Result:
    import oslo_messaging  # heavy

    # A cast: a call would first wait for a connection to listen on, without any limit.
    client = oslo_messaging.get_rpc_client(
        opened, oslo_messaging.Target(topic=_TOPIC), timeout=_CALL_TIMEOUT, retry=0
    )
    try:
        client.cast({}, "ping")  # to a queue that nobody has; the broker drops it
    except Exception as error:  # drivers raise what their client libraries raise
        return failure(
            f"the message broker cannot be used: {type(error).__name__}; check that it is up, and "
            "address, user, password and virtual host of [DEFAULT] transport_url"
        )
    return success("the broker takes messages")


def check_calls(conf: cfg.ConfigOpts) -> Result:
    """Check that an agent does not take calls of everybody who reaches the broker."""
    if not transport.is_configured(conf):
        return success("[DEFAULT] transport_url is not set: nobody calls agents")
    try:
        secrets = secrets_of(conf)
    except exception.AcstorError as error:
        return failure_of(error)
    if not secrets:
        return warning(
            "[rpc] secrets is not set: everybody who may send in the virtual host of transport_url "
            "may hold, enlarge and slow down volumes that are in use; set it on all hosts, and "
            "acstor_rpc_secret in cinder.conf"
        )
    return success("agents take signed calls only")


def check_identity(conf: cfg.ConfigOpts) -> Result:
    """Check that Keystone takes the credentials, and that Glance shows every project's images."""
    if not identity.is_configured(conf):
        return success("[keystone] is not set; only registrars and 'acstor image preload' need it")
    from keystoneauth1 import exceptions  # heavy

    try:
        session = identity.open_session(conf)
        session.timeout = _CALL_TIMEOUT
        auth: Any = session.auth  # an identity plugin; others have no roles
        roles = auth.get_access(session).role_names
        glance = identity.open_adapter(conf, "glance", session, "image")
        glance.get("/v2/images", params={"limit": 1})
    except exception.AcstorError as error:
        return failure_of(error)
    except exceptions.ClientException as error:
        reason = exception.one_line(error)
        return failure(f"{reason}; check [keystone] and [glance], and that both services are up")
    if "admin" not in roles:
        return warning(
            f"the roles are {', '.join(sorted(roles))}: with Glance's own policy only 'admin' sees "
            "the private images of other projects; the registrar leaves these to Nova"
        )
    return success(f"Keystone and Glance answer; the roles are {', '.join(sorted(roles))}")
