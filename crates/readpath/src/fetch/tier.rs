//! Sources of the bytes of a read.

/// The source that answered for a chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Tier {
    /// The manifest says that every byte is zero.
    Zero,
    /// Memory: obtained a moment ago, or waiting to be written to the chunk store.
    Recent,
    /// The chunk store of this host.
    Store,
    /// A peer that the ring names.
    Peer,
    /// The owner of the ring's previous generation.
    PreviousOwner,
    /// The origin.
    Origin,
}

impl Tier {
    /// Every tier, nearest first.
    pub const ALL: [Tier; 6] =
        [Tier::Zero, Tier::Recent, Tier::Store, Tier::Peer, Tier::PreviousOwner, Tier::Origin];

    /// The name in metrics and traces.
    pub const fn as_str(self) -> &'static str {
        match self {
            Tier::Zero => "zero",
            Tier::Recent => "recent",
            Tier::Store => "store",
            Tier::Peer => "peer",
            Tier::PreviousOwner => "previous_owner",
            Tier::Origin => "origin",
        }
    }

    pub(crate) const fn index(self) -> usize {
        self as usize
    }
}
