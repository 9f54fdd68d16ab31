"""Life of a volume on this host: opened, resumed after a restart, checked, and closed."""
