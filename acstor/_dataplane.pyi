"""The extension module; only ``acstor.dataplane`` imports it."""
