"""Preloads with admission: what is asked, whether a host can keep it, how far it is."""
