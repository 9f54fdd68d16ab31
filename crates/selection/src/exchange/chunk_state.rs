//! State of a chunk of one disk on one host, as the exchange sees it.

/// State of a chunk of a disk on a host.
///
/// ```text
///              Arrived                 Read
///   Remote ---------------> Local ------------> Read
///     |  ^                   |  |                ^ |
///     |  +------- Aged ------+  |                | |
///     +---------- Read ---------|----------------+ |
///     |                         |                  |
///     +--------- Written -------+----- Written ----+---> Written
/// ```
///
/// Source: Nicolae and Rafique, section 3. Differs: `Aged`, the window that the source leaves open. A disk
/// that is only read, as each image is, never has a chunk in `Written`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ChunkState {
    /// Not here, as far as the exchange knows.
    Remote,
    /// Here on a hint, and not read.
    Local,
    /// Read by a guest.
    Read,
    /// Written by a guest: nobody else wants its content.
    Written,
}

/// Events of a chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ChunkEvent {
    /// It came on a hint.
    Arrived,
    /// A guest read it.
    Read,
    /// It came on a hint and was not read for long.
    Aged,
    /// A guest wrote it.
    Written,
}

/// Every transition; a pair that is not listed leaves the state as it is.
pub const CHUNK_TRANSITIONS: [(ChunkState, ChunkEvent, ChunkState); 7] = [
    (ChunkState::Remote, ChunkEvent::Arrived, ChunkState::Local),
    (ChunkState::Remote, ChunkEvent::Read, ChunkState::Read),
    (ChunkState::Remote, ChunkEvent::Written, ChunkState::Written),
    (ChunkState::Local, ChunkEvent::Read, ChunkState::Read),
    (ChunkState::Local, ChunkEvent::Aged, ChunkState::Remote),
    (ChunkState::Local, ChunkEvent::Written, ChunkState::Written),
    (ChunkState::Read, ChunkEvent::Written, ChunkState::Written),
];

impl ChunkState {
    /// Every state.
    pub const ALL: [ChunkState; 4] =
        [ChunkState::Remote, ChunkState::Local, ChunkState::Read, ChunkState::Written];

    /// Returns the state after an event.
    pub fn after(self, event: ChunkEvent) -> ChunkState {
        let fits =
            |(from, on, _): &&(ChunkState, ChunkEvent, ChunkState)| (*from, *on) == (self, event);
        CHUNK_TRANSITIONS.iter().find(fits).map_or(self, |(_, _, to)| *to)
    }

    /// Returns whether others are told of a chunk in this state: never of one that a guest has written.
    pub fn may_be_told(self) -> bool {
        self != ChunkState::Written
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn test_written_is_the_end_and_what_was_read_does_not_come_back() {
        let events = [ChunkEvent::Arrived, ChunkEvent::Read, ChunkEvent::Aged, ChunkEvent::Written];
        for event in events {
            assert_eq!(ChunkState::Written.after(event), ChunkState::Written);
            assert_ne!(ChunkState::Read.after(event), ChunkState::Local, "too late is no arrival");
        }
        for state in ChunkState::ALL {
            assert_eq!(state.after(ChunkEvent::Written), ChunkState::Written);
            assert_eq!(state.may_be_told(), state != ChunkState::Written);
        }
    }

    #[test]
    fn test_transitions_are_one_for_each_pair() {
        for (at, (from, event, _)) in CHUNK_TRANSITIONS.iter().enumerate() {
            let same = |(other, on, _): &(ChunkState, ChunkEvent, ChunkState)| {
                (other, on) == (from, event)
            };
            assert!(!CHUNK_TRANSITIONS[at + 1..].iter().any(same), "{from:?} {event:?}");
        }
    }
}
