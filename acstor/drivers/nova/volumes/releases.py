"""The releases of Nova that volumes are attached with."""

import importlib.metadata

from acstor import exception

SUPPORTED = {32: "2025.2", 33: "2026.1", 34: "2026.2"}
"""Major version of Nova, with OpenStack's name of that release: what the contract tests run against
(``tox -e nova32,nova33,nova34``). What is registered and wrapped is Nova's inside, which another
release may change without a word."""


def check() -> None:
    """Look at the release of the Nova that is installed beside this.

    :raises UnsupportedError: when volumes were not tested with it.
    """
    try:
        installed = importlib.metadata.version("nova")
    except importlib.metadata.PackageNotFoundError:
        installed = "of an unknown version"
    major, _, _ = installed.partition(".")
    if not major.isdecimal() or int(major) not in SUPPORTED:
        known = ", ".join(f"{number} ({name})" for number, name in sorted(SUPPORTED.items()))
        raise exception.UnsupportedError(
            f"Nova {installed} was not tested with this release of ACStor, which knows {known}",
            hint="install a release of ACStor that knows it; until then this host has no volumes "
            "of ACStor, and nothing else of Nova is changed",
        )
