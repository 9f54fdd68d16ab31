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
    /// Outcome of a read of a front end.
    ReadResult {
        Ok = "ok", Deadline = "deadline", Corrupt = "corrupt", Missing = "missing",
        Other = "other",
    }
}

outcomes! {
    /// Outcome of a fetch from a peer.
    PeerFetch {
        Ok = "ok", Corrupt = "corrupt", Refused = "refused", NotFound = "not_found",
        Unavailable = "unavailable", Timeout = "timeout", Dead = "dead", Rejected = "rejected",
        Overtaken = "overtaken",
    }
}

outcomes! {
    /// Reason for which a candidate was not asked.
    PeerSkip { Distance = "distance", Penalty = "penalty", Busy = "busy", Loaded = "loaded", }
}

outcomes! {
    /// Outcome of a hedge.
    Hedge { Started = "started", Won = "won", Denied = "denied", Rescued = "rescued", }
}

outcomes! {
    /// Source that was asked in place of an overloaded peer ("held": the next in line, for what it
    /// holds); or the origin, asked by a host whose own link is slow, to learn how it does, or by one
    /// that prefers short boots, since it is faster.
    Bypass {
        Held = "held", Peer = "peer", Origin = "origin", Denied = "denied", Trial = "trial",
        Faster = "faster",
    }
}

outcomes! {
    /// Source of a chunk that another host owned in a ring that is remembered: that host; the
    /// origin although that host may have it; the origin because nobody had it.
    Remapped { PreviousOwner = "previous_owner", Origin = "origin", Cold = "cold", }
}

outcomes! {
    /// Outcome of the deduplication of a cold chunk.
    Deduplication {
        Demoted = "demoted", TooFew = "too_few", Ours = "ours", Wanted = "wanted",
        Unplaced = "unplaced",
    }
}

outcomes! {
    /// Outcome of reading a manifest that was not in memory.
    ManifestLoad { Read = "read", Damaged = "damaged", Failed = "failed", }
}

outcomes! {
    /// Reason for which pages of a manifest are fetched from the origin: somebody waits for one, or the
    /// manifest is to be whole on this host.
    PageFetch { Demand = "demand", Background = "background", }
}

outcomes! {
    /// Outcome of a call of the origin.
    OriginCall {
        Ok = "ok", NotFound = "not_found", Damaged = "damaged", Unavailable = "unavailable",
        Overloaded = "overloaded", Internal = "internal",
    }
}

outcomes! {
    /// Outcome of a chunk read from the origin.
    OriginChunk { Ok = "ok", Corrupt = "corrupt", Failed = "failed", }
}

outcomes! {
    /// Reason for which a miss was not sent to the origin.
    OriginRefusal { Down = "down", Full = "full", Timeout = "timeout", }
}

outcomes! {
    /// Answer to the request to retry.
    Retry { Allowed = "allowed", Denied = "denied", }
}

outcomes! {
    /// Outcome of a peer's request.
    Serve {
        Store = "store", Recent = "recent", Peer = "peer", PreviousOwner = "previous_owner",
        Origin = "origin", NotFound = "not_found", Overloaded = "overloaded",
        Draining = "draining", Invalid = "invalid", Failed = "failed",
    }
}

outcomes! {
    /// Outcome of a chunk that was to be kept.
    Insert {
        New = "new", Present = "present", Refused = "refused", Failed = "failed",
        Dropped = "dropped",
    }
}

outcomes! {
    /// Outcome of a chunk that was prefetched.
    Prefetch { Issued = "issued", Used = "used", Wasted = "wasted", Denied = "denied", }
}

outcomes! {
    /// Fate of bytes that are read ahead along the profile of a boot: they were ordered; they were here when
    /// they were read; they were on their way; they were not read.
    AheadBytes { Ordered = "ordered", Used = "used", Late = "late", Wasted = "wasted", }
}

outcomes! {
    /// Fate of a hint: it was sent; it was news; a guest had read the chunk; a guest read what was fetched on
    /// it; it was heard before; it is of no exchange of this host; the image has no such chunk, or too many
    /// are known.
    HintFate {
        Sent = "sent", New = "new", Late = "late", Used = "used", Repeated = "repeated",
        Strange = "strange", Refused = "refused",
    }
}

outcomes! {
    /// Outcome of a request to take part in an exchange: of this host's own, and of those of others.
    JoinFate { Joined = "joined", Failed = "failed", Served = "served", Refused = "refused", }
}

outcomes! {
    /// Outcome of a chunk of a preload.
    PreloadChunk { Fetched = "fetched", Present = "present", Retried = "retried", Failed = "failed", }
}

outcomes! {
    /// End of a preload.
    PreloadEnd { Done = "done", Failed = "failed", Stopped = "stopped", }
}

outcomes! {
    /// Outcome of a hint to preload.
    PreloadHint {
        Started = "started", Busy = "busy", Complete = "complete", Unknown = "unknown",
        Off = "off",
    }
}

outcomes! {
    /// Outcome of recording the order of a boot: it was recorded; it read next to nothing; as many were
    /// recorded already; it was, and nobody took it.
    BootOutcome { Recorded = "recorded", Short = "short", Refused = "refused", Lost = "lost", }
}

outcomes! {
    /// Outcome of a read of the chunk store's disk, which alone has the chunk: it was read; it was
    /// not what was written; the disk failed; it did not answer in time; it was not asked.
    StoreRead {
        Read = "read", Part = "part", Lost = "lost", Failed = "failed", Late = "late", Skipped = "skipped",
    }
}

outcomes! {
    /// Priority of those who joined a flight.
    Join {
        Guest = "guest", Peer = "peer", Prefetch = "prefetch", Ahead = "ahead", Preload = "preload",
    }
}
