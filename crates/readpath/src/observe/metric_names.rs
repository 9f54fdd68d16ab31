//! Names of the metrics. `doc/source/admin/metrics-dataplane.rst` describes each; a test compares.
//!
//! Stability: a name, a label or a label value is removed or changes its meaning only with a release
//! note under *upgrade*. Counters appear with the suffix `_total`.

/// Reads of front ends, by result.
pub const READS: &str = "acstor_reads";
/// Bytes returned to front ends.
pub const READ_BYTES: &str = "acstor_read_bytes";
/// Chunks that reads touched, by tier.
pub const READ_CHUNKS: &str = "acstor_read_chunks";
/// Bytes returned to front ends, by tier.
pub const READ_CHUNK_BYTES: &str = "acstor_read_chunk_bytes";
/// Time that a read waited for a chunk that was not on this host, by tier.
pub const READ_WAIT_SECONDS: &str = "acstor_read_wait_seconds";
/// Efforts to obtain a chunk that are under way.
pub const FLIGHTS: &str = "acstor_flights";
/// Waits that joined an effort under way to obtain a chunk, by side.
pub const FLIGHT_JOINS: &str = "acstor_flight_joins";
/// Fetches from peers, by outcome.
pub const PEER_FETCHES: &str = "acstor_peer_fetches";
/// Verified bytes fetched from peers.
pub const PEER_FETCH_BYTES: &str = "acstor_peer_fetch_bytes";
/// Time of successful fetches.
pub const PEER_FETCH_SECONDS: &str = "acstor_peer_fetch_seconds";
/// Candidates that were not asked, by reason.
pub const PEER_SKIPS: &str = "acstor_peer_skips";
/// Peers whose circuit breaker is open or half-open.
pub const PEERS_CIRCUIT_OPEN: &str = "acstor_peers_circuit_open";
/// The same as [`PEERS_CIRCUIT_OPEN`], for one release more.
pub const FORMER_PEERS_CIRCUIT_OPEN: &str = "acstor_peers_penalised";
/// Hedges, by outcome.
pub const HEDGES: &str = "acstor_hedges";
/// Chunks whose owner is overloaded, by who was asked in its place.
pub const BYPASSES: &str = "acstor_bypasses";
/// Fetches from overloaded peers to see whether they still are.
pub const PEER_PROBES: &str = "acstor_peer_probes";
/// Chunks kept because the peer that sent them is slow.
pub const PEER_SLOW_KEPT: &str = "acstor_peer_slow_kept";
/// Fetches whose answer the peer may compress.
pub const COMPRESSION_WELCOMED: &str = "acstor_peer_compression_welcomed";
/// Peers slower than the origin now.
pub const PEERS_LOADED: &str = "acstor_peers_loaded";
/// Cold chunks that the deduplication looked at, by outcome.
pub const DEDUPLICATION: &str = "acstor_deduplication_chunks";
/// Times that the runtime was late to run a task.
pub const RUNTIME_STALLS: &str = "acstor_runtime_stalls";
/// Total time by which the runtime was late to run a task.
pub const RUNTIME_STALLED_SECONDS: &str = "acstor_runtime_stalled_seconds";
/// Time by which the runtime is late now.
pub const RUNTIME_LAG_SECONDS: &str = "acstor_runtime_lag_seconds";
/// 1 while this host's own link is what makes its sources slow, else 0.
pub const OWN_LINK_SLOW: &str = "acstor_own_link_slow";
/// Chunks that another host owned in a ring that is remembered, by where they came from.
pub const REMAPPED_CHUNKS: &str = "acstor_remapped_chunks";
/// Bytes of chunks that another host owned in a ring that is remembered.
pub const REMAPPED_BYTES: &str = "acstor_remapped_bytes";
/// Calls of the origin, by outcome.
pub const ORIGIN_CALLS: &str = "acstor_origin_calls";
/// Chunks that calls of the origin were to bring, by outcome.
pub const ORIGIN_CHUNKS: &str = "acstor_origin_chunks";
/// Bytes that left the origin for this host, right or wrong.
pub const ORIGIN_BYTES: &str = "acstor_origin_bytes";
/// Time of calls of the origin.
pub const ORIGIN_CALL_SECONDS: &str = "acstor_origin_call_seconds";
/// Misses that were not sent to the origin, by reason.
pub const ORIGIN_REFUSALS: &str = "acstor_origin_refusals";
/// Retries of reads, by whether the budget allowed them.
pub const ORIGIN_RETRIES: &str = "acstor_origin_retries";
/// 1 while the origin answers, 0 while it is only probed.
pub const ORIGIN_UP: &str = "acstor_origin_up";
/// Chunks that wait for a thread of the origin pool.
pub const ORIGIN_QUEUE_CHUNKS: &str = "acstor_origin_queue_chunks";
/// Requests of peers, by where the chunk came from or why there was none.
pub const SERVES: &str = "acstor_serves";
/// Bytes sent to peers.
pub const SERVE_BYTES: &str = "acstor_serve_bytes";
/// Requests of peers that are being answered.
pub const SERVES_INFLIGHT: &str = "acstor_serves_inflight";
/// Chunks that were to be kept, by outcome.
pub const INSERTS: &str = "acstor_inserts";
/// Bytes that wait to be written to the chunk store.
pub const INSERT_QUEUE_BYTES: &str = "acstor_insert_queue_bytes";
/// Bytes of chunks held in memory because they were obtained a moment ago.
pub const RECENT_BYTES: &str = "acstor_recent_bytes";
/// Chunks prefetched, by outcome.
pub const PREFETCH_CHUNKS: &str = "acstor_prefetch_chunks";
/// Bytes read ahead along the profiles of boots, by what became of them.
pub const READ_AHEAD_BYTES: &str = "acstor_read_ahead_bytes";
/// Bytes of chunks that were read ahead, in memory.
pub const READ_AHEAD_HELD_BYTES: &str = "acstor_read_ahead_held_bytes";
/// Bytes fetched on hints of other hosts, by what became of them.
pub const EXCHANGE_BYTES: &str = "acstor_exchange_bytes";
/// Hints of chunks that hosts missed, by what became of them.
pub const EXCHANGE_HINTS: &str = "acstor_exchange_hints";
/// Requests to take part in an exchange, by outcome.
pub const EXCHANGE_JOINS: &str = "acstor_exchange_joins";
/// Exchanges in which this host is a member.
pub const EXCHANGES: &str = "acstor_exchanges";
/// Exchanges of which this host is the rendezvous host.
pub const EXCHANGE_MEETINGS: &str = "acstor_exchange_meetings";
/// Reads of guests that wait this moment.
pub const READS_WAITING: &str = "acstor_reads_waiting";
/// Preloads that have not ended, by state.
pub const PRELOAD_JOBS: &str = "acstor_preload_jobs";
/// Preloads that ended, by outcome.
pub const PRELOADS_ENDED: &str = "acstor_preload_ended";
/// Chunks of preloads, by outcome.
pub const PRELOAD_CHUNKS: &str = "acstor_preload_chunks";
/// Bytes that preloads brought.
pub const PRELOAD_BYTES: &str = "acstor_preload_bytes";
/// Time that preloads gave way to reads of guests.
pub const PRELOAD_YIELD_SECONDS: &str = "acstor_preload_yield_seconds";
/// Hints that an image is about to be booted, by outcome.
pub const PRELOAD_HINTS: &str = "acstor_preload_hints";
/// Boots seen.
pub const WORKING_SET_BOOTS: &str = "acstor_working_set_boots";
/// Disks with a working set.
pub const WORKING_SET_IMAGES: &str = "acstor_working_set_images";
/// Chunks of the working sets.
pub const WORKING_SET_CHUNKS: &str = "acstor_working_set_chunks";
/// Orders of boots, by outcome.
pub const BOOT_ORDERS: &str = "acstor_boot_orders";
/// Reads of the chunk store that failed and were taken for misses.
pub const STORE_READ_ERRORS: &str = "acstor_store_read_errors";
/// Chunks that were on the disk of the chunk store only, by outcome.
pub const STORE_READS: &str = "acstor_store_reads";
/// 1 while the disk of the chunk store answers, 0 while it is only probed.
pub const STORE_UP: &str = "acstor_store_up";
/// Bytes that the chunk store may hold.
pub const STORE_CAPACITY_BYTES: &str = "acstor_store_capacity_bytes";
/// Bytes that the chunk store holds.
pub const STORE_USED_BYTES: &str = "acstor_store_used_bytes";
/// Bytes in the chunk store that are pinned.
pub const STORE_PINNED_BYTES: &str = "acstor_store_pinned_bytes";
/// Generation of the ring in use, 0 where there is none.
pub const RING_GENERATION: &str = "acstor_ring_generation";
/// Hops from which on a host is not asked, 255 where none is too far.
pub const DISTANCE_THRESHOLD: &str = "acstor_distance_threshold";
/// Disks attached.
pub const DISKS: &str = "acstor_disks";
/// Disks whose manifest is in memory.
pub const MANIFESTS_IN_MEMORY: &str = "acstor_manifests_in_memory";
/// Bytes of the manifests in memory.
pub const MANIFEST_BYTES: &str = "acstor_manifest_bytes";
/// Manifests read from this host's disk, by outcome.
pub const MANIFEST_READS: &str = "acstor_manifest_reads";
/// Pages of manifests that were needed, by outcome.
pub const MANIFEST_PAGES: &str = "acstor_manifest_pages";
/// Bytes of pages of manifests in memory.
pub const MANIFEST_PAGE_BYTES: &str = "acstor_manifest_page_bytes";
/// Pages of manifests fetched from the origin, by reason.
pub const MANIFEST_PAGES_FETCHED: &str = "acstor_manifest_pages_fetched";
/// Pages of manifests that were fetched and could not be kept on this host's disk.
pub const MANIFEST_PAGES_UNWRITTEN: &str = "acstor_manifest_pages_unwritten";
/// Failed fetches of pages of manifests from the origin.
pub const MANIFEST_FETCH_FAILURES: &str = "acstor_manifest_fetch_failures";
/// Attached manifests that are not known to be whole on this host.
pub const MANIFESTS_PARTIAL: &str = "acstor_manifests_partial";

/// Every name.
pub const ALL: [&str; 77] = [
    READS,
    READ_BYTES,
    READ_CHUNKS,
    READ_CHUNK_BYTES,
    READ_WAIT_SECONDS,
    FLIGHTS,
    FLIGHT_JOINS,
    PEER_FETCHES,
    PEER_FETCH_BYTES,
    PEER_FETCH_SECONDS,
    PEER_SKIPS,
    PEERS_CIRCUIT_OPEN,
    FORMER_PEERS_CIRCUIT_OPEN,
    HEDGES,
    ORIGIN_CALLS,
    ORIGIN_CHUNKS,
    ORIGIN_BYTES,
    ORIGIN_CALL_SECONDS,
    ORIGIN_REFUSALS,
    ORIGIN_RETRIES,
    ORIGIN_UP,
    ORIGIN_QUEUE_CHUNKS,
    SERVES,
    SERVE_BYTES,
    SERVES_INFLIGHT,
    INSERTS,
    INSERT_QUEUE_BYTES,
    RECENT_BYTES,
    PREFETCH_CHUNKS,
    READ_AHEAD_BYTES,
    READ_AHEAD_HELD_BYTES,
    EXCHANGE_BYTES,
    EXCHANGE_HINTS,
    EXCHANGE_JOINS,
    EXCHANGES,
    EXCHANGE_MEETINGS,
    READS_WAITING,
    PRELOAD_JOBS,
    PRELOADS_ENDED,
    PRELOAD_CHUNKS,
    PRELOAD_BYTES,
    PRELOAD_YIELD_SECONDS,
    PRELOAD_HINTS,
    WORKING_SET_BOOTS,
    WORKING_SET_IMAGES,
    WORKING_SET_CHUNKS,
    BOOT_ORDERS,
    STORE_READ_ERRORS,
    STORE_READS,
    STORE_UP,
    STORE_CAPACITY_BYTES,
    STORE_USED_BYTES,
    STORE_PINNED_BYTES,
    RING_GENERATION,
    DISKS,
    MANIFESTS_IN_MEMORY,
    MANIFEST_BYTES,
    MANIFEST_READS,
    MANIFEST_PAGES,
    MANIFEST_PAGE_BYTES,
    MANIFEST_PAGES_FETCHED,
    MANIFEST_PAGES_UNWRITTEN,
    MANIFEST_FETCH_FAILURES,
    MANIFESTS_PARTIAL,
    BYPASSES,
    DEDUPLICATION,
    PEER_PROBES,
    PEER_SLOW_KEPT,
    COMPRESSION_WELCOMED,
    PEERS_LOADED,
    OWN_LINK_SLOW,
    RUNTIME_STALLS,
    RUNTIME_STALLED_SECONDS,
    RUNTIME_LAG_SECONDS,
    REMAPPED_CHUNKS,
    REMAPPED_BYTES,
    DISTANCE_THRESHOLD,
];
