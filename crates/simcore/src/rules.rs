//! Settings of the behaviour of hosts.

/// A value of a rule that is given as a number.
trait Setting {
    fn of_number(number: f64) -> Self;
}

impl Setting for f64 {
    fn of_number(number: f64) -> f64 {
        number
    }
}

impl Setting for u32 {
    fn of_number(number: f64) -> u32 {
        number as u32
    }
}

impl Setting for bool {
    fn of_number(number: f64) -> bool {
        number != 0.0
    }
}

/// Policy of keeping a chunk that a peer owns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Keep {
    /// At its owner only.
    Never,
    /// The second time that it came.
    SecondTouch,
    /// Always.
    Always,
}

impl Setting for Keep {
    fn of_number(number: f64) -> Keep {
        match number as u32 {
            0 => Keep::Never,
            1 => Keep::SecondTouch,
            _ => Keep::Always,
        }
    }
}

/// Policy of asking peers to compress.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Compress {
    /// Never.
    Never,
    /// If the asking host's link or the peer's is full.
    WhereSlow,
    /// Always.
    Always,
}

impl Setting for Compress {
    fn of_number(number: f64) -> Compress {
        match number as u32 {
            0 => Compress::Never,
            1 => Compress::WhereSlow,
            _ => Compress::Always,
        }
    }
}

/// Policy of eviction from a store that is full.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Eviction {
    /// The oldest chunk.
    Fifo,
    /// The chunk that S3-FIFO chooses.
    S3Fifo,
}

impl Setting for Eviction {
    fn of_number(number: f64) -> Eviction {
        if number == 0.0 { Eviction::Fifo } else { Eviction::S3Fifo }
    }
}

/// Part of whoever knows all links in the choice of sources.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Oracle {
    /// None.
    Off,
    /// It is compared with what is chosen.
    Measures,
    /// It chooses.
    Chooses,
}

impl Setting for Oracle {
    fn of_number(number: f64) -> Oracle {
        match number as u32 {
            0 => Oracle::Off,
            1 => Oracle::Measures,
            _ => Oracle::Chooses,
        }
    }
}

/// Order in which hints of a host's misses reach others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HintOrder {
    /// They are not told.
    Nowhere,
    /// Each host passes them on to the next.
    Ring,
    /// Each host passes them on to some next ones.
    KRing,
    /// Each host passes them on to some of its own.
    Tree,
}

impl Setting for HintOrder {
    fn of_number(number: f64) -> HintOrder {
        match number as u32 {
            0 => HintOrder::Nowhere,
            1 => HintOrder::Ring,
            2 => HintOrder::KRing,
            _ => HintOrder::Tree,
        }
    }
}

macro_rules! rules {
    ($($(#[doc = $doc:literal])+ $name:ident: $kind:ty,)*) => {
        /// Behaviour of hosts: the read path's settings, in seconds and bytes.
        #[derive(Clone, Debug)]
        pub struct Rules {
            $($(#[doc = $doc])+ pub $name: $kind,)*
        }

        impl Rules {
            /// Names of the rules.
            pub const NAMES: &[&str] = &[$(stringify!($name)),*];

            /// Takes each rule from a function that knows it by its name, as a number.
            pub fn read<E>(
                mut number_of: impl FnMut(&'static str) -> Result<f64, E>,
            ) -> Result<Rules, E> {
                Ok(Rules { $($name: Setting::of_number(number_of(stringify!($name))?),)* })
            }
        }
    };
}

rules! {
    /// Of a chunk.
    chunk_bytes: f64,
    /// Bytes on the wire per byte of a chunk.
    wire_share: f64,
    /// Longest time that rates hold; 0: until the next event, which is exact.
    quantum: f64,
    /// Share of a link's chunks that goes to who asked first; the rest is shared fairly.
    in_order: f64,
    /// Of a read that needs no network.
    local_latency: f64,
    /// Before a peer's answer begins.
    peer_latency: f64,
    /// Before the origin's answer begins.
    origin_latency: f64,
    /// Of a connection to a peer.
    connect_timeout: f64,
    /// Of a fetch from a peer.
    peer_deadline: f64,
    /// Of a fetch from the origin.
    origin_deadline: f64,
    /// Of a read; a round of sources is repeated until then.
    read_deadline: f64,
    /// True if hosts have a chunk store at all; otherwise each read goes to the origin as it is.
    is_cached: bool,
    /// True if hosts ask each other.
    uses_peers: bool,
    /// Policy of keeping a peer's chunk.
    keep: Keep,
    /// Policy of eviction from a store that is full.
    eviction: Eviction,
    /// Copies of a chunk in the pool beyond which cold ones leave first; 0: they are not counted.
    copies_max: u32,
    /// Chunks obtained last that a host has whether it keeps them or not.
    recent_chunks: u32,
    /// Peers of a round.
    candidates_max: u32,
    /// Rings before the one in use whose owners are asked.
    previous_rings: u32,
    /// True if a second source is asked beside one that is late.
    hedge_enabled: bool,
    /// Before a hedge, at least.
    hedge_min: f64,
    /// Before a hedge, at most.
    hedge_max: f64,
    /// Hedges per fetch from a peer, in full hundredths.
    hedge_share: f64,
    /// True if overloaded peers are passed over, and hedges bounded by what the origin takes.
    load_aware: bool,
    /// Time of a chunk over a link that is full.
    slow_fetch: f64,
    /// True if a host that finds all its sources slow takes its own link for full.
    own_link: bool,
    /// True if the origin is asked before peers where it is faster, else if its bytes count more.
    boot_time: bool,
    /// Part of whoever knows all links in the choice.
    oracle: Oracle,
    /// Policy of asking peers to compress.
    compress: Compress,
    /// Part of a chunk that is left when it is sent compressed, on average.
    compress_ratio: f64,
    /// Time of compressing and decompressing together.
    compress_latency: f64,
    /// Part of a chunk that the origin holds of it.
    origin_ratio: f64,
    /// Answers that a host writes at a time, each whole; 0: all of them, side by side.
    sender_answers: u32,
    /// Time after which an answer that its receiver holds up gives its turn away.
    sender_stall: f64,
    /// Bytes of an answer that are beyond recall in a socket: its window and what it buffers.
    socket_bytes: f64,
    /// True if what somebody waits for goes before what is fetched ahead, wherever chunks queue.
    classes: bool,
    /// Reads of the origin that a host has under way; 0: all of them.
    origin_reads: u32,
    /// Bytes fetched ahead and not read yet that a host and an open image have room for.
    ahead_budget: f64,
    /// Order in which hosts hear what others miss of an image.
    exchange: HintOrder,
    /// Hosts to which each passes a hint on, in a k-ring or a tree.
    exchange_fan_out: u32,
    /// Bytes fetched on hints and not read yet beyond which a host sends and follows none.
    exchange_unmatched: f64,
    /// True if extra traffic shares links with chunks (TCP); else it takes what it wants (UDP).
    is_elastic: bool,
    /// Between two reports of a host.
    report_interval: f64,
    /// Part of it by which a report may come early.
    report_jitter: f64,
    /// Between two samples of all hosts' traffic.
    sample_interval: f64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_are_read_by_their_names() {
        let rules = Rules::read(|name| match name {
            "keep" => Ok(1.0),
            "load_aware" => Ok(1.0),
            "candidates_max" => Ok(2.0),
            _ => Ok::<_, ()>(0.5),
        })
        .unwrap();
        assert_eq!((rules.keep, rules.candidates_max), (Keep::SecondTouch, 2));
        assert!(rules.load_aware);
        assert_eq!(rules.read_deadline, 0.5);
        let refused = Rules::read(|name| if name == "keep" { Err(name) } else { Ok(0.0) });
        assert_eq!(refused.unwrap_err(), "keep");
    }
}
