//! Named maxima of the read path. Each queue, table and retry has one.

use std::time::Duration;

/// Longest read of a front end, bytes (NBD's customary maximum).
pub const READ_LEN_MAX: usize = 32 << 20;
/// Most disks attached at a time.
pub const DISKS_MAX: usize = 65_536;
/// How long a manifest that can be read again stays in memory after it was needed last. Longer than the
/// time between two opens of one boot (Nova's inspection, QEMU) and between two requests of peers in a
/// storm; so short that what is held is what the guests and the peers of this minute use. Reading the
/// largest manifest again (160 MiB) takes a core less than a second.
pub const MANIFEST_IDLE: Duration = Duration::from_secs(60);
/// Manifests that are read for guests and peers at a time: they share one disk and the memory for one
/// manifest each.
pub const MANIFEST_READS_MAX: usize = 4;
/// As many of them at most for peers and preloads: a guest that waits has a permit left.
pub const MANIFEST_READS_OF_OTHERS_MAX: usize = 2;
/// How often in a row the local disk may fail to give a manifest before that counts as damaged: a bad
/// sector stays one, and only what is damaged is brought anew.
pub const MANIFEST_FAILURES_MAX: u32 = 3;
/// Most peers asked for one chunk in one round, whatever the ring offers.
pub const CANDIDATES_MAX: usize = 8;
/// Disks of which a peer's shares are remembered; those that none uses are forgotten beyond.
pub const DISK_SHARES_MAX: usize = 64;
/// Most hosts whose health is remembered.
pub const PEERS_TRACKED_MAX: usize = 16_384;
/// Most chunks that wait for a thread of the origin pool; more are refused as overload.
pub const ORIGIN_QUEUE_MAX: usize = 65_536;
/// Most requests of peers answered at a time.
pub const SERVE_INFLIGHT_MAX: usize = 1 << 20;
/// Sequential streams followed per disk.
pub const STREAMS_PER_DISK: usize = 8;
/// Digests that the ghost table of `keep = second-touch` remembers.
pub const GHOST_ENTRIES: usize = 65_536;
/// Most records of a ledger.
pub const LEDGER_CAPACITY_MAX: usize = 1 << 22;
/// Chunks of a pin that are fetched at a time.
pub const PIN_WINDOW_CHUNKS: usize = 64;
/// How often a source of wrong content is asked again for the same chunk within one read.
pub const CORRUPT_ATTEMPTS_MAX: u32 = 2;
/// Most chunks of a disk whose working set is learnt or that is preloaded: 8 MiB of bitmap.
pub const WORKING_SET_CHUNKS_MAX: u64 = 1 << 26;
/// Longest window of a boot.
pub const BOOT_WINDOW_MAX: Duration = Duration::from_secs(3600);
/// Preloads that run at a time; others are queued.
pub const PRELOAD_JOBS_MAX: usize = 2;
/// Bytes that one preload has in flight.
pub const PRELOAD_WINDOW_BYTES: usize = 8 << 20;
/// Most bytes that a preload starts to fetch at a time, and what its rate limit lets through at once.
pub const PRELOAD_BATCH_BYTES_MAX: usize = 1 << 20;
/// A rate-limited preload starts batches of its rate divided by this, so at least so many a second.
pub const PRELOAD_BATCHES_PER_SECOND: u64 = 4;
/// Time that a preload could not use, for want of a finer clock, and may make up for.
pub const PRELOAD_BURST_TIME: Duration = Duration::from_millis(10);
/// Longest time that a preload gives way to guests before it fetches one batch all the same.
pub const PRELOAD_YIELD_MAX: Duration = Duration::from_secs(1);
/// How often a preload tries to have one chunk while the origin answers now and then: a minute.
pub const PRELOAD_ATTEMPTS_MAX: u32 = 30;
/// How often a preload tries to have a chunk that is missing in the origin or has wrong content.
pub const PRELOAD_DAMAGED_ATTEMPTS_MAX: u32 = 5;
/// How long a preload waits for an origin that does not answer.
pub const PRELOAD_ORIGIN_WAIT_MAX: Duration = Duration::from_secs(3600);
/// How often a preload looks again for chunks that were evicted while it fetched others.
pub const PRELOAD_PASSES_MAX: u32 = 3;
/// Wait for room in the queue of chunks that are written.
pub const PRELOAD_INSERT_PAUSE: Duration = Duration::from_millis(10);
/// Chunks that one round of the deduplication looks at.
pub const DEDUPLICATION_CHUNKS: usize = 9600;
/// Time between two rounds. Each reads the manifests that are not in memory from the local disk: 1.3 GB
/// for 200 images of 10 GiB, so 6.5 MB/s.
pub const DEDUPLICATION_INTERVAL: Duration = Duration::from_secs(200);
/// How full a store must be, per cent, before copies are given up: free room costs nothing.
pub const DEDUPLICATION_FILL_PERCENT: u64 = 75;
/// A walk goes so far into the store from its cold end, per cent, before it begins anew.
pub const DEDUPLICATION_DEPTH_PERCENT: u64 = 25;
/// Longest duration of any setting.
pub const DURATION_MAX: Duration = Duration::from_secs(600);
/// Age after which the count of a disk's cached bytes is taken anew.
pub const CACHED_BYTES_AGE: Duration = Duration::from_secs(5);
/// Consecutive failed calls after which the origin counts as down.
pub const ORIGIN_FAILURES_MAX: u32 = 5;
/// Time for which a down origin is left alone at first; doubles up to the maximum, with jitter.
pub const ORIGIN_PROBE_MIN: Duration = Duration::from_millis(250);
/// Longest time between two probes of a down origin.
pub const ORIGIN_PROBE_MAX: Duration = Duration::from_secs(5);
/// Wait before the first retry of a read; doubles up to the maximum, with jitter.
pub const BACKOFF_MIN: Duration = Duration::from_millis(50);
/// Longest wait between two rounds of one read.
pub const BACKOFF_MAX: Duration = Duration::from_secs(2);
/// Retries that may be saved up.
pub const RETRY_TOKENS_MAX: f64 = 50.0;
/// Retries per first attempt that refill the budget.
pub const RETRY_RATIO: f64 = 0.1;
/// Retries per second that are allowed however few first attempts there are.
pub const RETRY_PER_SECOND: f64 = 5.0;
/// Retries that each chunk which the origin gives refills: no more second attempts than answers.
pub const RETRY_PER_SUCCESS: f64 = 1.0;
/// Attached disks of which a flight remembers that they have the chunk: each may name another place.
pub const FLIGHT_PLACES_MAX: usize = 8;
/// Wait before a chunk that the origin does not have is looked for again; doubles up to `BACKOFF_MAX`.
pub const MISSING_BACKOFF_MIN: Duration = Duration::from_secs(1);
/// Hedges that may be saved up.
pub const HEDGE_TOKENS_MAX: f64 = 16.0;
/// A late source is hedged after as many times what the origin takes, whatever its own p99, while the
/// origin takes what is usual for it.
pub const HEDGE_ORIGIN_RATIO: f64 = 4.0;
/// A peer is loaded when a chunk from it takes as many times what one from the origin takes.
pub const LOADED_RATIO: f64 = 1.25;
/// And twice the usual time of a fetch more, at most what `slow_fetch` says and at least this part of it.
pub const LOADED_SLACK_MIN_RATIO: f64 = 0.2;
/// And as many times the median of this host's peers now, with the same addition: a link of one's own
/// that is full makes all of them slow, and so does a storm.
pub const STANDS_OUT_RATIO: f64 = 4.0;
/// For so long must each look find a peer slow before it counts as loaded: a convoy is over sooner.
pub const LOADED_AFTER: Duration = Duration::from_millis(300);
/// And for as many times `slow_fetch`, where that is longer: over slow links convoys last.
pub const LOADED_AFTER_FETCHES: u32 = 60;
/// And so many answers in a row.
pub const LOADED_LOOKS_MIN: u32 = 4;
/// After which it counts as loaded even where all peers are, and others may read the origin in its place.
pub const LASTING_AFTER: Duration = Duration::from_secs(1);
/// Or as many times `slow_fetch`, where that is longer.
pub const LASTING_AFTER_FETCHES: u32 = 200;
/// From then on so many good looks in a row make it well again, not one.
pub const RECOVERED_LOOKS: u32 = 4;
/// Only a peer that has answered within this time is asked in place of an owner loaded for a moment.
pub const STAND_IN_ANSWER_AGE: Duration = Duration::from_secs(10);
/// A peer that nobody looked at for so long begins anew.
pub const LOOK_GAP_MAX: Duration = Duration::from_secs(10);
/// The origin takes the place of loaded peers while it takes at most as many times what is usual for it.
pub const ORIGIN_USUAL_RATIO: f64 = 2.0;
/// Where peers have taken as many times the limit for long, the origin takes their place however slow.
pub const DRASTIC_RATIO: f64 = 4.0;
/// How old what is known of all sources together may be.
pub const SOURCES_NOW_AGE: Duration = Duration::from_millis(20);
/// A source says nothing of this host's link after so long without an answer.
pub const SOURCE_FRESH: Duration = Duration::from_secs(2);
/// Sources that must be slow before this host's own link is blamed; all, where only two are known.
pub const OWN_LINK_SOURCES_MIN: usize = 3;
/// A source is slow when a chunk takes more than this many times what is usual for it, and in any case
/// when it takes as long as `slow_fetch` says: a link may have been full from the start.
pub const OWN_LINK_RATIO: f64 = 2.0;
/// But not where it takes less than this part of that.
pub const OWN_LINK_SLOW_MIN_RATIO: f64 = 0.4;
/// So long it is blamed on while no source says otherwise, few of them as there may be.
pub const OWN_LINK_MEMORY: Duration = Duration::from_secs(10);
/// An origin that is as many times faster than the peers stands out: the link is not to blame.
pub const OWN_LINK_ORIGIN_RATIO: f64 = 4.0;
/// As many where it takes less than `slow_fetch`.
pub const OWN_LINK_FAST_ORIGIN_RATIO: f64 = 2.5;
/// How often a host behind a slow link reads a chunk from an origin that it knows nothing new of.
pub const ORIGIN_TRIAL_INTERVAL: Duration = Duration::from_secs(2);
/// Chunks that are read from the origin at a time in place of loaded peers.
pub const BYPASS_INFLIGHT_MAX: usize = 64;
/// Chunks of slow peers that are kept at once.
pub const KEEP_SLOW_TOKENS_MAX: f64 = 1024.0;
/// Chunks of slow peers that are kept per second.
pub const KEEP_SLOW_PER_SECOND: f64 = 64.0;
/// Time between two probes of a loaded peer at first; doubles up to the maximum, with jitter.
pub const PROBE_MIN: Duration = Duration::from_millis(100);
/// Longest time between two probes of a loaded peer.
pub const PROBE_MAX: Duration = Duration::from_secs(1);
/// Age of the last answer from which on a peer's latency is no news.
pub const LATENCY_AGE_MAX: Duration = Duration::from_secs(600);
/// Fetches from a peer before its p99 is trusted.
pub const LATENCY_SAMPLES_MIN: u32 = 32;
/// First penalty of a peer that is dead or stalled; doubles up to the maximum, with jitter.
pub const PEER_PENALTY_MIN: Duration = Duration::from_millis(250);
/// Longest penalty of a peer that is dead or stalled.
pub const PEER_PENALTY_MAX: Duration = Duration::from_secs(10);
/// Times that the gathering of misses lets other tasks run first, at most.
pub const GATHER_ROUNDS_MAX: u32 = 4;
/// Sequential bytes after which a stream is prefetched.
pub const STREAM_START_BYTES: u64 = 1 << 20;
/// A stream's window is its length divided by this: what a wrong guess can cost.
pub const STREAM_WINDOW_DIVISOR: u64 = 4;
/// A read belongs to a stream when it is as near as its own length to where the stream is expected to
/// go on, but at least this near (the kernel's read-ahead arrives slightly out of order when several
/// threads serve it).
pub const STREAM_SLACK_MIN: u64 = 64 << 10;
/// And at most this near.
pub const STREAM_SLACK_MAX: u64 = 1 << 20;
/// Threads that read the disk of the chunk store at a time.
pub const STORE_READERS_MAX: usize = 32;
/// Chunks that wait for one of them; more are taken for misses.
pub const STORE_READS_WAITING_MAX: usize = 4096;
/// Reads of that disk which, late one after the other, show that it hangs.
pub const STORE_LATE_MAX: u32 = 4;
/// How often a read looks whether a disk that hung is back.
pub const STORE_PROBE_INTERVAL: Duration = Duration::from_secs(1);
/// Most bytes of chunks that are being sent to peers at a time, at the default of requests.
pub const SERVE_INFLIGHT_BYTES_MAX: usize = 256 << 20;
/// How long after the last insert its write-back is looked at.
pub const WRITEBACK_DELAY: Duration = Duration::from_secs(1);
/// Shortest wait for the thread that keeps chunks to end.
pub const END_WAIT: Duration = Duration::from_secs(1);
