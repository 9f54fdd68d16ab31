"""Sphinx configuration."""

import configparser
import pathlib

_setup = configparser.ConfigParser()
_setup.read(pathlib.Path(__file__).resolve().parents[2] / "setup.cfg")

project = "ACStor"
copyright = "ACStor developers"  # noqa: A001
version = release = _setup["metadata"]["version"]
extensions = ["oslo_config.sphinxext"]
html_theme = "furo"
html_title = f"{project} {version}"
master_doc = "index"
nitpicky = False
