"""Compute hosts as network namespaces of one machine, with shaped links and real guests."""
