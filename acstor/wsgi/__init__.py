"""Entry points of WSGI servers, as OpenStack's services have them: ``acstor.wsgi.api``."""
