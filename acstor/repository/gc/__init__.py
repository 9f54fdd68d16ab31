"""Garbage collection of the origin."""
