"""The URL of the origin that a configuration names: of one store, or of several."""

from oslo_config import cfg


def origin_url(conf: cfg.ConfigOpts) -> str:
    """Return the URL of the origin.

    :raises ConfigurationError: when ``[origin] members`` is malformed.
    """
    if not conf.origin.members:
        return str(conf.origin.url)
    from acstor.origin.replicated import members

    return members.url_of(members.parse_members(conf.origin.members))


def home_url(conf: cfg.ConfigOpts) -> str:
    """Return the URL of the store that has the refs, and all of the volumes.

    For those who need nothing else.

    :raises ConfigurationError: when ``[origin] members`` is malformed.
    """
    return store_urls(conf)[0]


def store_urls(conf: cfg.ConfigOpts) -> tuple[str, ...]:
    """Return the URLs of the stores that the origin is in.

    :raises ConfigurationError: when ``[origin] members`` is malformed.
    """
    if not conf.origin.members:
        return (str(conf.origin.url),)
    from acstor.origin.replicated import members

    return tuple(one.url for one in members.parse_members(conf.origin.members))


def described(conf: cfg.ConfigOpts) -> str:
    """Return the origin as the configuration has it, for people."""
    return ", ".join(conf.origin.members) or str(conf.origin.url)
