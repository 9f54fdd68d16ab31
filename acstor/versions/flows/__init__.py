"""Flows of versions, a file each: long work in steps that outlives whoever does it (RFD 37).

A flow's factory is stored by its dotted name: a module, or a factory, that was released keeps its
name while flows of it may be under way, which is until the second release after the change.
"""
