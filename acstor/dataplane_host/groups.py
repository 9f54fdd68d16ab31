"""Groups of this host that may use a socket."""

import grp

from acstor import exception


def group_id(name: str | None, option: str) -> int | None:
    """Return the number of a group; None without a name.

    :param option: where the name comes from, for the error.
    :raises ConfigurationError: when there is no such group.
    """
    if name is None:
        return None
    try:
        return grp.getgrnam(name).gr_gid
    except KeyError as error:
        raise exception.ConfigurationError(
            f"{option} = {name!r} is no group of this host",
            hint="name an existing group, or unset the option",
        ) from error
