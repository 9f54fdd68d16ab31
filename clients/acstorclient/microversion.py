"""Microversion of the API that is asked for.

Source: api-sig, ``guidelines/microversion_specification.rst``. The newest that both know is asked
for, so that answers do not change under a client when the cloud is upgraded.
"""

from keystoneauth1 import adapter, discover

from acstorclient.exception import NoMicroversion

MINIMUM = "1.0"
"""Oldest that this client can work with."""
MAXIMUM = "1.1"
"""Newest that this client knows the fields of."""


DISKS = "1.1"
"""First that restores several disks of a server, and its UEFI variables."""


def require(chosen: str, needed: str, what: str) -> None:
    """Refuse a cloud that is older than what is asked for.

    :param chosen: microversion that is asked for.
    :param what: what needs the other one, for the error.
    :raises NoMicroversion: it does not know it.
    """
    numbers = [discover.normalize_version_number(each) for each in (chosen, needed)]
    if numbers[0] < numbers[1]:
        raise NoMicroversion(f"{what} needs microversion {needed}, and {chosen} is asked for")


def negotiate(session: adapter.Adapter) -> str:
    """Return the microversion to ask for: the user's choice, or the newest that both know.

    :raises NoMicroversion: there is none.
    """
    if session.default_microversion:
        return str(session.default_microversion)
    data = session.get_endpoint_data()
    if data is None or not data.min_microversion or not data.max_microversion:
        return MINIMUM  # without discovery, or with one that says nothing of microversions
    low = discover.normalize_version_number(data.min_microversion)
    high = discover.normalize_version_number(data.max_microversion)
    chosen = min(high, discover.normalize_version_number(MAXIMUM))
    if chosen < max(low, discover.normalize_version_number(MINIMUM)):
        raise NoMicroversion(
            f"ACStor of this cloud offers microversions {discover.version_to_string(low)} to "
            f"{discover.version_to_string(high)}, this client knows {MINIMUM} to {MAXIMUM}: "
            "install a release of python-acstorclient that is nearer to the cloud's"
        )
    return str(discover.version_to_string(chosen))
