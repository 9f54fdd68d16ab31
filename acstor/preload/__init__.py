"""Preloads as promises: what is asked, whether a host can keep it, how far it is."""
