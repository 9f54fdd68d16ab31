"""Settings of the Rust runtime: plain values, checked by the configuration before."""

import ipaddress
import logging
import os
import socket
from typing import TypedDict

from oslo_config import cfg

from acstor import exception
from acstor.dataplane import groups

LOG = logging.getLogger(__name__)

_WILDCARDS = frozenset({"0.0.0.0", "::"})  # noqa: S104 - compared with, never bound


class DataPlaneSettings(TypedDict):
    """The ``config`` of :class:`acstor._dataplane.DataPlane`; all keys are always present.

    Names are those of the options with their group in front and the unit behind; paths are
    absolute; durations are whole milliseconds (``_ms``), sizes bytes (``_bytes``).
    """

    host: str
    """Name of this host in the ring."""
    version: str
    """Release of ACStor."""
    state_path: str
    """Existing directory where the runtime may keep small files of its own."""
    origin_posix_root: str | None
    """Directory of a POSIX origin, read natively; None: the Python origin is called."""
    store_path: str
    store_capacity_bytes: int
    store_eviction: str
    """s3fifo, fifo, lru or lfu."""
    store_copies_max: int
    """0: copies are not limited."""
    chunk_size: int
    """Chunk size of the repository, bytes, a power of two."""
    mount_point: str
    """Existing directory."""
    fuse_threads: int
    runtime_threads: int
    origin_threads: int
    read_ahead_kb: int
    """KiB; 0: none."""
    allow_other: bool
    image_group: int | None
    """Number of the group that reads the images; None: every user does."""
    read_deadline_ms: int
    origin_deadline_ms: int
    peer_deadline_ms: int
    placement: str
    """oid or digest."""
    placement_span_chunks: int
    keep: str
    """never, second-touch or always."""
    load_aware: bool
    """Loaded peers are passed over."""
    slow_fetch_ms: int
    """Least time of a chunk over a link that is full."""
    compress_slow: bool
    prefer: str
    """origin-bytes or boot-time."""
    hedge_enabled: bool
    hedge_min_ms: int
    prefetch_max_bytes: int
    boot_window_ms: int
    hint_preload_bytes_per_s: int
    """0: a hint starts no preload."""
    multicast_group: str | None
    """IP address and port; None: nothing is sent by multicast."""
    multicast_interface: str
    """IPv4 address of this host."""
    multicast_link_bytes_per_s: int
    multicast_rate_bytes_per_s: int
    """Of one session."""
    read_ahead_budget_bytes: int
    """Memory for what is read ahead of boots; 0: nothing is."""
    exchange: str
    """none, ring, k-ring, tree or topology."""
    exchange_fan_out: int
    manifest_cache_bytes: int
    """Memory for pages of manifests."""
    peer_inflight_max: int
    """Chunks in flight per peer."""
    distance_threshold: int | None
    """None: no candidate is too far."""
    peer_listen_address: str
    """IP address."""
    peer_listen_port: int
    """0: any free port."""
    peer_advertise_address: str
    """IP address without port."""
    peer_members_only: bool
    tls_enabled: bool
    tls_ca_file: str
    tls_cert_file: str
    tls_key_file: str
    tls_crl_file: str | None
    """PEM files; only read when tls_enabled. None: no certificate is ever revoked."""
    peer_connect_timeout_ms: int
    peer_idle_timeout_ms: int
    peer_connections_max: int
    peer_requests_inflight_max: int
    peer_bytes_inflight_max: int
    volumes_quota_bytes: int
    """Of one volume's local log; 0: by the volume's size."""
    volumes_segment_bytes: int
    volumes_fold_bytes: int
    volumes_fold_objects: int
    volumes_push_bytes_per_s: int
    """Per volume; 0: no limit."""
    volumes_io_timeout_ms: int
    """0: no limit."""
    log_directives: str
    """Events that reach the log channel, as for set_log_level."""


def resolve(name: str, option: str) -> str:
    """Return the first IP address of a host name or address.

    :param option: where the name comes from, for the error.
    :raises ConfigurationError: when it does not resolve.
    """
    try:
        return str(socket.getaddrinfo(name, None, type=socket.SOCK_STREAM)[0][4][0])
    except OSError as error:
        raise exception.ConfigurationError(
            f"{option}: {name!r} has no address: {error.strerror}",
            hint="set [peer] advertise_address to the IP address that other hosts reach",
        ) from error


def advertised_address(conf: cfg.ConfigOpts) -> str:
    """Return the IP address under which peers reach this host.

    :raises ConfigurationError: when no address is configured and the host's name does not resolve.
    """
    if conf.peer.advertise_address:
        return resolve(conf.peer.advertise_address, "[peer] advertise_address")
    listening = resolve(conf.peer.listen_address, "[peer] listen_address")
    if listening not in _WILDCARDS:
        return listening
    address = resolve(conf.host, "[DEFAULT] host")
    if ipaddress.ip_address(address.partition("%")[0]).is_loopback:
        LOG.warning(
            "the name %s resolves to %s, which no other host reaches; set [peer] advertise_address",
            conf.host,
            address,
        )
    return address


def _multicast_group(conf: cfg.ConfigOpts) -> str | None:
    if conf.preload.multicast == "off":
        return None
    group, port = conf.preload.multicast_group, conf.preload.multicast_port
    return f"[{group}]:{port}" if ":" in group else f"{group}:{port}"


def _multicast_interface(conf: cfg.ConfigOpts) -> str:
    """Return the address by which the group is reached; of a host without IPv4 the wildcard."""
    if conf.preload.multicast_interface:
        return str(conf.preload.multicast_interface)
    address = advertised_address(conf)
    return "0.0.0.0" if ":" in address else address  # noqa: S104 - an interface, not a listener


def from_conf(
    conf: cfg.ConfigOpts, *, version: str, chunk_size: int, origin_posix_root: str | None
) -> DataPlaneSettings:
    """Return the runtime's settings.

    :param chunk_size: of the repository that the origin holds, bytes.
    :param origin_posix_root: see :class:`DataPlaneSettings`.
    :raises ConfigurationError: as :func:`advertised_address`, or without the group of the images.
    """
    read, peer = conf.readpath, conf.peer
    return DataPlaneSettings(
        host=conf.host,
        version=version,
        state_path=os.path.join(conf.state_path, "dataplane"),
        origin_posix_root=origin_posix_root,
        store_path=conf.store.path,
        store_capacity_bytes=conf.store.capacity,
        store_eviction=conf.store.eviction,
        store_copies_max=conf.store.copies_max,
        chunk_size=chunk_size,
        mount_point=conf.dataplane.mount_point,
        fuse_threads=conf.dataplane.fuse_threads or _default_fuse_threads(),
        runtime_threads=conf.dataplane.runtime_threads,
        origin_threads=conf.dataplane.origin_threads,
        read_ahead_kb=conf.dataplane.read_ahead_kb,
        allow_other=conf.dataplane.allow_other,
        image_group=groups.reported_image_group(conf.dataplane.image_group),
        read_deadline_ms=_milliseconds(read.read_deadline),
        origin_deadline_ms=_milliseconds(read.origin_deadline),
        peer_deadline_ms=_milliseconds(read.peer_deadline),
        placement=read.placement,
        placement_span_chunks=read.placement_span_chunks,
        keep=read.keep,
        load_aware=read.load_aware,
        slow_fetch_ms=_milliseconds(read.slow_fetch),
        compress_slow=read.compress_slow,
        prefer=conf.dataplane.prefer,
        hedge_enabled=read.hedge_enabled,
        hedge_min_ms=_milliseconds(read.hedge_min),
        prefetch_max_bytes=read.prefetch_max,
        boot_window_ms=_milliseconds(conf.dataplane.boot_window),
        hint_preload_bytes_per_s=conf.dataplane.hint_preload_rate,
        multicast_group=_multicast_group(conf),
        multicast_interface=_multicast_interface(conf),
        multicast_link_bytes_per_s=conf.preload.multicast_link,
        multicast_rate_bytes_per_s=conf.preload.multicast_rate,
        read_ahead_budget_bytes=min(conf.dataplane.read_ahead_budget, _memory() // 100),
        exchange=read.exchange,
        exchange_fan_out=read.exchange_fan_out,
        manifest_cache_bytes=conf.dataplane.manifest_cache,
        peer_inflight_max=read.peer_inflight_max,
        distance_threshold=read.distance_threshold,
        peer_listen_address=resolve(peer.listen_address, "[peer] listen_address"),
        peer_listen_port=peer.listen_port,
        peer_advertise_address=advertised_address(conf),
        peer_members_only=peer.members_only,
        tls_enabled=peer.tls_enabled,
        tls_ca_file=peer.ca_file,
        tls_cert_file=peer.cert_file,
        tls_key_file=peer.key_file,
        tls_crl_file=peer.crl_file or None,
        peer_connect_timeout_ms=_milliseconds(peer.connect_timeout),
        peer_idle_timeout_ms=_milliseconds(peer.idle_timeout),
        peer_connections_max=peer.connections_max,
        peer_requests_inflight_max=peer.requests_inflight_max,
        peer_bytes_inflight_max=peer.bytes_inflight_max,
        volumes_quota_bytes=conf.volumes.quota_bytes,
        volumes_segment_bytes=conf.volumes.segment_bytes,
        volumes_fold_bytes=conf.volumes.fold_bytes,
        volumes_fold_objects=conf.volumes.fold_objects,
        volumes_push_bytes_per_s=conf.volumes.push_rate,
        volumes_io_timeout_ms=round(conf.volumes.io_timeout * 1000),
        log_directives="debug" if conf.debug else "info",
    )


def _milliseconds(seconds: float) -> int:
    return max(1, round(seconds * 1000))


def _memory() -> int:
    """Return the bytes of this host's memory."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def _default_fuse_threads() -> int:
    """Return as many as answer from memory what the rest of the host can ask for."""
    return min(max(len(os.sched_getaffinity(0)) // 4, 2), 8)
