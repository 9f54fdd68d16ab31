"""Plug-in of the OpenStack client."""
