"""The admin protocol: how agent and command line talk to the data plane of their host.

``doc/source/reference/protocols/admin.rst`` describes it.
"""
