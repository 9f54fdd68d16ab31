"""A real OpenStack with ACStor on one machine: a controller and compute hosts as namespaces."""
