//! The label values of the metrics: what can become of each thing that is counted.

macro_rules! outcomes {
    ($(#[$meta:meta])* $name:ident { $($variant:ident = $text:literal,)+ }) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(crate) enum $name { $($variant,)+ }

        impl $name {
            /// The label values, in the order of the variants.
            pub(crate) const NAMES: &'static [&'static str] = &[$($text,)+];

            pub(crate) const fn index(self) -> usize {
                self as usize
            }
        }
    };
}

outcomes! {
    /// What became of a read of a front end.
    ReadResult {
        Ok = "ok", Deadline = "deadline", Corrupt = "corrupt", Missing = "missing",
        Other = "other",
    }
}

outcomes! {
    /// What became of a fetch from a peer.
    PeerFetch {
        Ok = "ok", Corrupt = "corrupt", Refused = "refused", NotFound = "not_found",
        Unavailable = "unavailable", Timeout = "timeout", Dead = "dead", Rejected = "rejected",
        Overtaken = "overtaken",
    }
}

outcomes! {
    /// Why a candidate was not asked.
    PeerSkip { Distance = "distance", Penalty = "penalty", Busy = "busy", Loaded = "loaded", }
}

outcomes! {
    /// What became of a hedge.
    Hedge { Started = "started", Won = "won", Denied = "denied", Rescued = "rescued", }
}

outcomes! {
    /// Who was asked in place of an overloaded peer ("held": the next in line, for what it holds); or the
    /// origin by a host whose own link is slow, to learn how it does.
    Bypass { Held = "held", Peer = "peer", Origin = "origin", Denied = "denied", Trial = "trial", }
}

outcomes! {
    /// Where a chunk came from that another host owned in a ring that is remembered: from there; from
    /// the origin although it may be there; from the origin because nobody had it.
    Remapped { PreviousOwner = "previous_owner", Origin = "origin", Cold = "cold", }
}

outcomes! {
    /// What became of a cold chunk that the deduplication looked at.
    Deduplication {
        Demoted = "demoted", TooFew = "too_few", Ours = "ours", Wanted = "wanted",
        Unplaced = "unplaced",
    }
}

outcomes! {
    /// What became of a manifest that was not in memory and was to be read.
    ManifestLoad { Read = "read", Damaged = "damaged", Failed = "failed", }
}

outcomes! {
    /// What became of a call of the origin.
    OriginCall {
        Ok = "ok", NotFound = "not_found", Damaged = "damaged", Unavailable = "unavailable",
        Overloaded = "overloaded", Internal = "internal",
    }
}

outcomes! {
    /// What became of a chunk read from the origin.
    OriginChunk { Ok = "ok", Corrupt = "corrupt", Failed = "failed", }
}

outcomes! {
    /// Why a miss was not sent to the origin.
    OriginRefusal { Down = "down", Full = "full", Timeout = "timeout", }
}

outcomes! {
    /// What became of the request to retry.
    Retry { Allowed = "allowed", Denied = "denied", }
}

outcomes! {
    /// What became of a peer's request.
    Serve {
        Store = "store", Recent = "recent", Peer = "peer", PreviousOwner = "previous_owner",
        Origin = "origin", NotFound = "not_found", Overloaded = "overloaded",
        Draining = "draining", Invalid = "invalid", Failed = "failed",
    }
}

outcomes! {
    /// What became of a chunk that was to be kept.
    Insert {
        New = "new", Present = "present", Refused = "refused", Failed = "failed",
        Dropped = "dropped",
    }
}

outcomes! {
    /// What became of a chunk that was prefetched.
    Prefetch { Issued = "issued", Used = "used", Wasted = "wasted", Denied = "denied", }
}

outcomes! {
    /// What became of a chunk of a preload.
    PreloadChunk { Fetched = "fetched", Present = "present", Retried = "retried", Failed = "failed", }
}

outcomes! {
    /// How a preload ended.
    PreloadEnd { Done = "done", Failed = "failed", Stopped = "stopped", }
}

outcomes! {
    /// What became of a hint to preload.
    PreloadHint {
        Started = "started", Busy = "busy", Complete = "complete", Unknown = "unknown",
        Off = "off",
    }
}

outcomes! {
    /// What became of a look for a chunk that is on the chunk store's disk only: it was read; it was
    /// not what was written; the disk failed; it did not answer in time; it was not asked.
    StoreRead {
        Read = "read", Part = "part", Lost = "lost", Failed = "failed", Late = "late", Skipped = "skipped",
    }
}

outcomes! {
    /// Who joined a flight.
    Join { Guest = "guest", Peer = "peer", Prefetch = "prefetch", Preload = "preload", }
}
