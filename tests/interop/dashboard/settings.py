"""Settings of a Horizon with the plug-in: Horizon's own, with what a deployment sets in its file.

Of the process that serves it alone: :mod:`tests.interop.dashboard.horizon`.
"""

import os
import pathlib
import sys
import types

from openstack_dashboard.local import enabled

import acstor_dashboard.enabled

FOLDER = pathlib.Path(os.environ["ACSTOR_TEST_HORIZON"])
"""Folder of what Horizon makes: static files, its log."""
THEME = pathlib.Path(__file__).parent / "dark"

local_settings = types.ModuleType("local.local_settings")
local_settings.__dict__.update(
    ALLOWED_HOSTS=["127.0.0.1"],
    AVAILABLE_THEMES=[("default", "Default", "themes/default"), ("dark", "Dark", str(THEME))],
    CACHES={"default": {"BACKEND": "django.core.cache.backends.locmem.LocMemCache"}},
    COMPRESS_OFFLINE=True,
    # Its protection from frames hides pages until a script shows them; X-Frame-Options does it too.
    DISALLOW_IFRAME_EMBED=False,
    OPENSTACK_KEYSTONE_URL=os.environ["ACSTOR_TEST_KEYSTONE"],
    SECRET_KEY="s" * 50,
    STATIC_ROOT=str(FOLDER / "static"),
    WEBROOT="/",
)
sys.modules["local"] = types.ModuleType("local")
sys.modules["local.local_settings"] = local_settings
# In place of links in Horizon's own folder, as the guide has them.
enabled.__path__.extend(acstor_dashboard.enabled.__path__)

from openstack_dashboard.settings import *  # noqa: E402, F403
