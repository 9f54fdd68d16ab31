//! Look-up in a table of allowed transitions.

use std::fmt::Debug;

/// An event that the state does not allow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{machine} event {event:?} in state {state:?}")]
pub struct InvalidTransition<S: Debug, E: Debug> {
    /// The state machine.
    pub machine: &'static str,
    /// State in which it was.
    pub state: S,
    /// Event that was reported.
    pub event: E,
}

/// Returns the state after `event` by a table of (state, event, next state); `machine` is its name in
/// errors.
///
/// # Errors
/// [`InvalidTransition`] when the table has no such row.
pub fn state_after<S: Copy + Debug + PartialEq, E: Copy + Debug + PartialEq>(
    machine: &'static str,
    table: &[(S, E, S)],
    state: S,
    event: E,
) -> Result<S, InvalidTransition<S, E>> {
    table
        .iter()
        .find(|(from, on, _)| *from == state && *on == event)
        .map(|(_, _, to)| *to)
        .ok_or(InvalidTransition { machine, state, event })
}
