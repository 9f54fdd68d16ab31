//! Reasons for which a connection ended; each is counted.

close_reasons! {
    /// The client said goodbye, in transmission or in the handshake.
    Disconnected = "disconnected",
    /// The client closed between two requests without a word.
    ClientClosed = "client_closed",
    /// The client closed in the middle of a request.
    Truncated = "truncated",
    /// The server wanted the client to connect anew, or stops; everything was answered.
    Drained = "drained",
    /// The server was dropped, or a drain took too long.
    Aborted = "aborted",
    /// Bytes that are not NBD.
    Malformed = "malformed",
    /// An export that does not exist, or another condition that cannot be answered.
    HandshakeRefused = "handshake_refused",
    /// The handshake took too long, or too many options.
    HandshakeTimeout = "handshake_timeout",
    /// TLS failed.
    TlsFailed = "tls_failed",
    /// More connections than the limit.
    TooManyConnections = "too_many_connections",
    /// A part of a request came, the rest not in time.
    ReadStalled = "read_stalled",
    /// The client does not read what is sent to it.
    WriteStalled = "write_stalled",
    /// The device was closed while the server drained; the client asks the next process.
    DeviceClosed = "device_closed",
    /// A part of an answer was sent when its bytes turned out to be unreadable.
    AnswerLost = "answer_lost",
    /// The socket failed.
    Io = "io",
}

impl CloseReason {
    /// Returns whether nobody did anything wrong.
    pub const fn is_orderly(self) -> bool {
        matches!(self, CloseReason::Disconnected | CloseReason::ClientClosed | CloseReason::Drained)
    }
}

use acstor_net::close_reasons;

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::CloseReason;

    #[test]
    fn test_labels_are_distinct_and_in_order() {
        let labels: HashSet<_> = CloseReason::all().map(CloseReason::as_str).collect();
        assert_eq!(labels.len(), CloseReason::COUNT);
        for (position, reason) in CloseReason::all().enumerate() {
            assert_eq!(reason.index(), position);
        }
    }
}
