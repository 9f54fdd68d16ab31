"""Keystone's configuration."""

from acstor.testbed.onebox.configuration import endpoints
from acstor.testbed.onebox.configuration.writer import Configuration


def keystone(state: str) -> Configuration:
    """Return keystone.conf.

    :param state: folder that holds the keys.
    """
    return {
        "DEFAULT": {"debug": "false"},
        "database": {"connection": endpoints.database_url("keystone")},
        "token": {"provider": "fernet", "expiration": "86400"},
        "fernet_tokens": {"key_repository": f"{state}/fernet-keys"},
        "fernet_receipts": {"key_repository": f"{state}/fernet-keys"},
        "credential": {"key_repository": f"{state}/credential-keys"},
        "cache": {
            "enabled": "true",
            "backend": "dogpile.cache.memcached",
            "memcache_servers": endpoints.MEMCACHED,
        },
    }
