"""Schemas of requests and answers (JSON Schema 2020-12), a file for each resource."""
