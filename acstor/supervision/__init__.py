"""Protocol between a process and its supervisor: readiness, watchdog, kept descriptors.

One protocol for systemd and for acstor-holder: datagrams to ``$NOTIFY_SOCKET`` (sd_notify(3)) in
one direction, ``$LISTEN_FDS`` (sd_listen_fds(3)) in the other.
"""
