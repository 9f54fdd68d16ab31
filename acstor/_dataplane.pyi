"""The extension module; only ``acstor.native`` imports it."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Protocol, Self, final, type_check_only

from typing_extensions import Buffer

__all__ = [
    "ChunkRecords",
    "DataPlane",
    "DataPlaneError",
    "DigestIndex",
    "DiskBuilder",
    "ImageBuilder",
    "Manifest",
    "MovedPack",
    "PackHeader",
    "PackWriter",
    "PagedManifest",
    "RadosReader",
    "Ring",
    "RingHost",
    "Scan",
    "SigningKey",
    "SpaceAccount",
    "StaleDescriptorError",
    "StoredChunkIndex",
    "StoredChunks",
    "build_ring",
    "compress_chunks",
    "digest",
    "is_signed_by",
    "make_signing_key",
    "manifest_name",
    "mount_images",
    "pack_header",
    "pack_id",
    "parse_pack_header",
    "recommended_vnode_count",
    "rewrite_chunks",
    "scan_buffer",
    "scan_file",
    "seal_volume_log",
    "serve_files",
    "set_read_ahead",
    "spool_volume_log",
    "unmount_images",
    "unsound_chunks",
]

# --- DataPlane: the runtime of one host (crates/pyext/src/host) -----------------------------

@type_check_only
class OriginReader(Protocol):
    """Callback of the runtime on a miss, from a pool thread that is attached for this call only."""

    def readinto(self, key: str, offset: int, buffer: memoryview) -> int:
        """Fill ``buffer`` from the object ``key`` and return the number of bytes written.

        :param key: name of a pack or manifest in the origin, e.g. ``packs/0a/0a1b...``.
        :param offset: bytes from the start of the object.
        :param buffer: writable, contiguous, format ``B``; not to be kept after the call.
        :returns: ``len(buffer)``, or less where the object ends inside the range.
        :raises acstor.exception.AcstorException: mapped to the error kind of its class.
        """

@type_check_only
class MemberReader(Protocol):
    """Member of an origin that is made of several stores (RFD 38)."""

    @property
    def name(self) -> str:
        """Name of the member."""

    @property
    def generation(self) -> int:
        """Generation that it has to have."""

    @property
    def is_assigned(self) -> bool:
        """True if it is asked before those that are not."""

    @property
    def posix_root(self) -> str | None:
        """Directory that it is, read without Python."""

    @property
    def reader(self) -> OriginReader | None:
        """Reader of it where it is no directory."""

    def read_generation(self) -> int:
        """Return the generation that it carries; called from a thread of the member.

        :raises acstor.exception.AcstorError: when it cannot be read, or belongs to another origin.
        """

@final
class RadosReader:
    """Reader of an origin in Ceph through librados, which a data plane calls without Python.

    Given to :class:`DataPlane` as its origin. The cluster is connected to at the first read, and
    again where that failed. Safe from any thread; each call ends by the deadlines that ``options``
    set.
    """

    def __new__(
        cls,
        *,
        conf: str,
        client: str,
        pool: str,
        stripe_pool: str,
        namespace: str,
        timeout_seconds: float,
        options: Mapping[str, str],
    ) -> Self:
        """Load librados.

        :param conf: path of ceph.conf.
        :param client: name of the client without its type.
        :param pool: of heads and small objects.
        :param stripe_pool: of stripes.
        :param namespace: first part of all namespaces.
        :param timeout_seconds: longest wait for another call's connecting.
        :param options: of librados: deadlines.
        :raises DataPlaneError: kind ``unsupported`` when librados cannot be loaded, ``invalid``
            when a text holds a zero.
        """

    def readinto(self, key: str, offset: int, buffer: Buffer) -> int:
        """Fill ``buffer`` with the object's bytes from ``offset`` on; for tests and measurements.

        :returns: ``len(buffer)``, or less where the object ends inside the range.
        :raises DataPlaneError: of the kind that says why not.
        """

    def close(self) -> None:
        """End the connection when the reads that are under way have ended; later ones fail."""

@type_check_only
class LogOrigin(Protocol):
    """Sink of volumes' logs: called from threads of the runtime, attached for one call only.

    The methods are those of :class:`acstor.origin.base.Origin`, which bounds each by a deadline
    and repeats what is worth it.
    """

    def put_if_absent(self, key: str, buffers: Sequence[bytes]) -> bool:
        """Store an object; False when the key was there already."""

    def get(self, key: str, size_max: int) -> bytes:
        """Return a whole object of at most ``size_max`` bytes."""

    def list(self, prefix: str = "") -> Iterator[str]:
        """Yield the keys in the folder ``prefix``."""

@final
class DataPlane:
    """FUSE front end, peer server and client, chunk store, read path and volumes of one host.

    Life: created -> started -> stopped; each once. Every method is safe from any Python thread,
    releases the GIL while it waits and has a bound on how long it waits. No method calls back
    into Python except ``origin.readinto``, and that only from the origin pool; ``readinto`` and
    ``read_generation`` of members, from threads of each; the origin that a
    volume was opened with, from threads of that volume; and what is passed to
    :meth:`volume_fold`, from the caller's own thread.

    Images and the ring may be given *before* :meth:`start`, and after a restart they must be:
    the kernel re-sends the requests of the process before, and those name inodes of images.
    """

    def __new__(
        cls, config: Mapping[str, object], origin: OriginReader | list[MemberReader] | None
    ) -> Self:
        """Check the configuration, open and lock the chunk store; serve nothing yet.

        The runtime's threads start here: the process must not fork afterwards.

        :param config: keys, types and units are those of
            :class:`acstor.dataplane.settings.DataPlaneSettings`, all present.
        :param origin: ``None`` exactly when ``config["origin_posix_root"]`` is not ``None``. A
            :class:`RadosReader` is read without Python. A list has the two to four members of an
            origin in the order of the configuration.
        :raises ValueError: when a key is missing, of a wrong type or out of range (named).
        :raises DataPlaneError: kind ``unavailable`` when another process has the store open,
            ``unsupported`` when the store is of a newer format.
        """

    def start(self, fuse_fd: int, is_new: bool, peer_listener_fd: int | None) -> None:
        """Start all threads; returns when FUSE requests and peers are being served.

        Ownership of both descriptors passes to the runtime, also when this raises.

        :param fuse_fd: a mounted ``/dev/fuse`` descriptor.
        :param is_new: whether it was mounted for this process, as :func:`mount_images` does. Else
            it is of the process before, and taken over (``FUSE_NOTIFY_RESEND``, no INIT).
        :param peer_listener_fd: a listening TCP socket of the process before; ``None``: bind
            ``config["peer_listen_address"]``, ``config["peer_listen_port"]``.
        :raises StaleDescriptorError: when ``fuse_fd`` is no longer connected (unmounted or
            aborted). Nothing is running then; the caller makes a new object and mounts anew.
        :raises DataPlaneError: when binding or starting fails.
        """

    def fuse_fd(self) -> int:
        """Return the ``/dev/fuse`` descriptor in use, still owned by the runtime, for FDSTORE."""

    def peer_listener_fd(self) -> int:
        """Return the listening socket in use, still owned by the runtime, for FDSTORE."""

    def peer_address(self) -> str:
        """Return ``ip:port`` under which other hosts reach this one (port 0 resolved)."""

    def attach_image(
        self, manifest_path: str, hidden: bool = False, digest: str | None = None
    ) -> dict[str, object]:
        """Offer the image described by a manifest file as ``<uuid>.raw``.

        Idempotent; turns a hidden image into a listed one. A manifest of the same content whose
        chunks are elsewhere in the origin takes the place of the one before.

        The manifest is in memory only while it is needed: it is read from the file, which stays the
        same one whatever becomes of its name, at the first open or read. Pages of one of version 2
        that are missing in the file, or damaged, come from the origin and are written to it.

        :param hidden: not in directory listings and not found by name: only handles that were
            open before a restart reach it.
        :param digest: of the manifest, as 64 hex digits: only its header is read now, and damage of
            the rest shows when it is needed. None: all of it is read and checked.
        :returns: as one element of :meth:`list_images`.
        :raises DataPlaneError: kind ``invalid`` for a malformed manifest, or when other
            content is attached under the same id.
        """

    def damaged_images(self) -> list[str]:
        """Return the ids of the attached images whose manifest was found damaged when needed.

        They cannot be read until they are attached anew.
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
        ``pinned_bytes`` int, ``manifest_state`` str: ``in-memory``; ``on-disk`` until it is
        needed; ``damaged`` until the image is attached anew.
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

    def set_member_generation(self, member: str, generation: int) -> None:
        """Say which generation a member of the origin has to have from now on.

        :raises DataPlaneError: kind ``not_found`` when the origin has no such member.
        """

    def set_drain(self, on: bool) -> None:
        """Answer peers with a refusal (they take the next candidate); local reads go on."""

    def set_free_rates(
        self, in_bytes_per_s: int | None, out_bytes_per_s: int | None, valid_s: float
    ) -> None:
        """Take over what is free of the host's own link, bytes per second in each direction.

        Nothing is fetched ahead of guests over a link of which nothing is free, and peers are told
        what it has to spare. None: not known, as before the first call.

        :param valid_s: seconds after which the rates are forgotten unless they are told anew,
            above 0, at most an hour.
        :raises DataPlaneError: kind ``invalid`` when the time is none, or the data plane has been
            stopped.
        """

    def set_ring(self, path: str) -> dict[str, object]:
        """Load a binary ring file and use it from now on; the one before is kept for remaps.

        :returns: as :meth:`ring_info`.
        :raises DataPlaneError: kind ``fenced`` when its generation is older than the one in use,
            ``corrupt`` or ``invalid`` for a bad file; the ring in use stays.
        """

    def store_sketch(self, count: int) -> dict[str, object]:
        """Return how many chunks the store holds and the smallest of their digests' first 8 bytes.

        Equal digests have equal prefixes on all hosts, so two sketches tell how much two stores
        have in common (Broder 1997). Microseconds, no I/O.

        :param count: k; more than 256 is taken for 256.
        :returns: ``count`` int, ``smallest`` list of int below 2^64, ascending, at most k.
        """

    def set_distance_threshold(self, hops: int | None) -> None:
        """Ask no host that is ``hops`` or more away; lookups from here on heed it, without a lock.

        :param hops: 0 to 255 as in ACStor Algorithms 1 and 2: in a three-level tree 7 admits every
            host, 5 those under the same aggregate switch, 3 those under the same edge switch, 1
            only this host, 0 nobody (every miss reads the origin), 255 every host of any network.
            None: as configured.
        :raises ValueError: when out of range; the threshold in use stays.
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
        ``connection`` int (N of /sys/fs/fuse/connections/N), ``longest_request_ms`` int (since
        when a thread handles the same request); ``runtime_late_ms`` int (for how long no task that
        was due has run); ``reads``: dict with ``total``,
        ``errors``, ``bytes``, ``inflight`` ints; ``tiers``: dict from tier (zero,
        recent, store, peer, previous_owner, origin) to a dict with ``chunks``, ``bytes`` ints;
        ``peers``: list, busiest first, at most 64, of dicts with ``name`` str, ``fetches`` int,
        ``p50_ms``, ``p99_ms`` floats.
        """

    def metrics_text(self) -> str:
        """Return all metrics in the Prometheus text format, names beginning ``acstor_``."""

    def trace_start(self, disk_id: str, capacity: int) -> None:
        """Record the next ``capacity`` chunk reads of an image; restarts a running trace."""

    def trace_get(self, disk_id: str) -> str:
        """Return the trace as JSON lines, oldest first.

        ``kind`` ``chunk``: ``at_us`` (since trace_start), ``chunk``, ``offset``, ``length``,
        ``tier``, ``wait_us``, ``source`` (who sent it, else null). ``kind`` ``read``: ``at_us``,
        ``offset``, ``length``, ``think_us``, ``wait_us``. ``kind`` ``lost``: ``records``, how many
        older ones did not fit.
        """

    def trace_stop(self, disk_id: str) -> None:
        """Stop recording and forget the trace; nothing happens when there is none."""

    def working_set(self, disk_id: str) -> dict[str, object]:
        """Return which chunks guests read while the image booted, since the process started.

        A boot begins when a handle is opened and lasts ``boot_window`` from the last open on;
        opens less than that apart are one boot. Only reads of front ends count.

        :returns: ``boots`` int; ``chunk_count`` int, of the disk; ``bitmap`` bytes,
            ceil(chunk_count / 8) long: bit ``i % 8``, least significant first, of byte ``i // 8``
            is chunk ``i``; of a disk of more than 2^26 chunks only its spans with a chunk
            (``reference/formats/chunk-spans``).
        :raises DataPlaneError: kind ``not_found`` for an unknown id, ``unsupported`` for a disk of
            more than 2^30 chunks.
        """

    def set_working_set(self, disk_id: str, path: str) -> None:
        """Take over which chunks boots of the image read, as learnt by all hosts.

        :param path: of a file with what :meth:`working_set` returns as ``bitmap``; read and
            closed.
        :raises DataPlaneError: kind ``invalid`` when that is no set of this image's chunks (bits
            past the last one are 0), ``not_found`` for an unknown id; what was set
            before stays.
        """

    def held_chunks(self, disk_id: str) -> dict[str, object]:
        """Return which chunks of an image, or of what is below a volume, the chunk store holds.

        Not counted as a use of any chunk. Of a manifest whose pages are not all here those of the
        pages before the first that is not: none is brought.

        :returns: ``chunk_count`` int, of the disk; ``bitmap`` bytes, as :meth:`working_set` has
            it.
        :raises DataPlaneError: kind ``not_found`` for an unknown id, ``unsupported`` for a disk of
            more than 2^30 chunks, and as reading its manifest fails.
        """

    def count_chunks(self, path: str) -> dict[str, int]:
        """Count the chunks that are on this host, on its disk or in memory; touches none.

        :param path: of a file with the digests, 32 bytes each, at most 2^15 of them.
        :returns: ``asked``, the digests in the file; ``held``, those whose chunks are here.
        :raises DataPlaneError: kind ``invalid`` when the file is none of digests.
        """

    def discard_chunks(self, path: str) -> dict[str, int]:
        """Take chunks from this host for good, pinned or not, and overwrite them on its disk.

        A chunk that somebody reads just now stays, and one that an attached disk has may come
        back: call again.

        :param path: as :meth:`count_chunks`.
        :returns: ``asked``; ``held``, those that were here; ``left``, those that still are.
        :raises DataPlaneError: as :meth:`count_chunks`; kind ``unavailable`` when the disk fails:
            some may be gone then.
        """

    def recorded_boots(self, acknowledged: int) -> list[dict[str, object]]:
        """Return in which order guests of this host read images while they booted.

        A boot is one open of an image by a process that reads past the page cache, or all opens
        through the page cache of which that knew nothing before. It ends after 120 s, once 10 s
        pass with less than a new chunk a second, or with the last close.

        :param acknowledged: number of the last boot that is not to be told again; 0: none.
        :returns: ascending by ``number``, as many as fit: ``number`` int, which no other boot of
            this host has; ``image`` str; ``chunk_count`` int, of the disk; ``order`` bytes, one
            order (``reference/formats/rank-list``). What is not acknowledged is told again; of
            too many the oldest are lost.
        """

    def set_boot_profile(self, disk_id: str, path: str) -> None:
        """Take over in which orders boots of the image read it, as learnt by all hosts.

        :param path: of a file with one order per kind of boot, the likeliest first
            (``reference/formats/rank-list``); read and closed. Without any: forget them.
        :raises DataPlaneError: kind ``invalid`` when they are none of this image, ``not_found``
            for an unknown id; what was set before stays.
        """

    def coverage(self) -> list[dict[str, object]]:
        """Return how much of each working set that was set this host holds, ordered by image.

        Keys: ``image`` str; ``wanted_chunks`` int, the different chunks of it with content;
        ``present_chunks`` int, those in the chunk store. Not counted as a use of any chunk.
        """

    def preload_start(
        self, disk_id: str, what: str, rate_bytes_per_s: int, pin: bool
    ) -> dict[str, object]:
        """Fetch an image, or what its boots read, into the chunk store; returns at once.

        One job per image. Where one of the same ``what`` and ``pin`` has not ended, its rate is
        changed and it goes on; any other is replaced. A job without ``pin`` takes back what a
        former one pinned.

        :param what: ``working-set`` or ``full``.
        :param rate_bytes_per_s: most bytes per second; 0: no limit.
        :param pin: keep what the job brings from being evicted.
        :returns: as one element of :meth:`preload_status`.
        :raises DataPlaneError: kind ``not_found`` for an unknown id or without a working set,
            ``invalid`` for another ``what``, ``unsupported`` for a disk of more than 2^30 chunks.
        """

    def preload_status(self) -> list[dict[str, object]]:
        """Return the newest preload of each attached image that had one, ordered by image.

        Keys: ``image`` str; ``what`` str; ``pin`` bool; ``state`` str: ``queued`` (behind other
        jobs), ``running``, ``yielding`` (to reads of guests), ``waiting`` (for the origin), or
        ended: ``done``, ``failed``, ``stopped``; ``is_hint`` bool, whether it was started because
        somebody touched the image; ``total_bytes``, ``present_bytes`` (there before the job, or
        brought by others), ``fetched_bytes`` and ``remaining_bytes`` ints; ``rate_bytes_per_s``
        int, the limit, 0 none; ``recent_bytes_per_s`` int, of the last 5 s; ``started_at`` float,
        POSIX time; ``error`` str or None. Byte counts are 0 while queued.
        """

    def preload_stop(self, disk_id: str) -> None:
        """Stop the preload of an image; what it brought stays. Nothing happens without one."""

    def preload_estimate(self, disk_id: str, what: str) -> dict[str, object]:
        """Return what a preload would bring and what room there is for it.

        Keys: ``total_bytes`` int, different chunks with content; ``missing_bytes`` int, those not
        in the chunk store; ``free_bytes`` int; ``evictable_bytes`` int, held, not pinned and not
        part of what is wanted; ``pinnable_bytes`` int, how much more may be pinned. A preload of
        which more is missing than free and evictable fails before it fetches anything.

        :raises DataPlaneError: as :meth:`preload_start`.
        """

    def volume_seal(self, volume: str, epoch: int, first: int, origin: LogOrigin) -> dict[str, Any]:
        """Stop the owner of an epoch: occupy the first free place of its log with a seal.

        :param first: where to begin to look.
        :returns: ``last`` int or None, the last log object that counts (those after it are an
            incomplete batch); ``seal`` int, the sequence number of the seal, found or stored.
        :raises DataPlaneError: kind ``unavailable`` when the origin does not answer; call again.
        """

    def volume_open(self, volume: str, spec: Mapping[str, object], origin: LogOrigin) -> None:
        """Open a volume that this host owns; requests that wait for it go on.

        A local log of the same epoch is gone on with, and the origin is not asked then; an empty
        directory begins the epoch.

        :param spec: keys, types and units are those of
            :class:`acstor.dataplane.volumes.runtime.VolumeSpec`, all present.
        :raises ValueError: when a key is missing or of a wrong type (named).
        :raises DataPlaneError: kind ``invalid`` when it is open, or the manifest or durability is
            malformed; ``corrupt`` for a local log that is not of this epoch or damaged;
            ``unavailable`` when the origin does not answer; ``exhausted`` without room.
        """

    def volume_follow(self, volume: str, size_bytes: int) -> None:
        """Make a volume known that another host owns: requests wait until it is opened here.

        :raises DataPlaneError: kind ``invalid`` when it is known already.
        """

    def volume_serve(self, volume: str, listener_fd: int, token: str) -> None:
        """Serve NBD clients on a listening unix socket, whose ownership passes here.

        :param token: the name of the export, which clients must know; 1 to 4096 bytes.
        """

    def volume_unserve(self, volume: str, force: bool) -> None:
        """Serve nobody any more; connections end when what is under way is answered.

        :raises DataPlaneError: kind ``invalid`` while clients are connected, without ``force``.
        """

    def volume_release(self, volume: str) -> dict[str, Any]:
        """Push what is left and write no more; requests from now on wait for the next opening.

        After an error the volume goes on as before.

        :returns: ``epoch`` int; ``sequence`` int, of the last log object.
        :raises DataPlaneError: kind ``unavailable`` when the origin does not take it (call
            again), ``fenced`` when another host owns the volume.
        """

    def volume_push_ahead(self, volume: str) -> bool:
        """Push, while requests go on, until a release would hold them up for a moment only.

        :returns: whether the volume's log in the origin is so long that the next owner would make
            requests wait: fold it first.
        :raises DataPlaneError: as :meth:`volume_release`.
        """

    def volume_begin_head(self, volume: str) -> int | None:
        """Begin a look at the owner's content for reads of the first sectors that wait here.

        :returns: the look's number; None when none waits.
        :raises DataPlaneError: kind ``invalid`` when the volume is not open.
        """

    def volume_answer_head(self, volume: str, look: int, content: bytes) -> None:
        """Answer the reads that came before a look was begun.

        :param content: of the volume, from its first byte on, read at its owner since.
        """

    def volume_give_up_head(self, volume: str) -> None:
        """Have reads of the first sectors wait for the volume itself, as all others."""

    def volume_read_head(self, volume: str) -> bytes:
        """Return the first 4096 bytes of a volume that this host owns, or all of a smaller one.

        :raises DataPlaneError: kind ``fenced`` when another host owns it, ``unavailable`` when it
            cannot be read now.
        """

    def volume_close(self, volume: str) -> None:
        """Forget a volume without pushing; its local log stays. Nothing when it is not open."""

    def volume_fence(self, volume: str, why: str) -> None:
        """Fail every request from now on with EIO."""

    def volume_list(self) -> list[str]:
        """Return the ids of the open volumes, ordered."""

    def volume_status(self, volume: str) -> dict[str, Any]:
        """Return a snapshot of an open volume.

        Always: ``state`` str (standby: another host owns it; open, frozen, fenced, failed,
        closed); ``epoch`` int or None; ``size_bytes``, ``clients``, ``iops``, ``bytes_per_s``
        ints; ``is_wanted`` bool, whether requests wait for the volume; ``error`` str or None.
        While this host owns it also: ``pushed_sequence`` int, or None until the origin was asked
        after a restart; ``dirty_bytes`` int, acknowledged and not on the origin;
        ``recovery_point_age_s`` float, how old the oldest of them is; ``log_bytes`` int, of the
        local log; ``origin_log_bytes``, ``origin_log_objects`` ints, since the last fold;
        ``durability`` dict; ``manifest`` str or None, digest of what is below the log;
        ``is_fold_due`` bool; ``is_manifest_damaged`` bool, whether a page of what is below the log
        was found damaged in its file.

        :raises DataPlaneError: kind ``not_found`` when it is not open.
        """

    def volume_push(self, volume: str) -> dict[str, Any]:
        """Wait until everything acknowledged before the call is on the origin.

        :returns: and raises as :meth:`volume_release`.
        """

    def volume_freeze(self, volume: str, timeout: float) -> None:
        """Hold writes until :meth:`volume_thaw`, or for ``timeout`` seconds."""

    def volume_thaw(self, volume: str) -> None:
        """Let writes go on."""

    def volume_resize(self, volume: str, size_bytes: int) -> None:
        """Grow a volume; clients are disconnected so that they find the new size."""

    def volume_set_durability(self, volume: str, durability: Mapping[str, object]) -> None:
        """Change when writes are on the origin, for those that follow."""

    def volume_set_limits(self, volume: str, iops: int, bytes_per_s: int) -> None:
        """Limit the requests of all clients together; 0: no limit."""

    def volume_fold(
        self,
        volume: str,
        announce: Callable[[Sequence[str], str | None], object],
        spread: float,
        scope: str | None,
        is_paged: bool,
    ) -> dict[str, Any] | None:
        """Store what was pushed as packs and a manifest; the caller installs it in the record.

        Chunks of the packs are kept in the chunk store.

        :param announce: called with the ids of all packs so far and the manifest's digest (None:
            not known yet) before each of them is stored; what it raises ends the fold.
        :param spread: seconds over which what is stored is spread; 0: at once.
        :param scope: of the names of chunks that the manifest below does not have at their place;
            None: they have plain names.
        :param is_paged: whether the first manifest of a volume is of version 2, whose packs are of
            version 2; each later one is of the version of the first.
        :returns: ``manifest`` str, ``content`` bytes, ``folded``: dict with ``volume`` str,
            ``epoch``, ``sequence`` ints of the last log object in it. None: nothing to fold.
        """

    def volume_set_fold_unwanted(self, volume: str, is_unwanted: bool) -> None:
        """Give up a fold that is under way, and each one from now on, until told otherwise."""

    def volume_set_base(self, volume: str, manifest_path: str, manifest: str) -> None:
        """Put the manifest that the record names below the log.

        One that a fold of this epoch made, or the one that is there, in a file that is whole.

        :param manifest: its name.
        :raises DataPlaneError: kind ``corrupt`` when the file is not that manifest; nothing is
            changed then.
        """

    def set_log_level(self, directives: str) -> None:
        """Set which events reach the log channel, e.g. ``info`` or ``info,acstor_peer=debug``."""

    def take_log_lines(self, lines_max: int) -> list[str]:
        """Remove and return at most ``lines_max`` lines of the bounded log channel, oldest first.

        A line is ``LEVEL target message``; LEVEL one of ERROR WARN INFO DEBUG TRACE. Lines lost
        while the channel was full are one line ``WARN acstor_log lost <n> lines``.
        """

    def stop(self, timeout: float) -> None:
        """Stop all threads within ``timeout`` seconds; later calls do nothing.

        What is still mounted then is the next process's, which needs the descriptor.
        """

class DataPlaneError(Exception):
    """Base of what the runtime raises; ``kind`` is the error kind in snake_case."""

    kind: str

class StaleDescriptorError(DataPlaneError):
    """A passed ``/dev/fuse`` descriptor is no longer connected; ``kind`` is ``unavailable``."""

# --- Ring: placement of OIDs on hosts (crates/pyext/src/ring.rs) -------------------------------

@final
class RingHost:
    """A host as a ring describes it. Immutable."""

    def __new__(cls, name: str, address: str, weight: int, topology: str = "") -> RingHost:
        """Describe a host.

        Name and address are checked when a ring is built.

        :param name: stable and unique: letters, digits and ``-_.@``, 1 to 255 bytes.
        :param address: ``ip:port`` of the peer server; an IPv6 address in brackets.
        :param weight: share of the circle relative to the other hosts', 0 to 2^32 - 1; 0 drains.
        :param topology: segments from the root down, such as ``pod-1/rack-2``, at most 4 and as
            many for every host of a ring; empty: unknown.
        :raises DataPlaneError: kind ``invalid`` for a malformed topology.
        :raises OverflowError: when the weight is out of range.
        """

    @property
    def name(self) -> str: ...
    @property
    def address(self) -> str: ...
    @property
    def weight(self) -> int: ...
    @property
    def topology(self) -> str: ...
    @property
    def vnodes(self) -> int:
        """V-nodes that the host owns in the ring it was taken from; 0 where it is from none."""

    def __eq__(self, other: object, /) -> bool: ...
    def __ne__(self, other: object, /) -> bool: ...

@final
class Ring:
    """Assignment of OIDs to hosts in one generation. Immutable; made by :func:`build_ring`.

    The same code that the data plane looks up with. Source: ACStor, sections 3.4 and 3.6.
    """

    @staticmethod
    def decode(content: bytes | bytearray) -> Ring:
        """Read the binary form.

        :raises DataPlaneError: kind ``corrupt``, ``invalid`` or ``unsupported`` (newer format).
        """

    @staticmethod
    def from_text(text: str) -> Ring:
        """Read the full text form.

        :raises DataPlaneError: kind ``invalid``, naming the line, or ``unsupported``.
        """

    def encode(self) -> bytes:
        """Return the binary form; equal rings have equal bytes."""

    def to_text(self, full: bool = False) -> str:
        """Return the text form: generation, hosts and, when ``full``, every v-node's owner."""

    @property
    def generation(self) -> int:
        """Number of the ring, at least 1; a higher one replaces a lower one."""

    @property
    def seed(self) -> int:
        """Seed that scattered the v-nodes."""

    @property
    def vnode_count(self) -> int:
        """Number of v-nodes, a power of two: 2^k equal arcs; an OID's upper k bits select one."""

    @property
    def hosts(self) -> list[RingHost]:
        """All hosts in ascending order of name, drained ones included."""

    def vnode_owners(self) -> bytes:
        """Return the owner of each v-node as its index in :attr:`hosts`: little-endian uint16."""

    def owner(self, oid: int) -> str:
        """Return the name of the host that owns ``oid``, 0 to 2^64 - 1."""

    def candidates(
        self,
        oid: int,
        from_host: str | None = None,
        threshold: int | None = None,
        limit: int | None = None,
    ) -> tuple[list[str], int]:
        """Return the names of the hosts to ask, best first, and how many were skipped as too far.

        Source: ACStor, Algorithm 1.

        :param from_host: who asks; ``None`` or a host that is not in the ring is at distance 1
            from every host.
        :param threshold: hosts at this distance or farther are skipped, hops, 0 to 255;
            ``None``: none is.
        :param limit: most names to return; ``None``: all.
        """

    def distance(self, from_host: str, to_host: str) -> int:
        """Return the hops between two hosts: 0 same host, 1 same edge, 3 same aggregate, 5 root.

        1 where the topology of either is unknown.

        :raises DataPlaneError: kind ``not_found`` when one is not in the ring.
        """

    def moved_share(self, previous: Ring) -> float:
        """Return the share of the circle, 0 to 1, whose owner is another than in ``previous``."""

    def least_moved_share(self, hosts: Sequence[RingHost], vnode_count: int | None = None) -> float:
        """Return the least share that must move from this ring to one of these hosts' weights.

        :param vnode_count: of the other ring; ``None``: as many as this one has.
        """

    def analyze(self, previous: Ring | None = None) -> dict[str, object]:
        """Return balance and movement as plain JSON types.

        Keys: ``generation`` int, ``vnodes`` int, ``deviation_max`` float (largest relative
        deviation from a weight), ``moved_share`` and ``least_moved_share`` float or None (without
        ``previous``), ``hosts``: list of dicts with ``name`` str, ``weight`` int, ``vnodes`` int,
        ``share`` and ``ideal_share`` float, ``deviation`` float or None (drained),
        ``takeover_share_max`` float (largest part of its load that one host takes over while it
        is down).
        """

    def __eq__(self, other: object, /) -> bool: ...
    def __ne__(self, other: object, /) -> bool: ...

def build_ring(
    hosts: Sequence[RingHost],
    vnode_count: int | None = None,
    seed: int = 0,
    previous: Ring | None = None,
    *,
    generation: int | None = None,
    moved_share_max: float = 1.0,
    similarity: Mapping[tuple[str, str], float] | None = None,
) -> Ring:
    """Build a ring whose shares follow the hosts' weights, each rounded to whole v-nodes.

    Deterministic. Moves no more v-nodes from ``previous`` than the weights force. Releases the
    GIL.

    :param hosts: all hosts of the new ring, in any order.
    :param vnode_count: power of two, 2^4 to 2^22, not below ``previous``'s; ``None``:
        ``previous``'s, or 2^16.
    :param seed: scatters the first ring; later ones go on with the seed of ``previous``.
    :param generation: ``None``: the one after ``previous``'s, or 1.
    :param moved_share_max: most of the circle that may move, 0 to 1; v-nodes of removed hosts
        always do. A bounded ring falls short of the weights until it is built again.
    :param similarity: (giving host, receiving host) to the proportion of chunks they share, above
        0: v-nodes go to the most similar receiver first. Source: ACStor, section 3.6.
    :raises DataPlaneError: kind ``invalid`` for an unacceptable host or parameter, or when every
        weight is 0; ``fenced`` when ``generation`` is not above ``previous``'s.
    """

def recommended_vnode_count(host_count: int) -> int:
    """Return a number of v-nodes that keeps rounding below 1 % for hosts of equal weight."""

# --- The mount, for the process that may mount (crates/fuse) -----------------------------------

def mount_images(mount_point: str, allow_other: bool, read_ahead_kb: int) -> int:
    """Mount a file system that nobody serves yet; return its descriptor, now the caller's.

    A mount there whose connection has ended is taken away first. Needs CAP_SYS_ADMIN.

    :param mount_point: existing directory, absolute.
    :param allow_other: whether users other than root may use it.
    :param read_ahead_kb: of buffered reads, KiB.
    :raises DataPlaneError: kind ``fenced`` when a live connection is mounted there, else
        ``unavailable``.
    """

def set_read_ahead(mount_point: str, read_ahead_kb: int) -> None:
    """Set the read-ahead of buffered reads of the file system at ``mount_point``, KiB.

    :raises DataPlaneError: when nothing is mounted there, or the kernel refuses.
    """

def unmount_images(mount_point: str, grace: float) -> str:
    """Unmount; what is in use after ``grace`` seconds gets errors. Bounded by a few seconds more.

    :returns: ``clean``, ``aborted`` or ``not mounted``.
    :raises DataPlaneError: kind ``unavailable`` when the kernel refuses.
    """

# --- Files of manifests (crates/host) --------------------------------------------------------

def manifest_name(path: str) -> str:
    """Return the name of the manifest in a file, of which one of version 2 is read by its header.

    :raises DataPlaneError: kind ``corrupt`` when it is none, else as reading it fails.
    """

# --- Logs of volumes (crates/overlay) --------------------------------------------------------

def seal_volume_log(
    volume: str, epoch: int, first: int, origin: LogOrigin
) -> dict[str, int | None]:
    """End an epoch of a volume's log: its owner, if it still runs, stores nothing more.

    Safe to repeat. The caller keeps others from owning the volume meanwhile.

    :param first: first sequence number that the record does not list.
    :returns: ``last`` (last log object that counts, None: none does) and ``seal`` (the slot).
    """

def spool_volume_log(
    logs: Sequence[Mapping[str, object]], size_bytes: int, fd: int, origin: LogOrigin
) -> list[tuple[int, int, bool]]:
    """Write what log objects have to a file, each byte at its place on the disk.

    Releases the GIL, but for each object that is read.

    :param logs: ranges of them, in the order in which they are replayed.
    :param size_bytes: of the disk: what lies past its end is left out.
    :param fd: of a file that may be written; stays open during the call.
    :returns: start, end and whether it is zeros, of which the file has none, of each part that they
        have, ascending.
    :raises DataPlaneError: kind ``corrupt`` when one is damaged, ``exhausted`` when the file has no
        room, else as reading or writing fails.
    """

# --- Browsing: files of a disk, in a process of its own (crates/pyext/src/browsing.rs) ------------

def serve_files(fd: int, size_bytes: int, memory_bytes: int, cpu_seconds: int) -> int:
    """Confine this process for the rest of its life, then answer questions about a disk.

    The process must have one thread, and leave by ``os._exit``. Releases the GIL.

    :param fd: one end of a stream socket, at whose other end the bytes of the disk are.
    :param size_bytes: of the disk.
    :param memory_bytes: address space of the process, with what it has already.
    :param cpu_seconds: time of a processor, with what it took already.
    :returns: how many questions there were until the other end closed.
    :raises DataPlaneError: kind ``unavailable`` when the kernel confines nothing, and when the
        socket breaks; nothing of the disk was read in the first case.
    """

# --- Repository: digests, deduplication, manifests, packs (crates/pyext/src/repository) ---------
#
# Buffers must not be changed by others during a call. Digests and pack ids are 32 bytes, salts of
# packs 16 bytes. Anything malformed is a DataPlaneError, kind ``invalid`` or ``corrupt``; a format
# version that this build does not read is kind ``unsupported``.

def digest(buffer: Buffer) -> bytes:
    """Return BLAKE3-256 of a buffer."""

@final
class Scan:
    """Content of a run of chunks, by digest, in the order of the run."""

    def __len__(self) -> int: ...
    @property
    def zero_count(self) -> int:
        """Number of zero chunks."""

    def digests(self) -> bytes:
        """Return the digests, concatenated; 32 zero bytes for a zero chunk."""

def scan_buffer(buffer: Buffer, chunk_size: int, scope: str | None = None) -> Scan:
    """Return what a buffer of whole chunks contains; uses all cores, releases the GIL.

    :param scope: of the chunks' names; None: their plain digests.
    """

def unsound_chunks(buffer: Buffer, chunk_size: int, digests: Buffer) -> list[int]:
    """Return the positions of chunks that are not what their digests say, whichever their scopes.

    Uses all cores and releases the GIL.

    :param digests: one for each chunk, concatenated; 32 zero bytes for a zero chunk.
    """

def scan_file(
    fd: int, offset: int, size: int, buffer: Buffer, chunk_size: int, scope: str | None = None
) -> Scan:
    """Read a part of a file into a buffer and return what the buffer then contains.

    Uses all cores and releases the GIL. What is scanned is what was read: a file that changes
    meanwhile cannot make digests and content differ.

    :param fd: stays open during the call; its position is not used.
    :param offset: bytes, from the start of the file.
    :param size: bytes to read, at most the buffer's; the rest of the buffer is set to zero.
    :param buffer: writable, a multiple of ``chunk_size`` long.
    :param scope: as in :func:`scan_buffer`.
    :raises DataPlaneError: kind ``invalid`` when the file ends before ``offset + size``,
        ``unavailable`` when it cannot be read.
    """

def pack_header(chunk_size: int, chunk_count: int, salt: bytes) -> bytes:
    """Return the first 4096 bytes of a pack."""

def parse_pack_header(header: bytes) -> tuple[int, int, bytes]:
    """Return (chunk size in bytes, chunk count, salt) of a pack's first 64 bytes or more."""

def pack_id(digests: Buffer, salt: bytes) -> bytes:
    """Return the id of the pack with these digests, concatenated, and this salt."""

# Packs of version 2: chunks in the form that pays, 44 bytes a chunk in the pack's table.

@final
class StoredChunks:
    """Chunks in the form in which packs store them, which have no place yet."""

    def __len__(self) -> int: ...
    @property
    def stored_bytes(self) -> int:
        """Bytes of all of them."""

def compress_chunks(
    scan: Scan, buffer: Buffer, positions: Sequence[int], level: int | None = None
) -> StoredChunks:
    """Compress some of the chunks that were scanned; uses all cores, releases the GIL.

    What does not become smaller by an eighth stays as it is and is marked, so that it is never
    tried again. The result is a copy: the buffer may be used again.

    :param buffer: what was scanned.
    :param positions: of the chunks, in the order of the pack; none of a zero chunk.
    :param level: of zstd, -5 to 19; None: LZ4.
    """

def rewrite_chunks(
    records: ChunkRecords,
    positions: Sequence[int],
    offset: int,
    stored: Buffer,
    chunk_size: int,
    level: int | None = None,
) -> StoredChunks:
    """Verify chunks of another pack and return the form in which to store them again.

    What is dense already, or does not compress, is copied. Uses all cores, releases the GIL.

    :param positions: of the chunks in ``records``, in the order of the new pack.
    :param offset: in the pack, of the first byte of ``stored``.
    :param stored: bytes of the pack that hold all of these chunks.
    :param level: as in :func:`compress_chunks`.
    :raises DataPlaneError: kind ``corrupt`` when one is not what its record says.
    """

@final
class ChunkRecords:
    """Records of stored chunks of one pack: a pack's table, or entries of a manifest.

    A record is read by its own rules only; :meth:`PackHeader.parse_table` checks a whole table.
    """

    @staticmethod
    def parse(records: Buffer) -> ChunkRecords:
        """Read records of 44 bytes each.

        :raises DataPlaneError: kind ``corrupt`` when one has a codec or length that none can have.
        """

    def __len__(self) -> int: ...
    def to_bytes(self) -> bytes:
        """Return the records, concatenated."""

    def digests(self) -> bytes:
        """Return the digests, concatenated."""

    def record(self, position: int) -> tuple[bytes, int, int, str, bool]:
        """Return (digest, offset, stored bytes, codec, whether it is incompressible).

        The codec is ``plain``, ``lz4`` or ``zstd``.

        :raises IndexError: past the last record.
        """

    def plan_reads(
        self, run_size: int, positions: Sequence[int] | None = None
    ) -> list[tuple[int, int, list[int]]]:
        """Return the reads of chunks as (offset, size in bytes, positions of those in it).

        Neighbours are read together, over gaps of up to 64 KiB and a quarter of the read.

        :param run_size: most bytes of a read; a longer chunk has one for itself.
        :param positions: of the chunks that are wanted; None: all.
        """

    def decompress(
        self,
        positions: Sequence[int],
        offset: int,
        stored: Buffer,
        chunk_size: int,
        out: Buffer | None = None,
    ) -> list[tuple[int, str]]:
        """Decompress and verify chunks; return (position, reason) of those that are not sound.

        Uses all cores and releases the GIL.

        :param offset: in the pack, of the first byte of ``stored``.
        :param stored: bytes of the pack that hold all of these chunks.
        :param out: takes the plain chunks in the order of ``positions``, zeros for one that is not
            sound; None: they are verified only.
        :raises DataPlaneError: kind ``invalid`` when a chunk is not in ``stored``.
        """

@final
class PackWriter:
    """One pack being filled in a buffer, which must stay as it is until :meth:`seal`. Thread-safe.

    :param buffer: writable; its size is that of the largest pack, header and table included.
        One that begins at a page can be written past the page cache.
    :param pack_class: ``image`` or ``volume``.
    :param salt: 16 bytes, random, never used before.
    :raises DataPlaneError: kind ``invalid`` when not even one chunk fits.
    """

    def __new__(cls, buffer: Buffer, chunk_size: int, pack_class: str, salt: bytes) -> Self: ...
    @property
    def chunk_count(self) -> int:
        """Number of chunks so far."""

    @property
    def room(self) -> int:
        """Number of chunks that surely still fit, however little compressing them pays."""

    def append(self, chunks: StoredChunks, first: int = 0) -> int:
        """Append chunks from position ``first`` on; return that of the first that does not fit.

        :returns: ``len(chunks)`` when all are in the pack; else go on with the next pack.
        """

    def seal(self) -> tuple[bytes, int, ChunkRecords]:
        """Close the pack and return (id, size, table); the buffer is free again.

        The pack is the first ``size`` bytes of the buffer, a multiple of 4096, and then the table.

        :raises DataPlaneError: kind ``invalid`` when the pack is empty or closed.
        """

@final
class PackHeader:
    """Header of a pack of version 2."""

    @staticmethod
    def parse(header: Buffer) -> PackHeader:
        """Read the first 64 bytes of a pack or more; of 4096, all are checked.

        :raises DataPlaneError: kind ``unsupported`` for another version.
        """

    @property
    def pack_class(self) -> str:
        """``image`` or ``volume``."""

    @property
    def chunk_size(self) -> int:
        """Size of a plain chunk, bytes."""

    @property
    def chunk_count(self) -> int:
        """Number of chunks."""

    @property
    def salt(self) -> bytes:
        """The salt, 16 bytes."""

    @property
    def table_offset(self) -> int:
        """Offset of the table in the pack, bytes."""

    @property
    def table_size(self) -> int:
        """Size of the table, bytes."""

    @property
    def size_bytes(self) -> int:
        """Size of the whole pack, bytes."""

    def parse_table(self, pack_id: bytes, table: Buffer) -> ChunkRecords:
        """Read the table of this pack.

        :raises DataPlaneError: kind ``corrupt`` when header and table are not those of
            ``pack_id``, or a chunk has a place or length that no writer gives it.
        """

@final
class MovedPack:
    """Places of the chunks that a compaction has copied out of a pack: ``moved/<pack>``."""

    @staticmethod
    def size_of(header: bytes) -> int:
        """Return the bytes of the whole object that begins with these 64.

        :raises DataPlaneError: kind ``corrupt`` when there is no such object, ``unsupported`` when
            a newer release wrote it.
        """

    @staticmethod
    def parse(pack_id: bytes, content: Buffer) -> MovedPack:
        """Read the object of a pack.

        :raises DataPlaneError: as :meth:`size_of`; also when it is of another pack.
        """

    @staticmethod
    def build(
        pack_id: bytes,
        pack_class: str,
        chunk_size: int,
        table: ChunkRecords,
        copies: Sequence[tuple[bytes, ChunkRecords, Sequence[tuple[int, int]]]],
    ) -> MovedPack:
        """Make the object of a pack whose chunks were copied.

        :param table: of the pack.
        :param copies: of each pack that has copies: its id, its table, and of each copy the
            position in ``table`` and the one in that table.
        :raises DataPlaneError: kind ``invalid`` when a copy is not the same chunk.
        """

    def to_bytes(self) -> bytes:
        """Return the object's content."""

    def __len__(self) -> int:
        """Return the number of copies."""

    @property
    def pack_id(self) -> bytes:
        """Id of the pack whose chunks were copied."""

    @property
    def pack_class(self) -> str:
        """Its class, ``image`` or ``volume``, which is that of the packs with the copies."""

    def targets(self) -> list[bytes]:
        """Return the ids of the packs that have the copies."""

    def find(self, offset: int, stored_size: int) -> tuple[bytes, int, int, str] | None:
        """Return (pack id, offset, stored bytes, codec) of the copy of a chunk; None: it has none.

        :param offset: of the chunk in the pack, bytes.
        :param stored_size: of the chunk there, bytes.
        """

    def follow(
        self, runs: Sequence[tuple[int, int]]
    ) -> tuple[list[tuple[bytes, list[tuple[int, int]]]], list[tuple[int, int]]]:
        """Return where runs of whole chunks are copied to, and those that have no copy.

        :param runs: of bytes in the pack; each a first one and the first after it.
        :returns: id and runs of each pack with copies; runs of this pack.
        """

@final
class DigestIndex:
    """The digests of any number of packs, 38 to 44 bytes of memory each. Thread-safe."""

    def __new__(cls, chunk_size: int) -> Self: ...
    def __len__(self) -> int:
        """Return the number of different digests."""

    @property
    def pack_count(self) -> int:
        """Number of packs, forgotten ones too."""

    @property
    def memory_bytes(self) -> int:
        """Bytes of memory taken."""

    def reserve(self, chunk_count: int) -> None:
        """Make room for that many more chunks at once."""

    def add_pack(
        self, pack_id: bytes, salt: bytes, digests: Buffer, unsound: Sequence[int] | None = None
    ) -> None:
        """Add a pack of the origin; where a digest is known already the first pack counts.

        :param unsound: positions of chunks whose content is not what their digest says.
        :raises DataPlaneError: kind ``corrupt`` when the id is not that of digests and salt,
            ``exhausted`` at 2^32 chunks.
        """

    def forget_pack(self, pack_id: bytes) -> bool:
        """Let the pack's chunks no longer be found; return whether it was there."""

    def lookup(self, digest: bytes) -> tuple[bytes, int] | None:
        """Return (pack id, offset in bytes) of a chunk, None when it is not there."""

@final
class Manifest:
    """A validated, immutable manifest."""

    @staticmethod
    def parse(content: Buffer) -> Manifest:
        """Read and validate a manifest; its bytes are copied."""

    def to_bytes(self) -> bytes:
        """Return the manifest's bytes."""

    @property
    def digest(self) -> str:
        """BLAKE3 of the bytes, hexadecimal: the manifest's name in the origin."""

    @property
    def disk_id(self) -> str:
        """UUID of the disk."""

    @property
    def size_bytes(self) -> int:
        """Size of the disk, bytes."""

    @property
    def chunk_size(self) -> int:
        """Size of a chunk, bytes."""

    @property
    def chunk_count(self) -> int:
        """Number of chunks, zero chunks included."""

    @property
    def zero_count(self) -> int:
        """Number of zero chunks; counted anew at each call."""

    def packs(self) -> list[bytes]:
        """Return the ids of the packs referred to."""

    def entry(self, index: int) -> tuple[bytes, bytes, int] | None:
        """Return (digest, pack id, offset in bytes) of a chunk, None for a zero chunk.

        :raises IndexError: past the end of the disk.
        """

    def digests(self) -> bytes:
        """Return the digests of all chunks, concatenated; 32 zero bytes for a zero chunk."""

    def next_data(self, first: int) -> int | None:
        """Return the index of the first chunk with content at or after ``first``, None: no more."""

    def first_difference(self, first: int, scan: Scan) -> int | None:
        """Return the first of the chunks scanned from ``first`` on that is another here."""

    def unsound(self, index: DigestIndex) -> list[int]:
        """Return the indexes of chunks that ``index`` does not have at their place, ascending."""

@final
class ImageBuilder:
    """An image being registered, chunk by chunk in the order of the disk.

    Chunks that the index does not have are put into the one pack being filled.

    :param index: where known chunks are looked up and new ones are added.
    """

    def __new__(cls, index: DigestIndex) -> Self: ...
    def __len__(self) -> int:
        """Return the number of chunks so far."""

    @property
    def zero_count(self) -> int:
        """Number of zero chunks so far."""

    @property
    def new_count(self) -> int:
        """Number of chunks so far that went into packs being filled."""

    def unique_count(self) -> int:
        """Return the number of different chunks so far, zero chunks left out."""

    def push_zeros(self, count: int) -> None:
        """Append zero chunks.

        :raises DataPlaneError: kind ``invalid`` when a manifest cannot have that many; nothing is
            then appended.
        """

    def absorb(self, scan: Scan, buffer: Buffer) -> int:
        """Append scanned chunks and return the number of new ones.

        :param buffer: what was scanned; its new chunks are moved to its front, in order.
        """

    def seal_pack(self, salt: bytes) -> tuple[bytes, bytes]:
        """Close the pack being filled and return (its id, its digests)."""

    def finish(self, disk_id: str, size_bytes: int, salt: int) -> Manifest:
        """Return the manifest of everything appended.

        :param salt: 64 bits, random, so that no name of a manifest is used twice.
        :raises DataPlaneError: kind ``invalid`` when the chunks do not cover the disk exactly or
            a pack is still being filled.
        """

# Manifests of version 2, and what they are made of: chunks of packs of version 2.

@final
class StoredChunkIndex:
    """Chunks of packs of version 2 with their places, about 60 bytes of memory each. Thread-safe.

    :param pack_class: of the packs that are taken, ``image`` or ``volume``; None: any. Those of
        volumes are not shared.
    """

    def __new__(cls, chunk_size: int, pack_class: str | None = "image") -> Self: ...
    def __len__(self) -> int:
        """Return the number of different digests."""

    @property
    def pack_count(self) -> int:
        """Number of packs, forgotten ones too."""

    @property
    def memory_bytes(self) -> int:
        """Bytes of memory taken."""

    def reserve(self, chunk_count: int) -> None:
        """Make room for that many more chunks at once."""

    def add_pack(
        self,
        pack_id: bytes,
        header: PackHeader,
        table: ChunkRecords,
        unsound: Sequence[int] | None = None,
    ) -> None:
        """Add a pack of the origin; where a digest is known already the first pack counts.

        :param unsound: positions of chunks whose content is not what their digest says.
        :raises DataPlaneError: kind ``corrupt`` when the id is not that of header and table,
            ``exhausted`` at 2^32 chunks, ``invalid`` for a pack of another class or chunk size.
        """

    def forget_pack(self, pack_id: bytes) -> bool:
        """Let the pack's chunks no longer be found; return whether it was there."""

    def lookup(self, digest: bytes) -> tuple[bytes, int, int] | None:
        """Return (pack id, offset, stored bytes) of a chunk, None when it is not there."""

@final
class DiskBuilder:
    """A disk being registered, chunk by chunk in its order; what is zero costs nothing.

    Memory: 4 bytes for each chunk with content, 16 for each run of them.

    :param index: where known chunks are looked up and new ones are added.
    """

    def __new__(cls, index: StoredChunkIndex) -> Self: ...
    def __len__(self) -> int:
        """Return the number of chunks so far."""

    @property
    def zero_count(self) -> int:
        """Number of zero chunks so far."""

    @property
    def new_count(self) -> int:
        """Number of chunks so far that the index did not have."""

    def unique_count(self) -> int:
        """Return the number of different chunks so far, zero chunks left out."""

    def push_zeros(self, count: int) -> None:
        """Append zero chunks.

        :raises DataPlaneError: kind ``invalid`` when a manifest cannot have that many; nothing is
            then appended.
        """

    def absorb(self, scan: Scan) -> list[int]:
        """Append scanned chunks and return the positions of the new ones, ascending.

        All of these, of all calls, are put into packs in this order.
        """

    def close_pack(self, pack_id: bytes, table: ChunkRecords) -> None:
        """Note that a pack has the first of the new chunks that are in none yet.

        :raises DataPlaneError: kind ``invalid`` when its table is not of these.
        """

    def finish(
        self, disk_id: str, size_bytes: int, salt: bytes, spool_fd: int, manifest_fd: int
    ) -> tuple[str, int]:
        """Write the manifest of everything appended; return its name and its size in bytes.

        :param salt: 16 bytes, random, so that no name of a manifest is used twice.
        :param spool_fd: empty file for what is to be written later, open for reading and writing.
        :param manifest_fd: empty file that takes the manifest. Both stay open during the call.
        :raises DataPlaneError: kind ``invalid`` when the chunks do not cover the disk exactly or
            a new chunk is in no pack, ``exhausted`` when there is no room for the files.
        """

    def former_content_name(self, size_bytes: int) -> str | None:
        """Return the name that the content has in manifests of version 1, hexadecimal.

        :returns: None when it has more chunks than they can have.
        :raises DataPlaneError: as :meth:`finish`.
        """

@final
class PagedManifest:
    """A manifest of version 2 on those that it is a delta of; its pages are read when needed.

    Each page is verified. What reading raises is raised by the methods, which also raise
    DataPlaneError, kind ``corrupt``, when a page is not the manifest's.
    """

    @staticmethod
    def open(
        name: str,
        size_bytes: int,
        read: Callable[[int, int], Buffer],
        base: PagedManifest | None = None,
    ) -> PagedManifest:
        """Open a manifest; its header is read.

        :param name: BLAKE3 of the header, hexadecimal.
        :param size_bytes: of the manifest.
        :param read: returns bytes of the manifest: from an offset on, as many as are asked for.
        :param base: of a delta, its base.
        :raises DataPlaneError: kind ``corrupt`` when the header is not that of the name,
            ``unsupported`` for another version, ``invalid`` when the base is not its base.
        """

    @staticmethod
    def base_of(header: bytes, size_bytes: int) -> str | None:
        """Return the name of the base of a manifest, None when it is no delta.

        :param header: its first 4096 bytes.
        :param size_bytes: of the whole manifest.
        """

    @property
    def digest(self) -> str:
        """BLAKE3 of the header, hexadecimal: the manifest's name in the origin."""

    @property
    def disk_id(self) -> str:
        """UUID of the disk."""

    @property
    def size_bytes(self) -> int:
        """Size of the disk, bytes."""

    @property
    def chunk_size(self) -> int:
        """Size of a chunk, bytes."""

    @property
    def chunk_count(self) -> int:
        """Number of chunks, zero chunks included."""

    @property
    def depth(self) -> int:
        """Manifests that a reading may look into, this one included."""

    @property
    def content_name(self) -> str | None:
        """Name of the content, hexadecimal; None of a delta."""

    def data_count(self) -> int:
        """Return the number of chunks with content."""

    def usage(self) -> list[tuple[bytes, int, int, int]]:
        """Return (id, class, stored bytes, bytes of these that are used) of each pack.

        The class is a number: 1, ``image``; 2, ``volume``; of others nothing is known here. A pack
        that a base uses too is there again. No entry is read.
        """

    def entry(self, index: int) -> tuple[bytes, bytes, int, int, str] | None:
        """Return (digest, pack id, offset, stored bytes, codec) of a chunk, None for a zero chunk.

        :raises IndexError: past the end of the disk.
        """

    def entries(
        self, first: int, count: int
    ) -> list[tuple[int, tuple[bytes, bytes, int, int, str]]]:
        """Return index and place of chunks with content, from ``first`` on, at most ``count``."""

    def next_data(self, first: int) -> int | None:
        """Return the index of the first chunk with content at or after ``first``, None: no more."""

    def first_difference(self, first: int, scan: Scan) -> int | None:
        """Return the first of the chunks scanned from ``first`` on that is another here."""

    def check(self) -> None:
        """Read all pages, of the bases too, and check what only all of them say together."""

    def unsound(self, stored: StoredChunkIndex, plain: DigestIndex) -> list[int]:
        """Return the indexes of chunks that neither index has at their place, ascending.

        Of chunks of packs of version 1 the CRC is not looked at: these packs have none.
        """

@final
class SpaceAccount:
    """Account of who needs which stored bytes: 16 bytes of memory for each run of them."""

    def __new__(cls) -> Self: ...
    def add_whole(self, owner: int, manifest: Manifest) -> None:
        """Add what a manifest of version 1 needs.

        :param owner: number of who needs it, below 2^32; may have several manifests.
        """

    def add_paged(self, owner: int, manifest: PagedManifest) -> None:
        """Add what a manifest of version 2 and its bases need; their summaries are read."""

    def move_pack(self, moved: MovedPack) -> None:
        """Note that what is needed of a pack is needed of those that have its copies.

        What has no copy is still needed of the pack itself.
        """

    def live_runs(self) -> list[tuple[bytes, list[tuple[int, int]]]]:
        """Return the id of each pack and the runs of its bytes that somebody needs, ascending.

        A run is a first byte and the first after it; runs do not touch.
        """

    def totals(self) -> tuple[list[tuple[bytes, int]], dict[int, tuple[int, int]]]:
        """Return what was added, summed up.

        :returns: (id, bytes that somebody needs) of each pack, and by owner (bytes that it needs,
            bytes that it alone needs).
        """

# --- Signatures: Ed25519, RFC 8032 (crates/pyext/src/signatures.rs) -------------------------

@final
class SigningKey:
    """A private key of Ed25519."""

    def __new__(cls, pkcs8: bytes) -> Self:
        """Read a PKCS#8 document of version 1, as openssl makes it, or 2 (RFC 5958).

        :raises DataPlaneError: kind ``invalid`` when it is none.
        """

    @property
    def public_key(self) -> bytes:
        """The public key, 32 bytes."""

    def sign(self, message: bytes) -> bytes:
        """Return the signature of a message, 64 bytes, the same each time."""

def make_signing_key() -> bytes:
    """Return a new private key: a PKCS#8 document of version 1.

    :raises DataPlaneError: kind ``unavailable`` when there are no random bytes.
    """

def is_signed_by(public_key: bytes, message: bytes, signature: bytes) -> bool:
    """Return whether a message has this signature of this public key.

    A malformed key or signature is one that it does not have.
    """
