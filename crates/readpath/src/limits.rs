//! Named maxima of the read path. Each queue, table and retry has one. The tuned numbers of the choice of a
//! source are in `acstor_selection::limits`.

use std::time::Duration;

/// Longest read of a front end, bytes: NBD's customary maximum.
pub const READ_LEN_MAX: usize = 32 << 20;
/// Most disks attached at a time.
pub const DISKS_MAX: usize = 65_536;
/// Time that a manifest which can be read again stays in memory after it was needed last. Longer than the
/// time between two opens of one boot (Nova's inspection, QEMU) and between two requests of peers in a
/// storm; so short that what is held is what the guests and the peers of this minute use. Reading the
/// largest manifest again (160 MiB) takes a core less than a second.
pub const MANIFEST_IDLE: Duration = Duration::from_secs(60);
/// Manifests that are read for guests and peers at a time: they share one disk, and each needs the memory
/// for one.
pub const MANIFEST_READS_MAX: usize = 4;
/// Manifests that are read for peers and preloads at a time: half of `MANIFEST_READS_MAX`, so that a guest
/// that waits has a permit left.
pub const MANIFEST_READS_OF_OTHERS_MAX: usize = 2;
/// Look-ups that read pages of manifests from the local disk at a time: a few pages each.
pub const PAGE_READS_MAX: usize = 16;
/// Look-ups that do so for anybody but a guest at a time: half of `PAGE_READS_MAX`, so that a guest that
/// waits has a permit left.
pub const PAGE_READS_OF_OTHERS_MAX: usize = 8;
/// Pages of a manifest that are fetched from the origin with one that is needed: 64 KiB.
pub const PAGE_WINDOW: u32 = 16;
/// Calls of the origin for pages that somebody waits for, at a time: as many as threads read chunks.
pub const PAGE_CALLS_MAX: usize = 4;
/// Calls of the origin that make manifests whole, at a time, those counted that nobody waits for any more:
/// one is under way, and one that never returns does not end the work.
pub const COMPLETION_CALLS_MAX: usize = 2;
/// Attempts at a page of which the origin, which answers, has other bytes or none.
pub const PAGE_ATTEMPTS_MAX: u32 = 3;
/// Fetches, one after the other, that bring a page: those of the index above it, at most five, and its own.
pub const PAGE_PATH_MAX: u32 = 6;
/// Pages of a manifest that are fetched at a time until it is whole on this host: 256 KiB, which a link of
/// 40 Mbit/s is busy with for a twentieth of a second.
pub const COMPLETION_WINDOW: u32 = 64;
/// Rest after such a fetch, in times that it took: a quarter of any link is used.
pub const COMPLETION_REST_FACTOR: u32 = 3;
/// Longest such rest.
pub const COMPLETION_REST_MAX: Duration = Duration::from_secs(5);
/// Longest time that such a fetch gives way to guests that wait.
pub const COMPLETION_YIELD_MAX: Duration = Duration::from_secs(1);
/// Time after which a manifest that could not be made whole is looked at again.
pub const COMPLETION_RETRY: Duration = Duration::from_secs(60);
/// Memory for pages of one pass over a manifest, bytes: it needs each page once.
pub const PASS_PAGES_BYTES: usize = 256 << 10;
/// Failures in a row of the local disk to give a manifest before that counts as damaged: a bad sector
/// stays one, and only what is damaged is brought anew.
pub const MANIFEST_FAILURES_MAX: u32 = 3;
/// Disks of which a peer's shares are remembered; those that none uses are forgotten beyond.
pub const DISK_SHARES_MAX: usize = 64;
/// Divisor of a peer's permits that gives the part which one disk never has: a quarter, so that fetches of a
/// disk that hang leave some to the others.
pub const DISK_SHARE_LEFT_DIVISOR: usize = 4;
/// Divisor of a peer's permits that gives those of preloads: half, so that guests find permits free.
pub const PRELOAD_PERMITS_DIVISOR: usize = 2;
/// Divisor of a peer's permits that gives those of what is fetched ahead: a quarter, so that with as many
/// preloads as may be guests find a quarter free.
pub const AHEAD_PERMITS_DIVISOR: usize = 4;
/// Opens of one disk that are read ahead at a time: the guests that boot from an image on one host within
/// two minutes. Those beyond find much of what the others brought.
pub const READ_AHEAD_OPENS_MAX: usize = 8;
/// Age at which a chunk that was read ahead, and that no open claims any more, is dropped from memory: an
/// inspection of an image and the boot after it are seconds apart, and so are guests that start together.
pub const LEFT_AHEAD_AGE_MAX: Duration = Duration::from_secs(60);
/// Most hosts whose health is remembered.
pub const PEERS_TRACKED_MAX: usize = 16_384;
/// Most chunks that wait for a thread of the origin pool; more are refused as overload.
pub const ORIGIN_QUEUE_MAX: usize = 65_536;
/// Times in a row that the chunks of a pack may have been moved: as often as a compaction moves them
/// (`HOPS_MAX` of `acstor/repository/moved_packs.py`).
pub const MOVED_HOPS_MAX: u32 = 3;
/// Memory for what is known of packs that were moved, bytes: 25 KB for a pack of 64 MiB, so that of some
/// hundred packs is kept. The one that is needed now is, whatever its size.
pub const MOVED_PACKS_BYTES_MAX: usize = 16 << 20;
/// Most requests of peers answered at a time.
pub const SERVE_INFLIGHT_MAX: usize = 1 << 20;
/// Sequential streams followed per disk.
pub const STREAMS_PER_DISK: usize = 8;
/// Digests that the ghost table of `keep = second-touch` remembers.
pub const GHOST_ENTRIES: usize = 65_536;
/// Most records of a trace.
pub const TRACE_CAPACITY_MAX: usize = 1 << 22;
/// Chunks of a pin that are fetched at a time.
pub const PIN_WINDOW_CHUNKS: usize = 64;
/// Times that a source of wrong content is asked again for the same chunk within one read.
pub const CORRUPT_ATTEMPTS_MAX: u32 = 2;
/// Most chunks of a disk whose working set is learnt or that is preloaded: as many as a manifest describes.
pub const WORKING_SET_CHUNKS_MAX: u64 = 1 << 30;
/// Most chunks of a disk whose working set is one bitmap, of 8 MiB; that of a larger one is told by span.
pub const WORKING_SET_BITMAP_CHUNKS_MAX: u64 = 1 << 26;
/// Most spans of 4096 chunks that a working set has chunks in: 8 MiB of bits, and as many as the largest
/// disk with one bitmap has.
pub const WORKING_SET_SPANS_MAX: usize = 1 << 14;
/// Most different chunks with content of a disk that is preloaded whole: 4 TiB of chunks of 64 KiB.
pub const PRELOAD_CHUNKS_MAX: usize = 1 << 26;
/// Longest window of a boot.
pub const BOOT_WINDOW_MAX: Duration = Duration::from_secs(3600);
/// Longest boot whose order of reads is recorded: Windows' boot trace ends there, too.
pub const BOOT_TIME_MAX: Duration = Duration::from_secs(120);
/// Seconds with less than a new chunk each that end a boot: a guest that is up reads now and then.
pub const BOOT_QUIET_SECONDS: usize = 10;
/// Least chunks of a boot, 1 MiB of chunks of 64 KiB: whoever inspects an image reads its head and tail.
pub const BOOT_CHUNKS_MIN: usize = 16;
/// Most chunks of a boot, 1 GiB of chunks of 64 KiB: some twenty times what a boot reads.
pub const BOOT_CHUNKS_MAX: usize = 1 << 14;
/// Most kinds of boots of a disk that a profile has.
pub const BOOT_KINDS_MAX: usize = 3;
/// Boots of a host that are recorded at a time: 128 KiB each.
pub const BOOTS_RECORDED_MAX: usize = 64;
/// Opens of a disk that are remembered until their reader reads.
pub const BOOT_OPENS_MAX: usize = 256;
/// Longest read of the page cache that counts as a guest's own: what is longer is the kernel's read-ahead.
pub const BOOT_CACHED_READ_MAX: usize = 128 << 10;
/// Boots that wait to be told; the oldest go first.
pub const BOOTS_FINISHED_MAX: usize = 256;
/// Chunks of all boots that wait to be told: 4 MiB.
pub const BOOTS_FINISHED_CHUNKS_MAX: usize = 1 << 20;
/// Chunks of the boots that are told in one answer, but for one boot, which always is.
pub const BOOTS_TOLD_CHUNKS_MAX: usize = 1 << 18;
/// Preloads that run at a time; others are queued.
pub const PRELOAD_JOBS_MAX: usize = 2;
/// Bytes that one preload has in flight.
pub const PRELOAD_WINDOW_BYTES: usize = 8 << 20;
/// Chunks that a preload looks for in its feed, the first ones: more than one key of a multicast session sends.
pub const PRELOAD_FEED_CHUNKS_MAX: usize = 1 << 18;
/// Chunks whose digests are looked up at a time for the feed.
pub const PRELOAD_FEED_BATCH: usize = 1024;
/// Chunks of the feed that wait to be written; what comes beyond is dropped, and fetched.
pub const PRELOAD_FEED_QUEUE: usize = 64;
/// Most bytes that a preload starts to fetch at a time, and that its rate limit lets through at once.
pub const PRELOAD_BATCH_BYTES_MAX: usize = 1 << 20;
/// Least batches per second of a rate-limited preload: its batch is its rate divided by this.
pub const PRELOAD_BATCHES_PER_SECOND: u64 = 4;
/// Time that a preload could not use, for want of a finer clock, and may make up for.
pub const PRELOAD_BURST_TIME: Duration = Duration::from_millis(10);
/// Longest time that a preload gives way to guests before it fetches one batch all the same.
pub const PRELOAD_YIELD_MAX: Duration = Duration::from_secs(1);
/// Attempts of a preload at one chunk while the origin answers now and then: a minute.
pub const PRELOAD_ATTEMPTS_MAX: u32 = 30;
/// Attempts of a preload at a chunk that is missing in the origin or has wrong content.
pub const PRELOAD_DAMAGED_ATTEMPTS_MAX: u32 = 5;
/// Longest time that a preload waits for an origin that does not answer.
pub const PRELOAD_ORIGIN_WAIT_MAX: Duration = Duration::from_secs(3600);
/// Passes of a preload over chunks that were evicted while it fetched others.
pub const PRELOAD_PASSES_MAX: u32 = 3;
/// Wait of a preload for room in the queue of chunks that are written.
pub const PRELOAD_INSERT_PAUSE: Duration = Duration::from_millis(10);
/// Chunks that one round of the deduplication looks at.
pub const DEDUPLICATION_CHUNKS: usize = 9600;
/// Time between two rounds of the deduplication. Each reads the manifests that are not in memory from the
/// local disk: 1.3 GB for 200 images of 10 GiB, so 6.5 MB/s.
pub const DEDUPLICATION_INTERVAL: Duration = Duration::from_secs(200);
/// Least fill of a store, per cent, before copies are given up: free room costs nothing.
pub const DEDUPLICATION_FILL_PERCENT: u64 = 75;
/// Depth into the store from its cold end, per cent, at which a walk of the deduplication begins anew.
pub const DEDUPLICATION_DEPTH_PERCENT: u64 = 25;
/// Longest duration of any setting.
pub const DURATION_MAX: Duration = Duration::from_secs(600);
/// Age after which the count of a disk's cached bytes is taken anew.
pub const CACHED_BYTES_AGE: Duration = Duration::from_secs(5);
/// Attached disks of which a flight remembers that they have the chunk: each may name another place.
pub const FLIGHT_PLACES_MAX: usize = 8;
/// Most times that the gathering of misses lets other tasks run first.
pub const GATHER_ROUNDS_MAX: u32 = 4;
/// Sequential bytes after which a stream is prefetched.
pub const STREAM_START_BYTES: u64 = 1 << 20;
/// Divisor of a stream's length that gives its window: what a wrong guess can cost.
pub const STREAM_WINDOW_DIVISOR: u64 = 4;
/// Least distance, bytes, from where a stream is expected to go on at which a read still belongs to it; a
/// longer read may be as far away as its own length. The kernel's read-ahead arrives slightly out of order
/// when several threads serve it.
pub const STREAM_SLACK_MIN: u64 = 64 << 10;
/// Greatest such distance, bytes, however long the read: the kernel's longest read-ahead.
pub const STREAM_SLACK_MAX: u64 = 1 << 20;
/// Threads that read the disk of the chunk store at a time.
pub const STORE_READERS_MAX: usize = 32;
/// Chunks that wait for a reader of the chunk store's disk; more are taken for misses.
pub const STORE_READS_WAITING_MAX: usize = 4096;
/// Late reads of the chunk store's disk, one after the other, which show that it hangs.
pub const STORE_LATE_MAX: u32 = 4;
/// Time between two probes of a disk that hung.
pub const STORE_PROBE_INTERVAL: Duration = Duration::from_secs(1);
/// Most bytes of chunks that are being sent to peers at a time, at the default of requests.
pub const SERVE_INFLIGHT_BYTES_MAX: usize = 256 << 20;
/// Candidates for the rendezvous host of an image: the first in line on the ring, and two in case it fails.
pub const RENDEZVOUS_CANDIDATES: usize = 3;
/// Images of which a host is the rendezvous host at a time.
pub const MEETINGS_MAX: usize = 256;
/// Time that a host may take to answer a JOIN or a HINT; both are answered from memory.
pub const EXCHANGE_ANSWER_MAX: Duration = Duration::from_secs(2);
/// Time between two looks for what came on hints long ago and was not read.
pub const EXCHANGE_AGE_LOOK: Duration = Duration::from_secs(5);
/// Time after the last insert at which its write-back is looked at.
pub const WRITEBACK_DELAY: Duration = Duration::from_secs(1);
/// Shortest wait for the thread that keeps chunks to end.
pub const END_WAIT: Duration = Duration::from_secs(1);
