"""The release of this installation."""

import functools


@functools.cache
def release() -> str:
    """Return the release, as pbr wrote it into the package's metadata; ``unknown`` without it."""
    # Slow enough (10 ms) for what starts quickly to ask only when it has started.
    from importlib import metadata

    try:
        return metadata.version("acstor")
    except metadata.PackageNotFoundError:
        return "unknown"
