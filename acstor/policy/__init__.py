"""The policy service: decides weights, thresholds, consistency (a later step fills it)."""
