"""The extension module; only ``acstor.dataplane`` imports it."""

from collections.abc import Mapping
from typing import Protocol, type_check_only

# --- DataPlane: the runtime of one host (crates/pyext/src/host.rs) -----------------------------

@type_check_only
class OriginReader(Protocol):
    """What the runtime calls on a miss, from a pool thread that is attached for this call only."""

    def readinto(self, key: str, offset: int, buffer: memoryview) -> int:
        """Fill ``buffer`` from the object ``key`` and return the number of bytes written.

        :param key: name of an object in the origin, e.g. ``packs/0a/0a1b...``.
        :param offset: bytes from the start of the object.
        :param buffer: writable, contiguous, format ``B``; not to be kept after the call.
        :returns: ``len(buffer)``, or less where the object ends inside the range.
        :raises acstor.exception.AcstorException: mapped to the error kind of its class.
        """

class DataPlane:
    """FUSE front end, peer server and client, chunk store and read path of one host.

    Life: created -> started -> stopped; each once. Every method is safe from any Python thread,
    releases the GIL while it waits and has a bound on how long it waits. No method calls back
    into Python except ``origin.readinto``, and that only from the origin pool.

    Images and the ring may be given *before* :meth:`start`, and after a restart they must be:
    the kernel re-sends the requests of the process before, and those name inodes of images.
    """

    def __init__(self, config: Mapping[str, object], origin: OriginReader | None) -> None:
        """Check the configuration, open and lock the chunk store; start no thread.

        :param config: keys, types and units are those of
            :class:`acstor.dataplane_host.settings.DataPlaneSettings`, all present.
        :param origin: ``None`` exactly when ``config["origin_posix_root"]`` is not ``None``.
        :raises ValueError: when a key is missing, of a wrong type or out of range (named).
        :raises DataPlaneError: kind ``unavailable`` when another process has the store open,
            ``unsupported`` when the store is of a newer format.
        """

    def start(self, fuse_fd: int | None, peer_listener_fd: int | None) -> None:
        """Start all threads; returns when FUSE requests and peers are being served.

        Ownership of both descriptors passes to the runtime, also when this raises.

        :param fuse_fd: an initialised ``/dev/fuse`` descriptor of the process before: it is taken
            over (``FUSE_NOTIFY_RESEND``, no mount, no INIT). ``None``: mount at
            ``config["mount_point"]``.
        :param peer_listener_fd: a listening TCP socket of the process before; ``None``: bind
            ``config["peer_listen_address"]``, ``config["peer_listen_port"]``.
        :raises StaleDescriptorError: when ``fuse_fd`` is no longer connected (unmounted or
            aborted). Nothing is running then; the caller makes a new object and mounts anew.
        :raises DataPlaneError: when mounting, binding or starting fails.
        """

    def fuse_fd(self) -> int:
        """Return the ``/dev/fuse`` descriptor in use, still owned by the runtime, for FDSTORE."""

    def peer_listener_fd(self) -> int:
        """Return the listening socket in use, still owned by the runtime, for FDSTORE."""

    def peer_address(self) -> str:
        """Return ``ip:port`` under which other hosts reach this one (port 0 resolved)."""

    def attach_image(self, manifest_path: str, hidden: bool = False) -> dict[str, object]:
        """Offer the image described by a manifest file as ``<uuid>.raw``.

        Idempotent for equal manifests; turns a hidden image into a listed one.

        :param hidden: not in directory listings and not found by name: only handles that were
            open before a restart reach it.
        :returns: as one element of :meth:`list_images`.
        :raises DataPlaneError: kind ``invalid`` for a malformed manifest, or when a different
            manifest is attached under the same id.
        """

    def detach_image(self, disk_id: str) -> str:
        """Withdraw an image; its open handles go on working.

        :returns: ``"removed"``, or ``"hidden"`` while handles are open (call again later).
        :raises DataPlaneError: kind ``not_found`` for an unknown id, ``invalid`` for no UUID.
        """

    def list_images(self) -> list[dict[str, object]]:
        """Return the attached images, hidden ones too, ordered by id.

        Keys: ``id`` str, ``manifest`` str (BLAKE3 of the manifest's bytes, hex), ``size_bytes``
        int, ``chunk_size`` int, ``chunks`` int, ``open_handles`` int, ``hidden`` bool,
        ``pinned_bytes`` int.
        """

    def pin_image(
        self, disk_id: str, head_bytes: int, tail_bytes: int, timeout: float
    ) -> dict[str, object]:
        """Fetch the first and last bytes of an image into the chunk store and keep them there.

        Replaces the image's former pins. Sizes are rounded up to whole chunks.

        :param timeout: seconds, > 0; what was pinned until then stays pinned.
        :returns: ``pinned_bytes`` int, ``missing_bytes`` int (not obtained in time or refused by
            the bound on pins; call again later).
        """

    def set_drain(self, on: bool) -> None:
        """Answer peers with a refusal (they take the next candidate); local reads go on."""

    def set_ring(self, path: str) -> dict[str, object]:
        """Load a binary ring file and use it from now on; the one before is kept for remaps.

        :returns: as :meth:`ring_info`.
        :raises DataPlaneError: kind ``fenced`` when its generation is older than the one in use,
            ``corrupt`` or ``invalid`` for a bad file; the ring in use stays.
        """

    def ring_info(self) -> dict[str, object] | None:
        """Return the ring in use, ``None`` before the first.

        Keys: ``generation`` int, ``vnodes`` int, ``hosts``: list of dicts with ``name`` str,
        ``address`` str, ``vnodes`` int.
        """

    def status(self) -> dict[str, object]:
        """Return a snapshot; only plain JSON types, at least these keys.

        ``state`` str (created, running, draining, stopped); ``ring_generation`` int or None;
        ``images`` int; ``store``: dict with ``capacity_bytes``, ``used_bytes``, ``chunks``,
        ``pinned_bytes`` ints; ``fuse``: dict with ``connected`` bool (False: the file system was
        unmounted or aborted, the process should exit and start anew), ``taken_over`` bool,
        ``connection`` int (N of /sys/fs/fuse/connections/N); ``reads``: dict with ``total``,
        ``errors``, ``bytes``, ``inflight`` ints; ``tiers``: dict from tier (zero, local, peer,
        origin) to a dict with ``chunks``, ``bytes`` ints.
        """

    def metrics_text(self) -> str:
        """Return all metrics in the Prometheus text format, names beginning ``acstor_``."""

    def ledger_start(self, disk_id: str, capacity: int) -> None:
        """Record the next ``capacity`` chunk reads of an image; restarts a running ledger."""

    def ledger_get(self, disk_id: str) -> str:
        """Return the ledger as JSON lines, oldest first.

        Keys: ``at_us`` (since ledger_start), ``chunk``, ``offset``, ``length``, ``tier``,
        ``wait_us``, ``source`` (a host's name for tier peer, else null).
        """

    def ledger_stop(self, disk_id: str) -> None:
        """Stop recording and forget the ledger; nothing happens when there is none."""

    def set_log_level(self, directives: str) -> None:
        """Set which events reach the log channel, e.g. ``info`` or ``info,acstor_peer=debug``."""

    def take_log_lines(self, lines_max: int) -> list[str]:
        """Remove and return at most ``lines_max`` lines of the bounded log channel, oldest first.

        A line is ``LEVEL target message``; LEVEL one of ERROR WARN INFO DEBUG TRACE. Lines lost
        while the channel was full are one line ``WARN acstor_log lost <n> lines``.
        """

    def stop(self, unmount: bool, timeout: float) -> None:
        """Stop all threads within ``timeout`` seconds; later calls do nothing.

        :param unmount: detach the mount too (lazily, so that it never waits for guests).
            ``False``: leave descriptor and mount to the next process.
        """

class DataPlaneError(Exception):
    """Base of what the runtime raises; ``kind`` is the error kind in snake_case."""

    kind: str

class StaleDescriptorError(DataPlaneError):
    """A passed ``/dev/fuse`` descriptor is no longer connected; ``kind`` is ``unavailable``."""
