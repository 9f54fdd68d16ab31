"""Checks of this machine's readiness for the installed release: ``acstor-status upgrade check``.

Each check is one function that looks at one thing and changes nothing. It takes the configuration
and returns a result that says what is, and where that is not well, what to do.
"""
