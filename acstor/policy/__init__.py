"""The policy service: decides weights and thresholds from how busy the hosts' networks are.

The core (:mod:`acstor.policy.decision_maker`) does no I/O, reads no clock and draws no random
number, so that what it decided can be computed again from what it knew.
"""
