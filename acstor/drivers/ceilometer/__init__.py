"""Plug-ins of Ceilometer: pollsters of the host's network interfaces."""
