"""Volumes of a host: their life cycle, ownership, files and sockets."""
