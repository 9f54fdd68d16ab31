//! State of a session at its sender; the page is `reference/state-machines/multicast-session`.

/// State of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SenderState {
    /// Members join; nothing is sent.
    Gathering,
    /// Sends chunks.
    Sending,
    /// Sends beacons only: reads wait on this host.
    Yielding,
    /// Sends nothing any more.
    Ended,
}

/// Reason for the end of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SessionEnd {
    /// Every chunk was sent.
    Done,
    /// Fewer members than a session is worth.
    Deserted,
    /// Fewer than half of the members hear the group: multicast does not work here.
    Deaf,
    /// More is lost than parity carries.
    Lossy,
    /// The key has encrypted as many packets as it may.
    KeyUsedUp,
    /// The data plane stops, or the socket fails.
    Stopped,
}

/// The transition table.
const TRANSITIONS: [(SenderState, SenderState); 6] = {
    use SenderState::{Ended, Gathering, Sending, Yielding};
    [
        (Gathering, Sending),
        (Gathering, Ended),
        (Sending, Yielding),
        (Sending, Ended),
        (Yielding, Sending),
        (Yielding, Ended),
    ]
};

impl SenderState {
    /// The word of the page.
    pub fn as_str(self) -> &'static str {
        match self {
            SenderState::Gathering => "gathering",
            SenderState::Sending => "sending",
            SenderState::Yielding => "yielding",
            SenderState::Ended => "ended",
        }
    }

    /// Returns whether `next` may follow.
    pub fn may_become(self, next: SenderState) -> bool {
        TRANSITIONS.contains(&(self, next))
    }
}

impl SessionEnd {
    /// Every end.
    pub const ALL: [SessionEnd; 6] = [
        SessionEnd::Done,
        SessionEnd::Deserted,
        SessionEnd::Deaf,
        SessionEnd::Lossy,
        SessionEnd::KeyUsedUp,
        SessionEnd::Stopped,
    ];

    /// The label in metrics and logs.
    pub fn as_str(self) -> &'static str {
        match self {
            SessionEnd::Done => "done",
            SessionEnd::Deserted => "deserted",
            SessionEnd::Deaf => "deaf",
            SessionEnd::Lossy => "lossy",
            SessionEnd::KeyUsedUp => "key_used_up",
            SessionEnd::Stopped => "stopped",
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use acstor_testkit::pages::literal_rows;

    use super::*;

    #[test]
    fn test_page_lists_exactly_the_transitions() {
        let page =
            include_str!("../../../../doc/source/reference/state-machines/multicast-session.rst");
        let listed: BTreeSet<[String; 2]> = literal_rows(page).into_iter().collect();
        let expected: BTreeSet<[String; 2]> = TRANSITIONS
            .iter()
            .map(|(from, to)| [from, to].map(|s| s.as_str().to_owned()))
            .collect();
        assert_eq!(listed, expected);
    }

    #[test]
    fn test_nothing_follows_the_end() {
        use SenderState::{Ended, Gathering, Sending, Yielding};
        for next in [Gathering, Sending, Yielding, Ended] {
            assert!(!Ended.may_become(next));
        }
    }
}
