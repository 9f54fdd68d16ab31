"""Keystone's configuration."""

from testbed.onebox.configuration import endpoints
from testbed.onebox.configuration.writer import Configuration

STATE = "/var/lib/keystone"


def keystone() -> Configuration:
    """Return keystone.conf."""
    return {
        "DEFAULT": {"debug": "false"},
        "database": {"connection": endpoints.database_url("keystone")},
        "token": {"provider": "fernet", "expiration": "86400"},
        "fernet_tokens": {"key_repository": f"{STATE}/fernet-keys"},
        "fernet_receipts": {"key_repository": f"{STATE}/fernet-keys"},
        "credential": {"key_repository": f"{STATE}/credential-keys"},
        "cache": {
            "enabled": "true",
            "backend": "dogpile.cache.memcached",
            "memcache_servers": endpoints.MEMCACHED,
        },
    }
