"""Assembly of a policy service's feeds of Ceilometer's samples, by the configuration."""

import logging
import os
import pathlib

from oslo_config import cfg

from acstor import exception
from acstor.conf import loading
from acstor.http_server.tls import ServerTls
from acstor.policy.feeds.ceilometer.bus import SampleListener
from acstor.policy.feeds.ceilometer.feed import CeilometerSamples
from acstor.policy.feeds.ceilometer.http import ReceiverSettings, SampleReceiver
from acstor.policy.feeds.ceilometer.traffic_file import FILE_NAME
from acstor.policy.load_samples import LoadSamples
from acstor.policy.service import Feed
from acstor.rpc import transport

LOG = logging.getLogger(__name__)

WELL_KNOWN_SECRETS = frozenset({"change this for valid signing"})
"""``[publisher] telemetry_secret`` where nobody has set it (``ceilometer.publisher.utils``)."""
_LOOPBACK = ("127.", "::1", "localhost")


def build(conf: cfg.ConfigOpts, load_samples: LoadSamples) -> list[tuple[str, Feed]]:
    """Return the feeds, by name; none where none is configured.

    :raises ConfigurationError: when something is missing or cannot be read.
    """
    options = conf.ceilometer
    path = os.path.join(os.path.dirname(conf.policy.journal_path), FILE_NAME)
    samples = CeilometerSamples(load_samples, path)
    feeds: list[tuple[str, Feed]] = []
    if options.listen_address:
        feeds.append(("Ceilometer's publisher", _receiver(conf, samples)))
    if options.notifications:
        feeds.append(("Ceilometer's bus", _listener(conf, samples)))
    return feeds


def _receiver(conf: cfg.ConfigOpts, samples: CeilometerSamples) -> SampleReceiver:
    options = conf.ceilometer
    tls = _tls(options.cert_file, options.key_file)
    if tls is None and not options.listen_address.startswith(_LOOPBACK):
        LOG.warning(
            "[ceilometer] cert_file is not set: its password goes over the network in the clear"
        )
    settings = ReceiverSettings(
        options.listen_address,
        options.listen_port,
        options.username,
        _password(conf),
        options.body_max,
        options.connections_max,
        options.request_timeout,
    )
    try:
        receiver = SampleReceiver(settings, samples, tls)
    except OSError as error:
        raise exception.ConfigurationError(
            f"[ceilometer] {options.listen_address} port {options.listen_port} cannot be listened "
            f"on: {error.strerror or error}",
            hint="name an address of this machine and a free port",
        ) from error
    LOG.info("samples of Ceilometer are received on port %d", receiver.port)
    return receiver


def _listener(conf: cfg.ConfigOpts, samples: CeilometerSamples) -> SampleListener:
    options = conf.ceilometer
    if not options.telemetry_secret:
        raise exception.ConfigurationError(
            "[ceilometer] notifications needs telemetry_secret",
            hint="set it to [publisher] telemetry_secret of Ceilometer",
        )
    if options.telemetry_secret in WELL_KNOWN_SECRETS:
        raise exception.ConfigurationError(
            "[ceilometer] telemetry_secret is the one that Ceilometer has by default: whoever "
            "reaches the bus can sign samples with it",
            hint="set a secret of your own here and as [publisher] telemetry_secret of Ceilometer",
        )
    if not loading.is_written(conf, "oslo_messaging_notifications", "transport_url"):
        transport.require(conf)
    return SampleListener(
        samples,
        lambda: transport.open_notification_transport(conf),
        exchange=options.control_exchange,
        topic=options.notification_topic,
        pool=f"acstor-policy-{conf.host}",
        secret=options.telemetry_secret,
    )


def _password(conf: cfg.ConfigOpts) -> str:
    options = conf.ceilometer
    password = options.password or ""
    if options.password_file:
        try:
            lines = pathlib.Path(options.password_file).read_text().splitlines()
        except (OSError, UnicodeError) as error:
            raise exception.ConfigurationError(
                f"[ceilometer] password_file {options.password_file} cannot be read: {error}",
                hint="have it readable by the user of acstor-policy",
            ) from error
        password = lines[0].strip() if lines else ""
    if not password:
        raise exception.ConfigurationError(
            "[ceilometer] listen_address needs a password",
            hint="set password or password_file, and write it into the publisher's URL",
        )
    return password


def _tls(cert_file: str | None, key_file: str | None) -> ServerTls | None:
    if not cert_file:
        return None
    try:
        return ServerTls(cert_file, key_file)
    except OSError as error:
        raise exception.ConfigurationError(
            f"[ceilometer] cert_file {cert_file} or key_file {key_file}: {error}",
            hint="name PEM files that the user of acstor-policy may read",
        ) from error
