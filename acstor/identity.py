"""Sessions with other OpenStack services, with the credentials of ``[keystone]``.

One session serves a whole process and all its threads: it asks Keystone for a token at the first
request, keeps it, and asks again when it runs out.
"""

from typing import TYPE_CHECKING, Any

from oslo_config import cfg

from acstor import exception, untrusted_json, version
from acstor.conf import keystone, loading
from acstor.conf.nova import adapter_options

if TYPE_CHECKING:
    from keystoneauth1.adapter import Adapter
    from keystoneauth1.session import Session

CONNECT_RETRIES = 2
"""Attempts at a connection after the first, where somebody waits for one answer."""
TIMEOUT_DEFAULT = 60.0
"""Seconds for one request where neither ``[keystone] timeout`` nor the caller says otherwise."""


def is_configured(conf: cfg.ConfigOpts) -> bool:
    """Return whether the operator gives credentials (``[keystone] auth_type``)."""
    return loading.is_written(conf, keystone.GROUP, "auth_type")


def register_opts(conf: cfg.ConfigOpts) -> None:
    """Register the options of ``[keystone]`` that do not depend on the kind of credentials."""
    from keystoneauth1 import loading as ks_loading

    ks_loading.register_auth_conf_options(conf, keystone.GROUP)
    ks_loading.register_session_conf_options(conf, keystone.GROUP)


def open_session(conf: cfg.ConfigOpts) -> "Session":
    """Return a session with the credentials of ``[keystone]``; Keystone is not asked yet.

    :raises ConfigurationError: when there are no credentials, or not all that their kind needs.
    """
    from keystoneauth1 import exceptions
    from keystoneauth1 import loading as ks_loading

    register_opts(conf)
    try:
        auth = ks_loading.load_auth_from_conf_options(conf, keystone.GROUP)
        if auth is None:
            raise exception.ConfigurationError(
                "no credentials for the other services are configured",
                hint="set [keystone] auth_type = password, auth_url, username, password and so on",
            )
        session: Session = ks_loading.load_session_from_conf_options(
            conf, keystone.GROUP, auth=auth
        )
    except (exceptions.NoMatchingPlugin, exceptions.OptionError) as error:
        raise exception.ConfigurationError(f"[keystone]: {exception.one_line(error)}") from error
    except (cfg.ConfigSourceValueError, ValueError) as error:
        raise exception.ConfigurationError(f"[keystone]: {exception.one_line(error)}") from error
    session.timeout = session.timeout or TIMEOUT_DEFAULT
    session.app_name = "acstor"
    session.app_version = version.release()
    return session


def open_adapter(conf: cfg.ConfigOpts, group: str, session: "Session", service_type: str) -> Any:
    """Return an adapter for the service that a group (``[glance]``, ``[nova]``) describes.

    :param service_type: where the group does not name one.
    :raises ConfigurationError: when the options contradict each other.
    """
    from keystoneauth1 import exceptions
    from keystoneauth1 import loading as ks_loading

    conf.register_opts(adapter_options(service_type), group=group)
    try:
        adapter: Adapter = ks_loading.load_adapter_from_conf_options(conf, group, session=session)
    except (exceptions.OptionError, TypeError, ValueError) as error:
        raise exception.ConfigurationError(f"[{group}]: {exception.one_line(error)}") from error
    return adapter


def ask(adapter: "Adapter", path: str, service: str, what: str) -> object:
    """Return what a service answers to one question that only an administrator may ask.

    :param service: its name; in lower case that of its section.
    :param what: what is listed.
    :raises InvalidError: when it refuses the credentials.
    :raises UnavailableError: when Keystone or the service does not answer, or not in JSON.
    """
    from keystoneauth1 import exceptions

    try:
        response = adapter.get(path, connect_retries=CONNECT_RETRIES)
        return untrusted_json.load(response.content, "the answer")
    except (exceptions.Unauthorized, exceptions.Forbidden) as error:
        raise exception.InvalidError(
            f"{service} does not let this user list {what}",
            hint="give the user of [keystone] the role admin",
        ) from error
    except (exceptions.ClientException, ValueError) as error:
        raise exception.UnavailableError(
            f"{service}'s {what} cannot be read: {type(error).__name__}",
            hint=f"check [keystone] and [{service.lower()}], and that Keystone and {service} "
            "answer",
        ) from error
