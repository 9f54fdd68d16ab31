"""Cluster, pools and namespaces that a URL of Ceph pools names."""

import dataclasses
import re
import urllib.parse

from acstor import exception
from acstor.origin.rados.connection import Connection

SCHEME = "rados"
CLIENT_DEFAULT = "acstor"
CONF_DEFAULT = "/etc/ceph/ceph.conf"
NAMESPACE_DEFAULT = "acstor"
TIMEOUT_SECONDS = 10.0
"""Longest wait for the cluster: to connect, and for each operation."""
TIMEOUT_SECONDS_MIN, TIMEOUT_SECONDS_MAX = 0.5, 600.0
_NAMESPACE = re.compile(r"[A-Za-z0-9_-]{1,64}")
"""Without dots, which end it in the names of RADOS: ``a.o`` would be a part of ``a``."""
HOSTS = "host"
"""Part of the names of the namespaces that hosts write objects to, and the role of hosts."""
CONTROLLER = "controller"
_OPTIONS = frozenset({"stripe_pool", "ref_pool", "conf", "namespace", "role", "timeout"})


@dataclasses.dataclass(frozen=True, slots=True)
class RadosLocation:
    """Place of one repository.

    :param pool: of heads and small objects.
    :param stripe_pool: of the bytes of large objects. None: the same.
    :param ref_pool: of the refs, replicated. None: the first. All others may be erasure-coded.
    :param conf: path of ceph.conf.
    :param client: name of the client without ``client.``; its key is where ceph.conf says.
    :param namespace: first part of all namespaces: what tells repositories in one pool apart.
    :param is_host: whether to store what a host stores where its key may.
    :param timeout_seconds: of each operation.
    """

    pool: str
    stripe_pool: str | None = None
    ref_pool: str | None = None
    conf: str = CONF_DEFAULT
    client: str = CLIENT_DEFAULT
    namespace: str = NAMESPACE_DEFAULT
    is_host: bool = False
    timeout_seconds: float = TIMEOUT_SECONDS

    @property
    def connection(self) -> Connection:
        """Parameters of a connection to the cluster."""
        return Connection(self.conf, self.client, self.timeout_seconds)


def parse_url(url: urllib.parse.SplitResult) -> RadosLocation:
    """Return what ``rados://[CLIENT@]POOL`` names.

    Behind a ``?`` may follow ``stripe_pool=POOL``, ``ref_pool=POOL``, ``conf=PATH``,
    ``namespace=NAME``, ``role=host`` and ``timeout=SECONDS``, joined by ``&``.

    :raises InvalidError: when the URL is none.
    """
    client, _, pool = url.netloc.rpartition("@")
    options = dict(urllib.parse.parse_qsl(url.query, keep_blank_values=True))
    if not pool or url.path.strip("/") or url.fragment or options.keys() - _OPTIONS:
        raise exception.InvalidError(
            f"{url.geturl()!r} is no URL of Ceph pools",
            hint="write rados://CLIENT@POOL, and the options behind a ?",
        )
    if ":" in client or not all(options.values()):
        raise exception.InvalidError(
            f"the URL of pool {pool} holds a password, or an option without value",
            hint="the client's key belongs into its keyring",
        )
    return RadosLocation(
        urllib.parse.unquote(pool),
        stripe_pool=options.get("stripe_pool"),
        ref_pool=options.get("ref_pool"),
        conf=options.get("conf", CONF_DEFAULT),
        client=urllib.parse.unquote(client) or CLIENT_DEFAULT,
        namespace=_namespace(options.get("namespace")),
        is_host=_is_host(options.get("role")),
        timeout_seconds=_timeout(options.get("timeout")),
    )


def _namespace(text: str | None) -> str:
    if text is None:
        return NAMESPACE_DEFAULT
    if not _NAMESPACE.fullmatch(text):
        raise exception.InvalidError(
            f"{text!r} is no namespace of a repository",
            hint="up to 64 letters, digits, underscores and hyphens make one",
        )
    return text


def _is_host(role: str | None) -> bool:
    if role not in (None, CONTROLLER, HOSTS):
        raise exception.InvalidError(
            f"{role!r} is no role", hint=f"write role={HOSTS} on hosts, or leave it away"
        )
    return role == HOSTS


def _timeout(text: str | None) -> float:
    try:
        seconds = TIMEOUT_SECONDS if text is None else float(text)
    except ValueError:
        seconds = 0.0
    if not TIMEOUT_SECONDS_MIN <= seconds <= TIMEOUT_SECONDS_MAX:
        raise exception.InvalidError(
            f"timeout {text!r} is not from {TIMEOUT_SECONDS_MIN} to {TIMEOUT_SECONDS_MAX} seconds"
        )
    return seconds
