"""Options of the session with Keystone: who the services of ACStor are there.

They are keystoneauth's own, and are registered only where a session is opened
(:mod:`acstor.identity`): no process of a host that serves guests waits for that library.
"""

from oslo_config import cfg

GROUP = "keystone"
AUTH_TYPES = ("password", "v3applicationcredential")
"""Kinds of credentials whose options the sample file shows; any that keystoneauth knows works."""


def service_options() -> list[cfg.Opt]:
    """Return the options of the session and of the usual kinds of credentials."""
    from keystoneauth1 import loading

    found = {
        option.dest: option
        for options in (
            loading.get_auth_common_conf_options(),
            loading.get_session_conf_options(),
        )
        for option in options
    }
    for auth_type in AUTH_TYPES:
        for option in loading.get_auth_plugin_conf_options(auth_type):
            found.setdefault(option.dest, option)
    return list(found.values())
