"""The image service (Glance): what the registrar needs of it, and nothing more."""
