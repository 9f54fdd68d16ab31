"""Settings of a Horizon with the plug-in, for tests: Horizon's own, with ours as its guide has it.

Source: ``manila_ui/tests/settings.py``. Differs: logging and the timeout of sockets stay as they
are in the process of the tests, and no style is compiled.
"""

import importlib
import socket
import tempfile
from typing import Any
from unittest import mock

from openstack_dashboard import enabled, exceptions
from openstack_dashboard.utils import settings as settings_tools

import acstor_dashboard.enabled

with mock.patch("horizon.utils.secret_key.generate_or_read_from_file", return_value="s" * 50):
    # Its key would be in a file that all processes share.
    horizon_settings = importlib.import_module("openstack_dashboard.test.settings")
globals().update({name: value for name, value in vars(horizon_settings).items() if name.isupper()})
socket.setdefaulttimeout(None)

LOGGING_CONFIG = None
COMPRESS_ENABLED = False
COMPRESS_PRECOMPILERS = ()
STATIC_ROOT = tempfile.gettempdir()
ALLOWED_HOSTS = ["*"]
POLICY_CHECK_FUNCTION = "openstack_auth.policy.check"
POLICY_FILES: dict[str, str] = {}
DEFAULT_POLICY_FILES: dict[str, str] = {}
LANGUAGES = (("en", "English"), ("de", "German"))

INSTALLED_APPS = [
    "django.contrib.contenttypes",
    "django.contrib.auth",
    "django.contrib.sessions",
    "django.contrib.staticfiles",
    "django.contrib.messages",
    "django.contrib.humanize",
    "openstack_auth",
    "compressor",
    "horizon",
    "openstack_dashboard",
]
HORIZON_CONFIG: dict[str, Any] = {
    "user_home": None,
    "help_url": "https://docs.example/",
    "exceptions": {
        "recoverable": exceptions.RECOVERABLE,
        "not_found": exceptions.NOT_FOUND,
        "unauthorized": exceptions.UNAUTHORIZED,
    },
    "angular_modules": [],
    "js_files": [],
}
settings_tools.update_dashboards(
    [enabled, acstor_dashboard.enabled], HORIZON_CONFIG, INSTALLED_APPS
)
settings_tools.find_static_files(
    HORIZON_CONFIG,
    horizon_settings.AVAILABLE_THEMES,
    horizon_settings.THEME_COLLECTION_DIR,
    horizon_settings.ROOT_PATH,
)
HORIZON_CONFIG["external_templates"] = []
_OPTIONS = horizon_settings.TEMPLATES[0]["OPTIONS"]
_OPTIONS["loaders"] = [("django.template.loaders.cached.Loader", _OPTIONS["loaders"])]
