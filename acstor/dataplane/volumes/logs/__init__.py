"""Local logs of volumes: their directory, and those put aside."""
