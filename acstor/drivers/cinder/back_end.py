"""The repository behind a back-end: what every part of the driver works on."""

import contextlib
import functools
import logging
import os
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from cinder.volume import volume_utils
from oslo_config import cfg

from acstor import exception
from acstor.conf import loading
from acstor.conf.repository import PUBLIC_KEYS
from acstor.drivers.cinder import capacity, native_threads
from acstor.drivers.cinder.disk_import import DiskImport
from acstor.drivers.cinder.hosts import AgentHosts, Hosts
from acstor.drivers.cinder.native_threads import Caller, DirectCaller
from acstor.origin import configured, opening
from acstor.origin.base import Origin
from acstor.repository.dedup_scope import DedupScope
from acstor.repository.images.image_registry import EntryState, ImageRegistry
from acstor.repository.images.signed_record import RecordVerifier
from acstor.repository.opening import refuse_backup
from acstor.repository.repository import Image, Repository
from acstor.repository.signing.signed_document import UnverifiedError
from acstor.repository.signing.trusted_keys import TrustedKeys
from acstor.repository.volumes.store import VolumeStore
from acstor.rpc.signature import checked_secrets

LOG = logging.getLogger(__name__)

OpenOrigin = Callable[[str, float, opening.Around], Origin]


@dataclass(frozen=True)
class OriginSettings:
    """Origin of a back-end, its timeout and the scope of its deduplication."""

    url: str
    timeout: float
    """Seconds."""
    dedup_scope: DedupScope = DedupScope.CLOUD
    """Scope in which chunks that are written to volumes are shared."""
    public_keys: str = PUBLIC_KEYS
    """Directory of the keys that may have signed records of images."""
    require_signatures: bool = False
    """Set where images without a signature are copied from Glance."""
    whole_url: str = ""
    """Of all members of the origin, the first of which :attr:`url` is; empty: there is one."""


class BackEnd:
    """An opened repository, its volumes and the hosts that have them open."""

    def __init__(
        self,
        settings: OriginSettings,
        origin: Origin,
        hosts: Hosts,
        *,
        caller: Caller | None = None,
        cache_directory: str | None = None,
        temporary_directory: str | None = None,
    ) -> None:
        """Open the repository in ``origin``.

        :param caller: runs what blocks; ``origin`` goes through it by itself.
        :raises NotFoundError: when there is none.
        :raises UnsupportedError: when it is of a version without what the settings want.
        :raises UnavailableError: when it is a backup.
        """
        self.settings = settings
        self.repository = Repository.open(origin)
        refuse_backup(origin)
        self.repository.check_scopes_of(settings.dedup_scope)
        self.volumes = VolumeStore(self.repository)
        self.hosts = hosts
        self._caller = caller or DirectCaller()
        self.importer = DiskImport(self.repository, cache_directory, self._caller)
        self._registry = ImageRegistry(origin)
        self._verifier = RecordVerifier(
            self.repository.format.id,
            TrustedKeys(settings.public_keys),
            require_signatures=settings.require_signatures,
        )
        self._temporary_directory = temporary_directory

    @property
    def location(self) -> str:
        """Identity of the store of volumes: back-ends of equal location share their volumes."""
        return f"acstor:{self.repository.format.id}"

    def capacity(self) -> capacity.Capacity | None:
        """Return the room that the origin has; None: not known."""
        return self._caller.run(lambda: capacity.of_origin(self.settings.url))

    def image_to_clone(self, image_id: str) -> Image | None:
        """Return the registered image that volumes may be made from, None when it may not.

        An image that is left to Nova, is being withdrawn or was not registered is not used; nor is
        one whose record is not signed as it has to be.
        """
        try:
            entry = self._registry.find(image_id)
        except exception.InvalidError:
            return None
        if entry is not None and entry.entry.state is not EntryState.REGISTERED:
            return None
        self._verifier.keys.refresh()
        try:
            return self.repository.find_verified_image(image_id, self._verifier)
        except UnverifiedError as error:
            LOG.warning("the image is copied from Glance: %s", error)
            return None

    def directory(self) -> str:
        """Return the directory for temporary files."""
        return self._temporary_directory or str(volume_utils.image_conversion_dir())

    @contextlib.contextmanager
    def temporary_file(self) -> Iterator[str]:
        """Yield the path of a new, empty file that only this user can read."""
        with tempfile.NamedTemporaryFile(prefix="acstor_", dir=self.directory()) as file:
            yield file.name


def origin_settings(configuration: Any) -> OriginSettings:
    """Return what a back-end's section says of the origin.

    :param configuration: Cinder's, of the back-end.
    :raises ConfigurationError: when neither it nor acstor.conf says it.
    """
    url = configuration.safe_get("acstor_origin_url")
    scope = configuration.safe_get("acstor_dedup_scope")
    public_keys = configuration.safe_get("acstor_public_keys")
    required = configuration.safe_get("acstor_require_signatures")
    if url:
        timeout = configuration.safe_get("acstor_origin_timeout")
        return OriginSettings(
            url,
            timeout,
            DedupScope(scope or DedupScope.CLOUD),
            public_keys or PUBLIC_KEYS,
            bool(required),
        )
    path = configuration.safe_get("acstor_conf")
    if not path or not os.access(path, os.R_OK):
        raise exception.ConfigurationError(
            f"no origin is configured: acstor_origin_url is not set and {path} cannot be read",
            hint="set acstor_origin_url in the back-end's section of cinder.conf to [origin] url "
            "of acstor.conf",
        )
    conf = loading.load("cinder-volume", ["--config-file", path])
    dedup_scope = DedupScope(scope or conf.repository.dedup_scope)
    return OriginSettings(
        configured.home_url(conf),
        conf.origin.timeout,
        dedup_scope,
        public_keys or conf.repository.public_keys,
        conf.repository.require_signatures if required is None else required,
        configured.origin_url(conf) if conf.origin.members else "",
    )


def open_back_end(
    configuration: Any,
    conf: cfg.ConfigOpts,
    *,
    open_origin: OpenOrigin = opening.open_origin,
    hosts: Hosts | None = None,
) -> BackEnd:
    """Open what a back-end's section describes.

    :param conf: Cinder's global configuration, for its message transport.
    :raises AcstorError: saying what is wrong and what to do.
    """
    settings = origin_settings(configuration)
    caller = native_threads.find_caller()
    around = functools.partial(native_threads.around, caller)
    url = settings.url
    if settings.whole_url and isinstance(caller, DirectCaller):
        # Members have threads of their own, which must not be Eventlet's. With the home alone a
        # volume whose log is elsewhere, and not copied yet, is refused.
        url = settings.whole_url
    return BackEnd(
        settings,
        caller.run(lambda: open_origin(url, settings.timeout, around)),
        hosts or _agent_hosts(configuration, conf),
        caller=caller,
        cache_directory=configuration.safe_get("acstor_cache_directory") or None,
        temporary_directory=configuration.safe_get("acstor_temporary_directory") or None,
    )


def _agent_hosts(configuration: Any, conf: cfg.ConfigOpts) -> AgentHosts:
    def open_transport() -> Any:
        import oslo_messaging

        url = configuration.safe_get("acstor_transport_url") or None
        try:
            return oslo_messaging.get_rpc_transport(conf, url=url)
        except Exception as error:
            # Its text may hold the URL, and that holds a password.
            raise exception.ConfigurationError(
                f"the message transport to the agents cannot be had ({type(error).__name__})",
                hint="correct acstor_transport_url, or [DEFAULT] transport_url of cinder.conf",
            ) from None

    secret = configuration.safe_get("acstor_rpc_secret") or None
    if secret is not None:
        checked_secrets([secret])
    return AgentHosts(open_transport, configuration.safe_get("acstor_agent_timeout"), secret)
