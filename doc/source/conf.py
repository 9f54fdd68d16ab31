"""Sphinx configuration."""

import configparser
import pathlib
import sys

_root = pathlib.Path(__file__).resolve().parents[2]
_setup = configparser.ConfigParser()
_setup.read(_root / "setup.cfg")
# Last, so that an installed ACStor stays the one that is documented.
sys.path += [str(_root / "doc" / "ext"), str(_root)]

project = "ACStor"
copyright = "ACStor developers"  # noqa: A001
version = release = _setup["metadata"]["version"]
extensions = ["oslo_config.sphinxext", "acstor_api", "acstor_results"]
html_theme = "furo"
html_title = f"{project} {version}"
master_doc = "index"
nitpicky = False
