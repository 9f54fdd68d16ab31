"""A bounded HTTP server, its TLS, and the metrics endpoint."""
