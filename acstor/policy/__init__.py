"""The policy service: decides weights, thresholds and consistency levels (a later step fills it)."""
