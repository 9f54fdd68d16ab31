"""Origin behind a web server: its driver, and the credentials of a host there."""
