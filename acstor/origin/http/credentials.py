"""Credentials of a host at the web server of an origin: mutual TLS, a bearer token, or both.

They are named in the query of the origin's URL, as tooz names those of etcd::

    https://origin.example:8443/acstor?ca_cert=/etc/acstor/tls/origin-ca.pem&
        cert_cert=/etc/acstor/tls/host.pem&cert_key=/etc/acstor/tls/host.key&
        token_file=/etc/acstor/origin.token

``ca_cert``
    authorities that are believed, instead of the system's
``cert_cert``, ``cert_key``
    this host's certificate and its private key, which may be in the same file
``token_file``
    a file with a bearer token (RFC 6750), which goes along with each request

Files that are renewed are read again when the server refuses the former ones.
"""

import dataclasses
import logging
import os
import re
import ssl
import threading
import urllib.parse
from collections.abc import Mapping

from acstor import exception, private_files

LOG = logging.getLogger(__name__)

_NAMES = ("ca_cert", "cert_cert", "cert_key", "token_file")
_TOKEN = re.compile(rb"[A-Za-z0-9._~+/-]+=*")
"""RFC 6750, section 2.1: b64token."""
LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})
"""Hosts to which a secret may go in the clear: it does not leave this one."""
_QUERY_MAX = 8 << 10


@dataclasses.dataclass(frozen=True, slots=True)
class CredentialFiles:
    """The files that hold credentials; None: there is none."""

    ca_cert: str | None = None
    cert_cert: str | None = None
    cert_key: str | None = None
    token_file: str | None = None

    @classmethod
    def of_query(cls, query: str) -> "CredentialFiles":
        """Read the query of an origin's URL.

        :raises InvalidError: when it names anything else, one twice, or a path that is not
            absolute.
        """
        if len(query) > _QUERY_MAX:
            raise exception.InvalidError("the query of the origin's URL is too long")
        found: dict[str, str] = {}
        try:
            fields = urllib.parse.parse_qsl(query, keep_blank_values=True, strict_parsing=True)
        except ValueError:
            # Without the cause, which quotes it: somebody may have put a password there.
            raise exception.InvalidError("the query of the origin's URL is malformed") from None
        for name, path in fields:
            if name not in _NAMES or name in found:
                raise exception.InvalidError(
                    f"the origin's URL names {name!r:.40}, or names it twice",
                    hint=f"its query takes, each once, {', '.join(_NAMES)}",
                )
            if not os.path.isabs(path):
                raise exception.InvalidError(f"{name} in the origin's URL is no absolute path")
            found[name] = path
        if "cert_key" in found and "cert_cert" not in found:
            raise exception.InvalidError("cert_key in the origin's URL needs cert_cert")
        return cls(**found)


class HttpCredentials:
    """Credentials as the files have them; safe to use from several threads.

    :param host: the web server's name.
    :raises InvalidError: when they would go over the network in the clear.
    :raises ConfigurationError: when a file is missing, malformed, or readable by others.
    """

    def __init__(self, files: CredentialFiles, scheme: str, host: str) -> None:
        self._files = files
        self._lock = threading.Lock()
        if scheme != "https":
            self._check_in_the_clear(host)
        self._chain_state = self._state_of_chain()
        self.tls = self._new_context() if scheme == "https" else None
        self._token = self._read_token()

    def headers(self) -> Mapping[str, str]:
        """Return what goes along with each request."""
        token = self._token
        return {} if token is None else {"Authorization": f"Bearer {token}"}

    def renew_token(self, refused: Mapping[str, str]) -> bool:
        """Read the token again after the server has refused it; return whether it is another one.

        :param refused: :meth:`headers` as they were sent.
        :raises ConfigurationError: when the file cannot be read any more.
        """
        with self._lock:
            if self.headers() == refused:
                self._token = self._read_token()
            return self.headers() != refused

    def renew_certificate(self) -> None:
        """Load the certificate again where its files were changed.

        Connections that are made from now on show it. One that cannot be loaded, or whose key has
        yet to follow, leaves the former one in place.
        """
        if self.tls is None or self._files.cert_cert is None:
            return
        with self._lock:
            try:
                state = self._state_of_chain()
                if state != self._chain_state:
                    # Apart first: a key that does not match is found with the certificate in place.
                    self._load_chain(ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT))
                    self._load_chain(self.tls)
                    self._chain_state = state
            except exception.ConfigurationError as error:
                LOG.warning("the former certificate is shown to the origin: %s", error)

    def _check_in_the_clear(self, host: str) -> None:
        files = self._files
        if files.ca_cert or files.cert_cert:
            raise exception.InvalidError("an origin with certificates needs an https:// URL")
        if files.token_file and host not in LOOPBACK:
            raise exception.InvalidError(
                "the token of the origin would go over the network in the clear",
                hint="use an https:// URL",
            )

    def _new_context(self) -> ssl.SSLContext:
        path = self._files.ca_cert
        try:
            context = ssl.create_default_context(cafile=path)
        except (OSError, ssl.SSLError) as error:
            raise exception.ConfigurationError(
                f"the authorities of the origin, {path}, cannot be used: {_reason(error)}",
                hint="correct ca_cert in [origin] url; it is a file of certificates in PEM",
            ) from error
        self._load_chain(context)
        return context

    def _load_chain(self, context: ssl.SSLContext) -> None:
        path = self._files.cert_cert
        if path is None:
            return
        key = self._files.cert_key or path
        private_files.read_private(key, "private key")
        try:
            # An empty password: a key that is encrypted is an error, not a question at a terminal.
            context.load_cert_chain(path, key, password="")
        except (OSError, ssl.SSLError) as error:
            raise exception.ConfigurationError(
                f"the certificate for the origin, {path}, cannot be used: {_reason(error)}",
                hint="correct cert_cert and cert_key in [origin] url: a certificate in PEM and the "
                "key that belongs to it, without a password",
            ) from error

    def _state_of_chain(self) -> tuple[tuple[int, int], ...]:
        paths = filter(None, (self._files.cert_cert, self._files.cert_key))
        try:
            found = [os.stat(path) for path in paths]
        except OSError as error:
            raise exception.ConfigurationError(
                f"the certificate for the origin cannot be read: {error.filename}: "
                f"{error.strerror}",
                hint="correct cert_cert and cert_key in [origin] url",
            ) from error
        return tuple((one.st_mtime_ns, one.st_ino) for one in found)

    def _read_token(self) -> str | None:
        if self._files.token_file is None:
            return None
        content = private_files.read_private(self._files.token_file, "token").strip()
        if not _TOKEN.fullmatch(content):
            raise exception.ConfigurationError(
                f"{self._files.token_file} holds no bearer token",
                hint="it is one line of letters, digits and -._~+/ (RFC 6750)",
            )
        return content.decode("ascii")


def _reason(error: OSError) -> str:
    """Return what went wrong, without the path, which the message has."""
    if isinstance(error, ssl.SSLError):
        return error.reason or "it is malformed"
    return error.strerror or type(error).__name__
