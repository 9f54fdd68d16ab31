"""Restores in place, as the service of versions and the host of the disk agree on them."""
