"""Ceilometer's samples as a feed."""
