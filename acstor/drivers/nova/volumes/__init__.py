"""Volumes in nova-compute: the libvirt volume driver and what stock Nova needs for it.

``doc/source/contributor/nova-volumes.rst`` says what is registered, what is wrapped, and why.
"""
