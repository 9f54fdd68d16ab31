"""Plug-in of ACStor for Horizon: versions as restore points, and the state of the cache.

It speaks to ACStor's API through ``acstorclient`` only, with the token of the user.
"""
