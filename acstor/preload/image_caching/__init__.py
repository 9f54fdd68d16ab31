"""``openstack aggregate cache image``: what Nova caches on a host is preloaded there.

Nova's compute finds our link in place and downloads nothing. Its conductor says so of each host, by
a versioned notification, and that starts a preload of the whole image on that host.
"""
