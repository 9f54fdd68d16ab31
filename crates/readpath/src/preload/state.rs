//! State of a preload; the page of its state machine is `reference/state-machines/preload`.

/// State of a preload.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PreloadState {
    /// As many others run as may.
    Queued,
    /// Brings chunks.
    Running,
    /// Gives way to reads of guests.
    Yielding,
    /// Waits for an origin that does not answer.
    Waiting,
    /// Every chunk wanted is in the chunk store.
    Done,
    /// It could not be done.
    Failed,
    /// Somebody stopped it.
    Stopped,
}

/// The transition table.
const TRANSITIONS: [(PreloadState, PreloadState); 15] = {
    use PreloadState::{Done, Failed, Queued, Running, Stopped, Waiting, Yielding};
    [
        (Queued, Running),
        (Queued, Stopped),
        (Running, Yielding),
        (Running, Waiting),
        (Running, Done),
        (Running, Failed),
        (Running, Stopped),
        (Yielding, Running),
        (Yielding, Waiting),
        (Yielding, Failed),
        (Yielding, Stopped),
        (Waiting, Running),
        (Waiting, Yielding),
        (Waiting, Failed),
        (Waiting, Stopped),
    ]
};

impl PreloadState {
    /// Every state.
    pub const ALL: [PreloadState; 7] = [
        PreloadState::Queued,
        PreloadState::Running,
        PreloadState::Yielding,
        PreloadState::Waiting,
        PreloadState::Done,
        PreloadState::Failed,
        PreloadState::Stopped,
    ];

    /// The word of the admin protocol and the metrics.
    pub fn as_str(self) -> &'static str {
        match self {
            PreloadState::Queued => "queued",
            PreloadState::Running => "running",
            PreloadState::Yielding => "yielding",
            PreloadState::Waiting => "waiting",
            PreloadState::Done => "done",
            PreloadState::Failed => "failed",
            PreloadState::Stopped => "stopped",
        }
    }

    /// Returns whether nothing can follow.
    pub fn has_ended(self) -> bool {
        matches!(self, PreloadState::Done | PreloadState::Failed | PreloadState::Stopped)
    }

    /// Returns whether `next` may follow.
    pub(crate) fn may_become(self, next: PreloadState) -> bool {
        TRANSITIONS.contains(&(self, next))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use acstor_testkit::pages::literal_rows;

    use super::*;

    #[test]
    fn test_page_lists_exactly_the_transitions() {
        let page = include_str!("../../../../doc/source/reference/state-machines/preload.rst");
        let listed: BTreeSet<[String; 2]> = literal_rows(page).into_iter().collect();
        let expected: BTreeSet<[String; 2]> = TRANSITIONS
            .iter()
            .map(|(from, to)| [from, to].map(|s| s.as_str().to_owned()))
            .collect();
        assert_eq!(listed, expected);
    }

    #[test]
    fn test_ended_states_are_those_that_nothing_follows() {
        for state in PreloadState::ALL {
            let is_final = !PreloadState::ALL.iter().any(|next| state.may_become(*next));
            assert_eq!(state.has_ended(), is_final, "{state:?}");
        }
    }
}
