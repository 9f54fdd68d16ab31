"""Captures on a compute host, as the service of versions and the hosts speak of them."""
