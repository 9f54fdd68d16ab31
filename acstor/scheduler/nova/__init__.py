"""Plug-ins of nova-scheduler: a weigher and a filter, and the host states that they read."""
