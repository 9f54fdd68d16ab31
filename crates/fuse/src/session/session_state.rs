//! The states of a session, and the only changes among them.

use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};

/// State of a session.
///
/// ```text
///              INIT answered            shutdown          last thread gone
///  Starting ----------------> Serving ----------> Stopping ---------------> Stopped
///     |  |                      |  |                 |
///     |  +--- kernel too old -> Failed               |   (the connection lives on with
///     |                         |  |                 |    whoever holds the descriptor)
///     +------- unmounted -------+--+---> Unmounted <-+
///     +------- aborted ---------+--+---> Aborted <---+
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SessionState {
    /// Mounted, and the kernel's INIT not yet answered: the first requests wait.
    Starting,
    /// Requests are answered.
    Serving,
    /// The threads were told to stop; requests not yet read wait for the next process.
    Stopping,
    /// No thread reads the descriptor any more; the mount is there and waits.
    Stopped,
    /// The file system was unmounted; the connection has ended.
    Unmounted,
    /// The connection was aborted: readers get ENOTCONN.
    Aborted,
    /// The threads gave up: the kernel is too old or the descriptor does not work.
    Failed,
}

impl SessionState {
    /// Every state.
    pub const ALL: [SessionState; 7] = [
        SessionState::Starting,
        SessionState::Serving,
        SessionState::Stopping,
        SessionState::Stopped,
        SessionState::Unmounted,
        SessionState::Aborted,
        SessionState::Failed,
    ];

    /// Returns whether no thread reads the descriptor any more.
    pub const fn is_final(self) -> bool {
        use SessionState::{Aborted, Failed, Stopped, Unmounted};
        matches!(self, Stopped | Unmounted | Aborted | Failed)
    }

    /// Returns whether `next` may follow this state.
    pub const fn is_transition_valid(self, next: SessionState) -> bool {
        use SessionState::{Aborted, Failed, Serving, Starting, Stopped, Stopping, Unmounted};
        match self {
            Starting => matches!(next, Serving | Stopping | Unmounted | Aborted | Failed),
            Serving => matches!(next, Stopping | Unmounted | Aborted | Failed),
            Stopping => matches!(next, Stopped | Unmounted | Aborted | Failed),
            Stopped | Unmounted | Aborted | Failed => false,
        }
    }

    /// The state's name in metrics and the admin protocol.
    pub const fn as_str(self) -> &'static str {
        match self {
            SessionState::Starting => "starting",
            SessionState::Serving => "serving",
            SessionState::Stopping => "stopping",
            SessionState::Stopped => "stopped",
            SessionState::Unmounted => "unmounted",
            SessionState::Aborted => "aborted",
            SessionState::Failed => "failed",
        }
    }
}

/// The state of one session; all changes go through [`StateCell::advance`].
#[derive(Debug)]
pub(crate) struct StateCell {
    state: Mutex<SessionState>,
    changed: Condvar,
}

impl StateCell {
    pub(crate) fn new(state: SessionState) -> StateCell {
        StateCell { state: Mutex::new(state), changed: Condvar::new() }
    }

    pub(crate) fn get(&self) -> SessionState {
        *self.state.lock()
    }

    /// Changes the state where that is allowed; returns whether it was.
    pub(crate) fn advance(&self, next: SessionState) -> bool {
        let mut state = self.state.lock();
        let is_valid = state.is_transition_valid(next);
        if is_valid {
            *state = next;
            self.changed.notify_all();
        }
        is_valid
    }

    /// Waits until `done` holds of the state, at most until `deadline`; returns the state.
    pub(crate) fn wait(
        &self,
        deadline: Option<Instant>,
        done: impl Fn(SessionState) -> bool,
    ) -> SessionState {
        let mut state = self.state.lock();
        while !done(*state) {
            match deadline {
                None => self.changed.wait(&mut state),
                Some(deadline) => {
                    let left = deadline.saturating_duration_since(Instant::now());
                    if left == Duration::ZERO {
                        break;
                    }
                    self.changed.wait_for(&mut state, left);
                }
            }
        }
        *state
    }
}

#[cfg(test)]
mod tests {
    use super::{SessionState, StateCell};
    use proptest::prelude::*;

    #[test]
    fn final_states_have_no_way_out() {
        for state in SessionState::ALL {
            let ways = SessionState::ALL.iter().filter(|&&next| state.is_transition_valid(next));
            assert_eq!(ways.count() == 0, state.is_final(), "{state:?}");
        }
    }

    proptest! {
        #[test]
        fn random_events_never_take_an_unlisted_way(
            events in proptest::collection::vec(0usize..7, 0..40)
        ) {
            let cell = StateCell::new(SessionState::Starting);
            for event in events {
                let (before, next) = (cell.get(), SessionState::ALL[event]);
                prop_assert_eq!(cell.advance(next), before.is_transition_valid(next));
                let after = cell.get();
                prop_assert!(after == before || before.is_transition_valid(after));
            }
        }
    }
}
