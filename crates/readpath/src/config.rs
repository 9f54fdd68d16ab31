//! The settings of the read path and their ranges.

use acstor_manifest::PageCache;
use std::ops::RangeInclusive;
use std::time::Duration;

use acstor_ring::Threshold;
use acstor_selection::exchange::Neighbourhood;
use acstor_selection::{Prefer, SelectionConfig, limits as selection_limits};

use crate::ReadPathError;
use crate::limits;

/// Rule that decides which host of the ring owns a chunk. Must be equal on all hosts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PlacementRule {
    /// The OID of the first chunk of each run of `span_chunks` chunks of the disk, so that
    /// neighbouring misses go to one owner and leave the origin in one call.
    Oid {
        /// Chunks per run; 1 is the paper's rule.
        span_chunks: u64,
    },
    /// The first eight bytes of the digest of the first chunk with content of each run of
    /// `span_chunks` chunks: runs that several disks have in common have one owner.
    Digest {
        /// Chunks per run; 1 places each chunk by its own digest.
        span_chunks: u64,
    },
}

/// Policy of keeping a chunk that this host fetched from a peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Keep {
    /// Only owners keep chunks (ACStor §3.4).
    Never,
    /// Kept when fetched for the second time within the memory of the ghost table.
    SecondTouch,
    /// Kept at once.
    Always,
}

/// Settings of a [`crate::ReadPath`]; [`ReadPathConfig::validate`] says what is allowed.
#[derive(Clone, Debug)]
pub struct ReadPathConfig {
    /// Name of this host in the ring.
    pub host: String,
    /// Time after which a read fails.
    pub read_deadline: Duration,
    /// Time that one attempt at the origin may take, queueing included.
    pub origin_deadline: Duration,
    /// Time that one peer may take to answer.
    pub peer_deadline: Duration,
    /// Time after which a read of this host's own disk is late, and the chunk obtained elsewhere.
    pub store_late_after: Duration,
    /// Threads of the origin pool: calls under way at a time.
    pub origin_threads: usize,
    /// Chunks that may wait for the origin pool; more are refused as overload.
    pub origin_queue_max: usize,
    /// Longest run of neighbouring chunks read in one call, bytes.
    pub origin_run_max_bytes: usize,
    /// Rule that decides which host owns a chunk.
    pub placement: PlacementRule,
    /// Candidates that are farther away than this are skipped.
    pub distance_threshold: Threshold,
    /// Peers asked for one chunk before the origin.
    pub candidates_max: usize,
    /// Policy of keeping chunks that this host fetched from a peer.
    pub keep: Keep,
    /// Hosts that should rather have a chunk, and have it, from which on this host makes its copy the
    /// first to leave; 0: never.
    pub copies_max: usize,
    /// True if overloaded peers are passed over.
    pub load_aware: bool,
    /// Least time of a chunk over a link that is full: some ten times that over a link that is not.
    pub slow_fetch: Duration,
    /// True if peers may compress their answers where links are slow.
    pub compress_slow: bool,
    /// Preference where the two are at odds: the origin's bytes, or the time of those who wait.
    pub prefer: Prefer,
    /// True if a late fetch is hedged.
    pub hedge_enabled: bool,
    /// Time before which a fetch is never hedged.
    pub hedge_min: Duration,
    /// Time after which a fetch is hedged whatever the peer's p99, where the share allows.
    pub hedge_max: Duration,
    /// Hedges per hundred fetches that may be started.
    pub hedge_share_percent: u32,
    /// Time for which a peer that sent wrong content is not asked.
    pub lie_penalty: Duration,
    /// Chunks in flight from one peer.
    pub peer_inflight_max: usize,
    /// Requests of peers answered at a time; more are refused.
    pub serve_inflight_max: usize,
    /// Bytes prefetched ahead of one sequential stream; 0 turns prefetch off.
    pub prefetch_max_bytes: usize,
    /// Memory for chunks that are read ahead along the profiles of boots, bytes; 0 turns that off.
    pub read_ahead_bytes: usize,
    /// Order in which hosts that boot an image of which no profile is known tell each other what they miss;
    /// `None`: they do not.
    pub exchange: Option<Neighbourhood>,
    /// Time after an open of a disk in which its reads count as those of a boot.
    pub boot_window: Duration,
    /// Memory for chunks that were obtained a moment ago, bytes.
    pub recent_bytes: usize,
    /// Memory for chunks that wait to be written to the chunk store, bytes.
    pub insert_queue_bytes: usize,
    /// Memory for pages of manifests that are read by the page, of all disks together, bytes.
    pub manifest_cache_bytes: usize,
}

impl Default for ReadPathConfig {
    fn default() -> ReadPathConfig {
        ReadPathConfig {
            host: String::new(),
            read_deadline: Duration::from_secs(30),
            origin_deadline: Duration::from_secs(10),
            peer_deadline: selection_limits::PEER_DEADLINE,
            store_late_after: Duration::from_secs(1),
            origin_threads: 4,
            origin_queue_max: 4096,
            origin_run_max_bytes: 4 << 20,
            placement: PlacementRule::Digest { span_chunks: 16 },
            distance_threshold: Threshold::ANY,
            candidates_max: selection_limits::CANDIDATES,
            keep: Keep::SecondTouch,
            copies_max: 2,
            load_aware: true,
            slow_fetch: selection_limits::SLOW_FETCH,
            compress_slow: true,
            prefer: Prefer::default(),
            hedge_enabled: true,
            hedge_min: selection_limits::HEDGE_MIN,
            hedge_max: selection_limits::HEDGE_MAX,
            hedge_share_percent: selection_limits::HEDGE_SHARE_PERCENT,
            lie_penalty: selection_limits::CORRUPT_PEER_OPEN,
            peer_inflight_max: 64,
            serve_inflight_max: 1024,
            prefetch_max_bytes: 4 << 20,
            read_ahead_bytes: 128 << 20,
            exchange: None,
            boot_window: Duration::from_secs(120),
            recent_bytes: 16 << 20,
            insert_queue_bytes: 64 << 20,
            manifest_cache_bytes: PageCache::DEFAULT_BYTES,
        }
    }
}

impl ReadPathConfig {
    /// The settings of the choice of a source.
    pub(crate) fn selection(&self) -> SelectionConfig {
        SelectionConfig {
            load_aware: self.load_aware,
            slow_fetch: self.slow_fetch,
            compress_slow: self.compress_slow,
            hedge_min: self.hedge_min,
            hedge_max: self.hedge_max,
            prefer: self.prefer,
        }
    }

    /// Checks every value against its range.
    ///
    /// # Errors
    /// [`ReadPathError::Config`] names the first value outside its range.
    pub fn validate(&self) -> Result<(), ReadPathError> {
        if self.host.is_empty() {
            return Err(refuse("host", "''", "the host's name in the ring"));
        }
        duration("read_deadline", self.read_deadline)?;
        duration("origin_deadline", self.origin_deadline)?;
        duration("peer_deadline", self.peer_deadline)?;
        duration("store_late_after", self.store_late_after)?;
        duration("slow_fetch", self.slow_fetch)?;
        duration("hedge_min", self.hedge_min)?;
        duration("hedge_max", self.hedge_max)?;
        duration("lie_penalty", self.lie_penalty)?;
        at_most("origin_deadline", self.origin_deadline, "read_deadline", self.read_deadline)?;
        at_most("peer_deadline", self.peer_deadline, "read_deadline", self.read_deadline)?;
        at_most("hedge_min", self.hedge_min, "hedge_max", self.hedge_max)?;
        number("origin_threads", self.origin_threads, 1..=16)?;
        number("origin_queue_max", self.origin_queue_max, 1..=limits::ORIGIN_QUEUE_MAX)?;
        number("origin_run_max_bytes", self.origin_run_max_bytes, 4096..=64 << 20)?;
        let (PlacementRule::Oid { span_chunks } | PlacementRule::Digest { span_chunks }) =
            self.placement;
        number("placement_span_chunks", span_chunks as usize, 1..=4096)?;
        number("candidates_max", self.candidates_max, 1..=selection_limits::CANDIDATES_MAX)?;
        number("copies_max", self.copies_max, 0..=selection_limits::CANDIDATES_MAX)?;
        number("hedge_share_percent", self.hedge_share_percent as usize, 0..=100)?;
        number("peer_inflight_max", self.peer_inflight_max, 1..=4096)?;
        number("serve_inflight_max", self.serve_inflight_max, 1..=limits::SERVE_INFLIGHT_MAX)?;
        number("prefetch_max", self.prefetch_max_bytes, 0..=256 << 20)?;
        number("read_ahead_budget", self.read_ahead_bytes, 0..=64 << 30)?;
        if self.boot_window.is_zero() || self.boot_window > limits::BOOT_WINDOW_MAX {
            let allowed = format!("1 ms to {} s", limits::BOOT_WINDOW_MAX.as_secs());
            return Err(refuse("boot_window", &format!("{:?}", self.boot_window), &allowed));
        }
        number("recent_bytes", self.recent_bytes, 4 << 20..=4 << 30)?;
        number("insert_queue_bytes", self.insert_queue_bytes, 4 << 20..=4 << 30)?;
        number("manifest_cache", self.manifest_cache_bytes, 1 << 20..=4 << 30)?;
        if self.prefetch_max_bytes > self.recent_bytes / 2 {
            // What is prefetched from a peer waits in that memory for its reader.
            let half = self.recent_bytes / 2;
            let allowed = format!("0 to {half} (half of recent_bytes)");
            return Err(refuse("prefetch_max", &self.prefetch_max_bytes.to_string(), &allowed));
        }
        Ok(())
    }
}

fn refuse(name: &'static str, value: &str, allowed: &str) -> ReadPathError {
    ReadPathError::Config { name, value: value.to_owned(), allowed: allowed.to_owned() }
}

fn number(
    name: &'static str,
    value: usize,
    range: RangeInclusive<usize>,
) -> Result<(), ReadPathError> {
    if range.contains(&value) {
        return Ok(());
    }
    Err(refuse(name, &value.to_string(), &format!("{} to {}", range.start(), range.end())))
}

fn duration(name: &'static str, value: Duration) -> Result<(), ReadPathError> {
    if value >= Duration::from_millis(1) && value <= limits::DURATION_MAX {
        return Ok(());
    }
    let allowed = format!("1 ms to {} s", limits::DURATION_MAX.as_secs());
    Err(refuse(name, &format!("{value:?}"), &allowed))
}

fn at_most(
    name: &'static str,
    value: Duration,
    other_name: &'static str,
    other: Duration,
) -> Result<(), ReadPathError> {
    if value <= other {
        return Ok(());
    }
    Err(refuse(name, &format!("{value:?}"), &format!("at most {other_name} ({other:?})")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn good() -> ReadPathConfig {
        ReadPathConfig { host: "compute-1".into(), ..ReadPathConfig::default() }
    }

    #[test]
    fn test_validate_defaults_are_allowed() {
        assert_eq!(good().validate(), Ok(()));
    }

    #[test]
    fn test_validate_bad_value_is_named_with_its_range() {
        type Damage = fn(&mut ReadPathConfig);
        let cases: [(&str, Damage); 9] = [
            ("host", |c| c.host.clear()),
            ("read_deadline", |c| c.read_deadline = Duration::ZERO),
            ("origin_deadline", |c| c.origin_deadline = Duration::from_secs(31)),
            ("hedge_min", |c| c.hedge_min = Duration::from_secs(2)),
            ("origin_threads", |c| c.origin_threads = 0),
            ("placement_span_chunks", |c| c.placement = PlacementRule::Oid { span_chunks: 0 }),
            ("hedge_share_percent", |c| c.hedge_share_percent = 101),
            ("prefetch_max", |c| c.prefetch_max_bytes = 9 << 20),
            ("manifest_cache", |c| c.manifest_cache_bytes = 0),
        ];
        for (expected, damage) in cases {
            let mut config = good();
            damage(&mut config);
            let error = config.validate().unwrap_err();
            assert!(
                matches!(&error, ReadPathError::Config { name, .. } if *name == expected),
                "{expected}: {error}"
            );
            assert!(error.to_string().contains("allowed is"), "{error}");
        }
    }
}
