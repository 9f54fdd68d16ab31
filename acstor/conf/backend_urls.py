"""The URLs of ``[coordination] backend_url``: one, or the endpoints of one etcd cluster."""

import re
import urllib.parse

from acstor import exception

CLUSTER_SCHEMES = frozenset({"etcd3+http", "etcd3+https"})
"""Backends of which several endpoints may be named: each serves the same data."""
_BETWEEN = re.compile(r"[\s,]+(?=[A-Za-z][A-Za-z0-9+.-]*://)")


def split(text: str) -> tuple[str, ...]:
    """Return the URLs that an operator wrote, separated by whitespace or commas; at least one.

    :raises ConfigurationError: when they cannot be endpoints of one cluster. URLs are not quoted:
        they may hold passwords.
    """
    urls = tuple(_BETWEEN.split(text.strip()))
    if len(urls) == 1:
        return urls
    parts = [urllib.parse.urlsplit(url) for url in urls]
    for each in parts:
        if each.scheme not in CLUSTER_SCHEMES:
            raise exception.ConfigurationError(
                f"[coordination] backend_url names {len(urls)} URLs, one of them {each.scheme}://",
                hint="name several endpoints of one etcd cluster only (etcd3+http://, "
                "etcd3+https://), else one URL",
            )
    if len({(each.scheme, each.path, each.query) for each in parts}) > 1:
        raise exception.ConfigurationError(
            "[coordination] backend_url names URLs that differ in more than host and port",
            hint="write the same scheme, path and query behind each endpoint of the etcd cluster",
        )
    return urls


def without_secret(url: str) -> str:
    """Return the URL without who logs in and without what the query may hold, for messages."""
    parts = urllib.parse.urlsplit(url)
    _, separator, host = parts.netloc.rpartition("@")
    netloc = f"***@{host}" if separator else host
    return parts._replace(netloc=netloc, query="***" if parts.query else "").geturl()
