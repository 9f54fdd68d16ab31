//! The life of one connection.

/// State of a connection.
///
/// ```text
///   Greeting --Greeted--> Negotiating --TlsAccepted--> Securing
///      |                   |   |   ^                    |  |
///      |                   |   |   +------Secured-------+  |
///    Ended               Ended Chosen                    Ended
///      |                   |   |                           |
///      |                   |   v                           |
///      |                   |  Transmitting --DrainRequested--> Draining
///      |                   |        |                      |     |
///      |                   |      Ended                    |   Ended
///      v                   v        v                      v     v
///   Closed <------------------------------------------------------
/// ```
///
/// The page `reference/state-machines/nbd-connection` shows the same table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ConnectionState {
    /// Waits for the client's flags.
    Greeting,
    /// Answers options.
    Negotiating,
    /// Waits for TLS.
    Securing,
    /// Carries requests and answers.
    Transmitting,
    /// Reads nothing more; answers what it has read.
    Draining,
    /// Over; a reason was counted.
    Closed,
}

/// Event in the life of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ConnectionEvent {
    /// Both sides said who they are.
    Greeted,
    /// The client wants TLS and gets it.
    TlsAccepted,
    /// TLS is up.
    Secured,
    /// The client chose the export.
    Chosen,
    /// The client said goodbye, or the server wants it to go.
    DrainRequested,
    /// The connection ends, for whatever reason.
    Ended,
}

/// Every allowed transition; any other pair is a fault of this program.
pub const TRANSITIONS: [(ConnectionState, ConnectionEvent, ConnectionState); 10] = {
    use ConnectionEvent::*;
    use ConnectionState::*;
    [
        (Greeting, Greeted, Negotiating),
        (Greeting, Ended, Closed), // another protocol, gone, too late, or the server drains
        (Negotiating, TlsAccepted, Securing),
        (Negotiating, Chosen, Transmitting),
        (Negotiating, Ended, Closed), // aborted, refused, gone, too late, or the server drains
        (Securing, Secured, Negotiating),
        (Securing, Ended, Closed), // certificate, CA, gone, too late, or the server drains
        (Transmitting, DrainRequested, Draining),
        (Transmitting, Ended, Closed), // gone, stalled, or broke the protocol
        (Draining, Ended, Closed),     // everything answered, or too late
    ]
};

/// An event that the state of an NBD connection does not allow.
pub type InvalidTransition = acstor_net::InvalidTransition<ConnectionState, ConnectionEvent>;

impl ConnectionState {
    /// Returns the state after `event`.
    ///
    /// # Errors
    /// [`InvalidTransition`] when [`TRANSITIONS`] has no such row.
    pub fn after(self, event: ConnectionEvent) -> Result<ConnectionState, InvalidTransition> {
        state_after("NBD connection", &TRANSITIONS, self, event)
    }
}
use acstor_net::state_after;
