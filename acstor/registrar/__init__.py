"""The registrar: follows the images of Glance and keeps those that hosts boot from registered."""
