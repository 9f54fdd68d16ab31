"""Adapters to Nova and Cinder."""
