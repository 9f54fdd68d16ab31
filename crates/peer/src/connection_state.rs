//! The life of one connection, the same for both sides.

/// State of a connection.
///
/// ```text
///   Connecting --Connected--> Securing --Secured--> Greeting --Greeted--> Serving
///       |                        |                     |                    |
///       |                        |                     |             DrainRequested
///       |                        |                     |                    v
///       +--------Ended-----------+-------Ended---------+---Ended------ Draining
///                                   |                                     |
///                                   v                                   Ended
///                                 Closed <--------------------------------+
/// ```
///
/// A server's connection starts in `Securing` (the kernel connected it), a client's in
/// `Connecting`. The page `reference/state-machines/peer-connection` shows the same table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ConnectionState {
    /// Waits for TCP. Client only.
    Connecting,
    /// Waits for TLS; passed through at once where TLS is off.
    Securing,
    /// Waits for the other side's HELLO.
    Greeting,
    /// Carries requests and answers.
    Serving,
    /// GOODBYE was sent or received: waits for the answers that are due, takes no new request
    /// (client), or answers what still comes until the client closes (server).
    Draining,
    /// Over; a reason was counted.
    Closed,
}

/// Event in the life of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ConnectionEvent {
    /// TCP is up.
    Connected,
    /// TLS is up, or off.
    Secured,
    /// Both HELLOs are exchanged and a version is agreed.
    Greeted,
    /// GOODBYE is due or came, or nothing was asked for the idle timeout.
    DrainRequested,
    /// The connection ends, for whatever reason.
    Ended,
}

/// Every allowed transition; any other pair is a fault of this program.
pub const TRANSITIONS: [(ConnectionState, ConnectionEvent, ConnectionState); 9] = {
    use ConnectionEvent::*;
    use ConnectionState::*;
    [
        (Connecting, Connected, Securing),
        (Connecting, Ended, Closed), // refused, unreachable or too late
        (Securing, Secured, Greeting),
        (Securing, Ended, Closed), // certificate, name, CA, or too late
        (Greeting, Greeted, Serving),
        (Greeting, Ended, Closed), // other protocol, no common version, too many connections
        (Serving, DrainRequested, Draining),
        (Serving, Ended, Closed), // the other side vanished, stalled or broke the protocol
        (Draining, Ended, Closed), // everything answered, or too late
    ]
};

/// An event that the state of a connection does not allow.
pub type InvalidTransition = acstor_net::InvalidTransition<ConnectionState, ConnectionEvent>;

impl ConnectionState {
    /// Returns the state after `event`.
    ///
    /// # Errors
    /// [`InvalidTransition`] when [`TRANSITIONS`] has no such row.
    pub fn after(self, event: ConnectionEvent) -> Result<ConnectionState, InvalidTransition> {
        state_after("connection", &TRANSITIONS, self, event)
    }

    /// Returns whether requests may be sent.
    pub const fn takes_requests(self) -> bool {
        matches!(self, ConnectionState::Serving)
    }
}
use acstor_net::state_after;
