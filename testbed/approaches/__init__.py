"""The ways to give hosts an image that are compared: ACStor and those of the ACStor paper, §5.2."""
