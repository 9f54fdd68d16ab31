"""The control process of a compute host."""
