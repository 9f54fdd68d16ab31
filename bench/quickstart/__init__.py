"""Show of ``tools/quickstart``: real guests that boot, and a storm on many hosts, four ways."""
