//! The tuned numbers of the selection, in one table.
//!
//! Each is described alone: its meaning, its unit, what it rests on. `doc/source/contributor/selection.rst`
//! shows [`table`], and a test compares the two. *Convention* means that the field uses the number and
//! nothing was measured here; *chosen* that it was set once by reasoning and was not swept.

use std::fmt::Debug;
use std::time::Duration;

/// A row of the table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limit {
    /// Name of the constant.
    pub name: &'static str,
    /// Its value, as `Debug` shows it.
    pub value: String,
    /// Its unit; `time` where the value shows it.
    pub unit: &'static str,
    /// Its documentation.
    pub meaning: &'static str,
}

fn row(name: &'static str, value: &dyn Debug, unit: &'static str, meaning: &'static str) -> Limit {
    Limit { name, value: format!("{value:?}"), unit, meaning }
}

macro_rules! limits {
    ($($(#[doc = $doc:literal])+ $name:ident: $type:ty = $value:expr, $unit:literal;)+) => {
        $($(#[doc = $doc])+ pub const $name: $type = $value;)+

        /// Every constant, in the order of this file.
        pub fn table() -> Vec<Limit> {
            vec![$(row(stringify!($name), &$name, $unit, concat!($($doc),+))),+]
        }
    };
}

limits! {
    /// Weight of a sample above the average in the estimate of a source. Chosen together with
    /// `OUTLIER_RATIO` so that three slow answers in a row double the estimate and a single one does not.
    SAMPLE_WEIGHT_UP: f64 = 0.3, "share";
    /// Weight of a sample below the average. More than `SAMPLE_WEIGHT_UP`, since a source that is wrongly
    /// taken for fast costs one read. Chosen.
    SAMPLE_WEIGHT_DOWN: f64 = 0.5, "share";
    /// Averages that one sample counts for at most: an outlier is not a load. Chosen.
    OUTLIER_RATIO: f64 = 4.0, "ratio";
    /// Time without a sample after which an estimate counts half, so that a source that was slow is tried
    /// again. Convention: the decay of peak-EWMA balancers (Finagle, tower).
    ESTIMATE_HALF_LIFE: Duration = Duration::from_secs(10), "time";
    /// Share of the difference by which the typical time of a source follows an average below it. Chosen:
    /// a few dozen answers find the lower end.
    TYPICAL_DOWN_SHARE: f64 = 1.0 / 16.0, "share";
    /// Time in which the typical time of a source doubles at most: a load of minutes is not taken for
    /// typical. Chosen.
    TYPICAL_DOUBLES: Duration = Duration::from_secs(60), "time";
    /// Doublings of the typical time at once at most; keeps the arithmetic finite after a long silence.
    TYPICAL_DOUBLINGS_MAX: f64 = 60.0, "count";
    /// Lowest typical time of a source. Below it are only answers from the same machine.
    TYPICAL_MIN: Duration = Duration::from_micros(50), "time";

    /// Longest time of one chunk that a peer's word counts for, whatever it tells. As `PEER_DEADLINE`: beyond
    /// it a peer is not waited for anyway.
    TOLD_TIME_MAX: Duration = Duration::from_secs(2), "time";
    /// Age from which on what a peer told is forgotten, so that one that is not asked for what it told is
    /// tried again. Chosen: three measurements of its agent.
    TOLD_AGE_MAX: Duration = Duration::from_secs(30), "time";

    /// Ratio of neighbouring bucket bounds of a latency histogram: a quantile is at most this factor too
    /// high. A matter of memory, not of tuning.
    LATENCY_BUCKET_RATIO: f64 = 1.2, "ratio";
    /// Upper bound of the first bucket. No fetch over a network is faster.
    LATENCY_FIRST_BUCKET: Duration = Duration::from_micros(50), "time";
    /// Buckets: with the ratio and the first bound they reach 20 s, beyond every deadline of a fetch.
    LATENCY_BUCKETS: usize = 72, "count";
    /// Samples at which all counts are halved, so that old samples fade. Chosen: some ten samples lie
    /// above the p99.
    LATENCY_SAMPLES_MAX: u32 = 1024, "samples";
    /// Samples before the p99 of a peer is used. Chosen: with fewer it is the slowest of them.
    LATENCY_SAMPLES_MIN: u32 = 32, "samples";
    /// Age of the last answer from which on a peer's latency is not reported any more. Chosen: longer than
    /// the policy service's interval, shorter than a working day's change of load.
    LATENCY_AGE_MAX: Duration = Duration::from_secs(600), "time";

    /// Typical time of a chunk over a full link, default of the setting `slow_fetch`: some ten times what
    /// 64 KiB take over an idle link of 1 Gbit/s (0.52 ms).
    SLOW_FETCH: Duration = Duration::from_millis(5), "time";
    /// Divisor of the difference by which the host's typical fetch follows a faster one. Chosen: near the
    /// lower end of what is seen.
    HOST_TYPICAL_DOWN_DIVISOR: u64 = 8, "divisor";
    /// Divisor of the difference by which the host's typical fetch follows a slower one. Far more than
    /// `HOST_TYPICAL_DOWN_DIVISOR`, so that load is not taken for typical. Chosen.
    HOST_TYPICAL_UP_DIVISOR: u64 = 512, "divisor";
    /// Typical fetches that are added wherever times are compared, at most `slow_fetch`. Chosen: the
    /// jitter of an idle link stays within.
    SLACK_TYPICAL_RATIO: u32 = 2, "ratio";
    /// Least part of `slow_fetch` that is added wherever times are compared. Chosen.
    SLACK_MIN_RATIO: f64 = 0.2, "share";
    /// Times the origin from which on a peer is slow: slower than one that reads the chunk from the origin
    /// first. The quarter is for the peer's own part of the way. Chosen.
    OVERLOAD_ORIGIN_RATIO: f64 = 1.25, "ratio";
    /// Times the median of this host's peers from which on a peer stands out. A full link of one's own
    /// makes all of them slow, and so does a storm. Chosen; with it the origin gives 317 instead of 300
    /// chunks in the even storm of the read path's page.
    STANDS_OUT_RATIO: f64 = 4.0, "ratio";
    /// Time for which the samples of a peer that stands out are slow before it counts as overloaded. A
    /// queueing burst of a boot storm is over sooner: 32 hosts that ask one owner for a span of 16 chunks
    /// keep its link of 1 Gbit/s busy for 0.27 s.
    TRANSIENT_AFTER: Duration = Duration::from_millis(300), "time";
    /// Times `slow_fetch` that `TRANSIENT_AFTER` lasts at least: over slow links queueing bursts last
    /// longer. It equals `TRANSIENT_AFTER` at the default of `slow_fetch`.
    TRANSIENT_AFTER_FETCHES: u32 = 60, "ratio";
    /// Slow samples in a row before a peer counts as slow at all. Chosen: three may be one burst.
    SLOW_SAMPLES_MIN: u32 = 4, "samples";
    /// Time of slow samples after which an overload is sustained: it counts where all peers are slow too,
    /// and others may read the origin in the peer's place. A boot of three seconds loses a third of its
    /// time by it (table in the read path's page); sooner, a storm fills the origin.
    SUSTAINED_AFTER: Duration = Duration::from_secs(1), "time";
    /// Times `slow_fetch` that `SUSTAINED_AFTER` lasts at least. It equals `SUSTAINED_AFTER` at the default.
    SUSTAINED_AFTER_FETCHES: u32 = 200, "ratio";
    /// Good samples in a row that end a sustained overload. The first answer of a burst over a full link
    /// comes early, so one says nothing. Chosen.
    RECOVERY_SAMPLES: u32 = 4, "samples";
    /// Time without a sample after which a peer's slow samples are forgotten. As `ESTIMATE_HALF_LIFE`.
    SAMPLE_GAP_MAX: Duration = Duration::from_secs(10), "time";
    /// Times the limit of slowness from which on an overload is severe: the origin takes the peers' place
    /// however slow it is itself. Chosen.
    SEVERE_RATIO: f64 = 4.0, "ratio";
    /// Times its typical time up to which the origin is well, and may take the place of overloaded peers.
    /// Chosen: in a storm it is above, and must not be asked.
    ORIGIN_TYPICAL_RATIO: f64 = 2.0, "ratio";
    /// Age of the last answer up to which a peer is asked as the alternate source for a transiently
    /// overloaded one. As `ESTIMATE_HALF_LIFE`.
    ALTERNATE_ANSWER_AGE: Duration = Duration::from_secs(10), "time";
    /// Chunks that one host reads at a time from the origin in place of overloaded peers. Chosen: as many
    /// as it asks of one peer.
    ORIGIN_READS_MAX: usize = 64, "chunks";
    /// Chunks of slow peers that are kept at once, lest they be fetched a second time: 64 MiB at the
    /// default chunk. Chosen.
    KEEP_TOKENS_MAX: f64 = 1024.0, "chunks";
    /// Chunks of slow peers that are kept per second: 4 MiB/s at the default chunk, which no disk notices.
    /// Chosen.
    KEEP_PER_SECOND: f64 = 64.0, "1/s";
    /// Time between two probes of an overloaded peer at first; doubles. Chosen: a peer that recovers is
    /// found within a few boots' reads.
    PROBE_MIN: Duration = Duration::from_millis(100), "time";
    /// Longest time between two probes of an overloaded peer: one chunk a second is no load.
    PROBE_MAX: Duration = Duration::from_secs(1), "time";

    /// Age up to which the overview of all sources is used. Chosen: taking it anew locks each peer once,
    /// and 50 times a second costs nothing.
    OVERVIEW_AGE_MAX: Duration = Duration::from_millis(20), "time";
    /// Age of the last answer up to which a source tells something of this host's own link. Chosen.
    SOURCE_AGE_MAX: Duration = Duration::from_secs(2), "time";
    /// Slow sources before this host's own link is to blame. Chosen: two may be slow by chance.
    OWN_LINK_SOURCES_MIN: usize = 3, "sources";
    /// Slow sources that suffice where no others are known.
    OWN_LINK_SOURCES_ALL: usize = 2, "sources";
    /// Times its typical time from which on a source is slow for the overview. Chosen.
    OWN_LINK_RATIO: f64 = 2.0, "ratio";
    /// Part of `slow_fetch` below which no source is slow for the overview. Chosen: 2 ms at the default,
    /// four times an idle link of 1 Gbit/s. (`slow_fetch` itself is the upper bound: a link may have been
    /// full from the start.)
    OWN_LINK_SLOW_MIN_RATIO: f64 = 0.4, "share";
    /// Time for which this host's own link stays to blame while no source says otherwise. As
    /// `ESTIMATE_HALF_LIFE`.
    OWN_LINK_MEMORY: Duration = Duration::from_secs(10), "time";
    /// Times that the origin is faster than the median peer from which on it stands out, and the own link,
    /// over which it comes too, is not to blame. As `STANDS_OUT_RATIO`.
    OWN_LINK_ORIGIN_RATIO: f64 = 4.0, "ratio";
    /// The same ratio where the origin takes less than `slow_fetch`, which over a full link it cannot.
    /// Chosen.
    OWN_LINK_FAST_ORIGIN_RATIO: f64 = 2.5, "ratio";
    /// Time between two chunks that a host behind a slow link reads from an origin of which it knows
    /// nothing new. As `SOURCE_AGE_MAX`.
    ORIGIN_TRIAL_INTERVAL: Duration = Duration::from_secs(2), "time";
    /// Divisor of a guest's remaining time that a peer gets over a slow link of one's own: asked again
    /// elsewhere the chunk would come twice. Half is left for the second source.
    OWN_LINK_PEER_TIME_DIVISOR: u32 = 2, "divisor";

    /// Share of its bytes that a chunk is taken to have compressed, before any was seen. Measured: 0.464 of the
    /// chunks of a recorded boot with LZ4; rounded up.
    COMPRESSION_RATIO_UNSEEN: f64 = 0.5, "share";
    /// Time that compressing a chunk and decompressing it takes, before it was measured. Measured: LZ4 takes 0.1
    /// to 0.2 ms for 64 KiB, and 0.03 ms back.
    COMPRESSION_TIME_UNSEEN: Duration = Duration::from_micros(200), "time";
    /// Share of the processors' time that must be idle for anything to be compressed. Chosen: what guests do
    /// comes first.
    COMPRESSION_CPU_IDLE_MIN: f64 = 0.2, "share";

    /// Share of the fetches that may be hedged, default of the setting `hedge_share`, per cent. Convention:
    /// Dean and Barroso, *The Tail at Scale*, 2013: a hedge after the p95 costs 5 % more load.
    HEDGE_SHARE_PERCENT: u32 = 5, "%";
    /// Hedges that may be saved up. Chosen: about one burst of a guest's reads.
    HEDGE_TOKENS_MAX: f64 = 16.0, "hedges";
    /// Hedges at the start, so that the first reads of a host are not at the mercy of one peer. Chosen.
    HEDGE_TOKENS_INITIAL: f64 = 4.0, "hedges";
    /// Shortest time before a hedge, default of the setting `hedge_min`. Chosen: some 40 chunk times at
    /// 1 Gbit/s.
    HEDGE_MIN: Duration = Duration::from_millis(20), "time";
    /// Longest time before a hedge, default of the setting `hedge_max`. Chosen: half of `PEER_DEADLINE`.
    HEDGE_MAX: Duration = Duration::from_secs(1), "time";
    /// Times the origin after which a source is late, whatever its own p99, while the origin is well.
    /// Chosen.
    HEDGE_ORIGIN_RATIO: f64 = 4.0, "ratio";
    /// Times the peer's p99 after which a host behind a slow link asks a second time. Chosen.
    RESCUE_P99_RATIO: u32 = 2, "ratio";
    /// Divisor of the time until the deadline after which it does at the latest.
    RESCUE_DEADLINE_DIVISOR: u32 = 2, "divisor";

    /// Retries that may be saved up. Chosen: ten seconds of `RETRY_PER_SECOND`.
    RETRY_TOKENS_MAX: f64 = 50.0, "retries";
    /// Retries per first attempt that refill the budget. Convention: Finagle's budget has 20 %, gRPC's
    /// 10 %.
    RETRY_RATIO: f64 = 0.1, "share";
    /// Retries per second that are allowed however few first attempts there are. Convention: Finagle has
    /// ten.
    RETRY_PER_SECOND: f64 = 5.0, "1/s";
    /// Retries that each chunk from the origin refills: no more second attempts than answers.
    RETRY_PER_SUCCESS: f64 = 1.0, "retries";
    /// Wait before the first retry of a read; doubles, with jitter. Chosen.
    BACKOFF_MIN: Duration = Duration::from_millis(50), "time";
    /// Longest wait between two rounds of one read. Chosen: a guest's deadline has room for several.
    BACKOFF_MAX: Duration = Duration::from_secs(2), "time";
    /// Wait before a chunk that the origin does not have is looked for again; doubles to `BACKOFF_MAX`.
    /// Chosen: a manifest that names another place comes by the agent's pass, not within milliseconds.
    MISSING_BACKOFF_MIN: Duration = Duration::from_secs(1), "time";
    /// Doublings of any back-off at most; keeps the arithmetic finite.
    BACKOFF_DOUBLINGS_MAX: u32 = 20, "count";

    /// Time that one peer may take to answer, default of the setting `peer_deadline`. Chosen: long enough
    /// for an owner that reads a cold chunk from a busy origin.
    PEER_DEADLINE: Duration = Duration::from_secs(2), "time";
    /// Part of its time after which a fetch without an answer is silence. The rest is for the answer that a
    /// peer gives just before the deadline.
    SILENCE_SHARE: f32 = 0.9, "share";
    /// Failures in a row that open a peer's breaker. Chosen: another peer or the origin takes its place at
    /// once, so one suffices.
    PEER_FAILURES_MAX: u32 = 1, "failures";
    /// First time for which a peer that is dead or stalled is left alone; doubles, with jitter. Chosen.
    PEER_OPEN_MIN: Duration = Duration::from_millis(250), "time";
    /// Longest time for which a peer that is dead or stalled is left alone. Chosen: a host that restarts is
    /// used again within it.
    PEER_OPEN_MAX: Duration = Duration::from_secs(10), "time";
    /// Time for which a peer that sent wrong content is left alone, default of the setting `lie_penalty`.
    /// Chosen: its disk or memory does not heal by itself.
    CORRUPT_PEER_OPEN: Duration = Duration::from_secs(60), "time";
    /// Failures in a row that open the breaker of a connection to a peer: a second attempt at once would
    /// fail the same way.
    CONNECTION_FAILURES_MAX: u32 = 1, "failures";
    /// First time for which no connection to a peer is tried, default of the setting `backoff_min`. Chosen.
    CONNECTION_OPEN_MIN: Duration = Duration::from_millis(100), "time";
    /// Longest time for which no connection to a peer is tried, default of `backoff_max`. As
    /// `PEER_OPEN_MAX`.
    CONNECTION_OPEN_MAX: Duration = Duration::from_secs(10), "time";
    /// Failed calls in a row that open the origin's breaker. Convention: Envoy's `consecutive_5xx`. More
    /// than a peer's, since nothing takes the origin's place.
    ORIGIN_FAILURES_MAX: u32 = 5, "failures";
    /// First time for which a failing origin is left alone; doubles, with jitter. Chosen.
    ORIGIN_OPEN_MIN: Duration = Duration::from_millis(250), "time";
    /// Longest time for which a failing origin is left alone. Half of a peer's: nothing takes its place.
    ORIGIN_OPEN_MAX: Duration = Duration::from_secs(5), "time";

    /// Peers asked for one chunk before the origin, default of the setting `candidates_max`. Convention:
    /// the power of two choices (Mitzenmacher, 2001).
    CANDIDATES: usize = 2, "peers";
    /// Peers asked for one chunk in one round at most, whatever the ring offers.
    CANDIDATES_MAX: usize = 8, "peers";

    /// Kinds of boot of one image at most: a first boot, later ones, and one more. Chosen.
    READ_AHEAD_KINDS_MAX: usize = 3, "kinds";
    /// Chunks of one kind of boot at most: 4 GiB at the default chunk, several times what any guest reads
    /// until it is up; 512 KiB of memory.
    READ_AHEAD_KIND_CHUNKS_MAX: usize = 65_536, "chunks";
    /// Bytes that may be ordered ahead and unread before read-ahead got anything right: what a wrong profile
    /// costs a host. Nicolae and Rafique (collective content exchange, section 3) bound what is unmatched in
    /// the same way. In the simulator's storm a wrong profile makes boots 1.5 % longer, with 4 MiB 3.5 %; a
    /// right one is as good with 2, 4 and 16 MiB within 1.2 %.
    READ_AHEAD_FLOOR: u64 = 2_097_152, "bytes";
    /// Chunks next to the cursor that are ordered in the order of the boot: the guest asks for them within
    /// a few reads, whatever other hosts order. Chosen: two reads of 128 KiB.
    READ_AHEAD_IN_ORDER: u32 = 4, "chunks";
    /// Reads by which one kind of boot leads the others, so that what it alone names is ordered. Chosen:
    /// kinds differ by more than a third of their chunks, so four reads in a row are seldom chance.
    READ_AHEAD_LEAD_HITS: u32 = 4, "reads";
    /// Time for which a host's own link, at what is free of it, may be busy with what it ordered ahead: a
    /// demand waits behind it at most as long. Chosen: many round trips, and no more than one slow read
    /// of a disk.
    READ_AHEAD_IN_FLIGHT: Duration = Duration::from_millis(20), "time";
    /// Chunks that may be ordered ahead and under way over any link: one on its way while one is asked
    /// for.
    READ_AHEAD_IN_FLIGHT_MIN: u64 = 2, "chunks";
    /// Bytes that may be ordered ahead and under way where nobody tells what is free of the link:
    /// `READ_AHEAD_IN_FLIGHT` at 840 Mbit/s. Chosen.
    READ_AHEAD_IN_FLIGHT_UNTOLD: u64 = 2_097_152, "bytes";
}
