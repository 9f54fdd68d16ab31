"""REST API behind Keystone: a WSGI application for any server, one file for each resource."""
