//! Sketch of a store's content in 2 KiB: enough to tell how much two hosts have in common.

/// The smallest digest prefixes of a set of chunks.
///
/// Source: Broder, "On the resemblance and containment of documents", SEQUENCES 1997 (bottom-k
/// sketch). Digests are uniform, so their own first eight bytes are the hash. With k = 256 the
/// similarity of two stores is estimated within about 1/16 (one standard deviation, at worst).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sketch {
    /// Chunks in the store.
    pub count: u64,
    /// The smallest prefixes (big-endian numbers), in ascending order; all of them where there are
    /// fewer than were asked for.
    pub smallest: Vec<u64>,
}
