"""Restores on a host: the content of a version is written into the disk of a stopped server."""
