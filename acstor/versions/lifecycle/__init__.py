"""Versions that are taken at events of a server's life, where somebody asked for them."""
