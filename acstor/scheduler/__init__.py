"""Scheduler plug-ins for Nova and Cinder, and the host states that they read."""
