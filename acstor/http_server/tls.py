"""TLS of the control processes' own HTTP servers, with files that may be renewed."""

import logging
import os
import ssl

LOG = logging.getLogger(__name__)

_Stamp = tuple[int, int, int] | None


class ServerTls:
    """The context for accepted connections, made anew when its files change.

    Renewed files that do not fit together leave the last good ones in use.

    :param cert_file: certificate chain, PEM.
    :param key_file: its key; None: it is in ``cert_file``.
    :param client_ca_file: the authority of the clients, PEM; None: everybody may connect.
    :raises OSError: when the files cannot be used.
    """

    def __init__(
        self, cert_file: str, key_file: str | None = None, client_ca_file: str | None = None
    ) -> None:
        self._cert_file, self._key_file, self._client_ca_file = cert_file, key_file, client_ca_file
        self._stamps = self._read_stamps()
        self._context = self._load()

    def context(self) -> ssl.SSLContext:
        """Return the context for one connection."""
        stamps = self._read_stamps()
        if stamps != self._stamps:
            self._stamps = stamps
            try:
                self._context = self._load()
            except OSError as error:
                LOG.warning("%s was renewed and is not usable: %s", self._cert_file, error)
            else:
                LOG.info("%s was renewed", self._cert_file)
        return self._context

    def _load(self) -> ssl.SSLContext:
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.load_cert_chain(self._cert_file, self._key_file)
        if self._client_ca_file is not None:
            context.load_verify_locations(self._client_ca_file)
            context.verify_mode = ssl.CERT_REQUIRED
        return context

    def _read_stamps(self) -> list[_Stamp]:
        files = (self._cert_file, self._key_file, self._client_ca_file)
        return [_stamp(path) for path in files if path is not None]


def _stamp(path: str) -> _Stamp:
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_ino, found.st_mtime_ns, found.st_size
