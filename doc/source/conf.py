"""Sphinx configuration."""

project = "ACStor"
copyright = "ACStor developers"  # noqa: A001
extensions = ["openstackdocstheme", "oslo_config.sphinxext"]
openstackdocs_auto_name = False
openstackdocs_repo_name = "acstor"
html_theme = "openstackdocs"
master_doc = "index"
nitpicky = False
html_theme_options = {"display_global_toc_section": True}
