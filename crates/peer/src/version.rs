//! Protocol versions and features, and how two hosts agree on them.
//!
//! A version is a promise about frame layouts; a feature bit adds messages to a version. Both sides
//! state what they know in HELLO, whose layout never changes, and use the highest common version
//! and the intersection of the features. To bump: add a constant with its history line, extend
//! the golden file and the table in `reference/protocols/peer`.

/// Version 1, the first: HELLO, PING, PONG, GET, DATA, STATUS, GOODBYE.
pub const VERSION_1: u16 = 1;
/// Oldest version that this build speaks.
pub const VERSION_MIN: u16 = VERSION_1;
/// Newest version that this build speaks.
pub const VERSION_MAX: u16 = VERSION_1;
/// HOLDS and HELD: which of some chunks a host keeps.
pub const FEATURE_HOLDS: u64 = 1;
/// A flag of GET that welcomes a compressed answer, and COMPRESSED.
pub const FEATURE_COMPRESSED: u64 = 2;
/// Flags of GET for the class of a request, and CLASS, which changes it or cancels the request.
pub const FEATURE_CLASSES: u64 = 4;
/// The server's load in the header of DATA, COMPRESSED, HELD and PONG.
pub const FEATURE_LOAD: u64 = 8;
/// JOIN, JOINED, HINT and HINTED: the exchange of what hosts that boot one image miss.
pub const FEATURE_HINTS: u64 = 16;
/// GROUP and GROUPED: messages of multicast preloads.
pub const FEATURE_GROUPS: u64 = 32;
/// Features that this build knows.
pub const FEATURES: u64 = FEATURE_HOLDS
    | FEATURE_COMPRESSED
    | FEATURE_CLASSES
    | FEATURE_LOAD
    | FEATURE_HINTS
    | FEATURE_GROUPS;

/// An inclusive range of protocol versions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VersionRange {
    /// Oldest version.
    pub min: u16,
    /// Newest version; at least `min`.
    pub max: u16,
}

impl VersionRange {
    /// Versions that this build speaks.
    pub const OURS: VersionRange = VersionRange { min: VERSION_MIN, max: VERSION_MAX };

    /// Returns the newest version that both ranges hold, or `None` when they do not meet.
    pub fn agree(self, other: VersionRange) -> Option<u16> {
        let version = self.max.min(other.max);
        (version >= self.min.max(other.min)).then_some(version)
    }
}

impl std::fmt::Display for VersionRange {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}-{}", self.min, self.max)
    }
}

#[cfg(test)]
mod tests {
    use super::VersionRange;

    #[test]
    fn test_agree_overlapping_ranges_takes_the_newest() {
        let range = |min, max| VersionRange { min, max };
        for (ours, theirs, agreed) in [
            (range(1, 1), range(1, 1), Some(1)),
            (range(1, 3), range(2, 5), Some(3)),
            (range(2, 5), range(1, 3), Some(3)),
            (range(1, 1), range(2, 3), None),
            (range(4, 6), range(1, 3), None),
        ] {
            assert_eq!(ours.agree(theirs), agreed, "{ours} {theirs}");
        }
    }
}
