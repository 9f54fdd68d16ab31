"""Check of this host's certificate, key and authority: they work together."""

import base64
import contextlib
import pathlib
import re
import ssl
import time
from collections.abc import Iterator

from oslo_config import cfg
from oslo_upgradecheck.upgradecheck import Result

from acstor import exception
from acstor.checks.host import NOT_COMPUTE, is_compute_host
from acstor.checks.verdict import failure, success, warning
from acstor.dataplane.settings import advertised_address

_DAYS_LEFT_MIN = 14
_DAY_SECONDS = 86400
_HOSTNAME_MISMATCH = 62  # X509_V_ERR_HOSTNAME_MISMATCH
_NO_CRL = 3  # X509_V_ERR_UNABLE_TO_GET_CRL: the authority has none, and revokes nobody
_CRL_HAS_EXPIRED = 12  # X509_V_ERR_CRL_HAS_EXPIRED
_DER_INTEGER = 0x02
_HINT = "'Certificates between hosts' in the administration guide says how to make certificates"


def check_certificate(conf: cfg.ConfigOpts) -> Result:
    """Check that a peer of the same authority would accept this host's certificate."""
    if not is_compute_host(conf):
        return success(NOT_COMPUTE)
    peer = conf.peer
    if not peer.tls_enabled:
        return warning(
            "[peer] tls_enabled = false: whoever reaches port "
            f"{peer.listen_port} can read chunks; turn it on unless the network is encrypted"
        )
    try:
        ends_at = _handshake(conf, conf.host)
    except OSError as error:
        named = f"{error.filename}: " if error.filename else ""
        return failure(
            f"{named}{error.strerror or error}: check [peer] ca_file, cert_file, key_file; {_HINT}"
        )
    try:
        overdue = _check_revocations(peer)
    except OSError as error:
        return failure(f"[peer] crl_file {peer.crl_file}: {error}; {_HINT}")
    days_left = int((ssl.cert_time_to_seconds(ends_at) - time.time()) // _DAY_SECONDS)
    text = f"{peer.cert_file} is valid for {days_left} more days"
    if days_left < _DAYS_LEFT_MIN:
        return warning(f"{text}; put a new one in place (no restart is needed); {_HINT}")
    if overdue:
        return warning(f"{text}; {peer.crl_file} is overdue, have the authority make a new list")
    return success(text)


def _check_revocations(peer: cfg.ConfigOpts.GroupAttr) -> bool:
    """Return whether a revocation list is overdue.

    :raises OSError: when the lists cannot be used, or one has this host's certificate.
    """
    if not peer.crl_file:
        return False
    context = _context(peer, ssl.PROTOCOL_TLS_SERVER)
    context.load_verify_locations(peer.crl_file)
    if not context.cert_store_stats()["crl"]:
        raise OSError("it holds no revocation list in PEM form")
    if not all(_is_version_2(der) for der in _lists(peer.crl_file)):
        raise OSError("a list is of version 1: have the authority make it with crl_extensions")
    context.verify_flags |= ssl.VerifyFlags.VERIFY_CRL_CHECK_LEAF
    try:
        _shake_hands(_context(peer, ssl.PROTOCOL_TLS_CLIENT), context, None)
    except ssl.SSLCertVerificationError as error:
        if error.verify_code not in {_NO_CRL, _CRL_HAS_EXPIRED}:
            raise OSError(error.verify_message) from error
        return error.verify_code == _CRL_HAS_EXPIRED
    return False


def _lists(path: str) -> Iterator[bytes]:
    """Yield the revocation lists of a PEM file in DER."""
    text = pathlib.Path(path).read_text(encoding="ascii", errors="replace")
    for body in re.findall(r"-----BEGIN X509 CRL-----(.*?)-----END X509 CRL-----", text, re.DOTALL):
        yield base64.b64decode(body)


def _is_version_2(der: bytes) -> bool:
    """Return whether a list begins with a version, which only version 2 has (RFC 5280, 5.1.2.1)."""
    at = 0
    for _ in range(2):  # into CertificateList and TBSCertList
        length = der[at + 1]
        at += 2 + (length & 0x7F if length & 0x80 else 0)
    return der[at] == _DER_INTEGER


def _handshake(conf: cfg.ConfigOpts, name: str) -> str:
    """Shake hands with ourselves, as two hosts do, and return when the certificate ends.

    :raises OSError: when a file is missing, does not fit, or the certificate is not accepted.
    """
    try:
        return _handshake_as(conf, name)
    except ssl.SSLCertVerificationError as error:
        if error.verify_code != _HOSTNAME_MISMATCH:
            raise
        try:
            return _handshake_as(conf, advertised_address(conf))
        except exception.AcstorError:
            raise error from None


def _handshake_as(conf: cfg.ConfigOpts, name: str) -> str:
    peer = conf.peer
    client = _context(peer, ssl.PROTOCOL_TLS_CLIENT)
    return _shake_hands(client, _context(peer, ssl.PROTOCOL_TLS_SERVER), name)


def _context(peer: cfg.ConfigOpts.GroupAttr, protocol: ssl._SSLMethod) -> ssl.SSLContext:
    context = ssl.SSLContext(protocol)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    with _naming(peer.ca_file):
        context.load_verify_locations(peer.ca_file)
    with _naming(f"{peer.cert_file} with {peer.key_file}"):
        context.load_cert_chain(peer.cert_file, peer.key_file)
    context.verify_mode = ssl.CERT_REQUIRED
    return context


def _shake_hands(client_side: ssl.SSLContext, server_side: ssl.SSLContext, name: str | None) -> str:
    """Shake hands in memory and return when the server's certificate ends.

    :param name: that the server's certificate must have; None: any.
    """
    client_side.check_hostname = name is not None
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = client_side.wrap_bio(to_client, to_server, server_hostname=name)
    server = server_side.wrap_bio(to_server, to_client, server_side=True)
    for end in (client, server, client, server):
        try:
            end.do_handshake()
        except ssl.SSLWantReadError:
            continue
    certificate = client.getpeercert()
    assert certificate is not None  # CERT_REQUIRED
    return str(certificate["notAfter"])


@contextlib.contextmanager
def _naming(files: str) -> Iterator[None]:
    """Add the files to errors of the body, which do not name them."""
    try:
        yield
    except OSError as error:
        reason = error.strerror or str(error)
        raise OSError(error.errno, reason, files) from error
