"""The API for a WSGI server: ``acstor.wsgi.api:application`` (uWSGI, gunicorn, mod_wsgi).

The server's own command line is left alone. Configuration files are those of ``ACSTOR_CONFIG``,
separated by colons; without it the usual one.
"""

import logging
import os

from oslo_log import log

from acstor.api import assembly
from acstor.api.application import WsgiApplication
from acstor.conf import loading

PROGRAM = "acstor-api"
FILES_VARIABLE = "ACSTOR_CONFIG"
"""Environment variable that names the configuration files."""


def _application() -> WsgiApplication:
    files = [name for name in os.environ.get(FILES_VARIABLE, "").split(":") if name]
    arguments = [part for name in files for part in ("--config-file", name)]
    conf = loading.load(PROGRAM, arguments, log.register_options)
    log.setup(conf, PROGRAM)
    loading.warn_of_unknown(conf)
    # It warns at each attempt that Keystone is away; whoever asks is told.
    logging.getLogger("keystoneauth.identity").setLevel(logging.ERROR)
    return assembly.build(conf)


application = _application()
"""The application."""
