"""Placement's configuration."""

from testbed.onebox.configuration import endpoints
from testbed.onebox.configuration.writer import Configuration


def placement() -> Configuration:
    """Return placement.conf."""
    return {
        "placement_database": {"connection": endpoints.database_url("placement")},
        "api": {"auth_strategy": "keystone"},
        "keystone_authtoken": endpoints.token_validation("placement"),
    }
