//! Reasons for which a connection ended; each is counted, by both sides.

use acstor_net::close_reasons;

use crate::frame::FrameError;

close_reasons! {
    /// The other side closed between two frames.
    PeerClosed = "peer_closed",
    /// The other side closed in the middle of a frame.
    Truncated = "truncated",
    /// Nothing was asked for the idle timeout.
    Idle = "idle",
    /// The server stops and everything was answered.
    Drained = "drained",
    /// This side was shut down.
    Shutdown = "shutdown",
    /// An answer that nobody asked for, or of another size than asked for.
    UnexpectedAnswer = "unexpected_answer",
    /// Part of a frame came, the rest not in time.
    ReadStalled = "read_stalled",
    /// The other side does not read what was sent to it.
    WriteStalled = "write_stalled",
    /// Answers are due and a PING was not answered in time.
    ProbeTimeout = "probe_timeout",
    /// Answers did not come although their deadlines are well past.
    AnswersOverdue = "answers_overdue",
    /// TCP, TLS and HELLO took too long.
    HandshakeTimeout = "handshake_timeout",
    /// TLS failed: certificate, name or parameters.
    TlsFailed = "tls_failed",
    /// TLS was fine and the other side would not be let in any more: it is revoked, its CA is
    /// gone, or it is no host of the ring any more.
    Untrusted = "untrusted",
    /// No common protocol version.
    VersionMismatch = "version_mismatch",
    /// More connections than the limit.
    TooManyConnections = "too_many_connections",
    /// The socket failed.
    Io = "io",
    ; faults {
        /// A frame breaks the protocol.
        Malformed(FrameError),
    }
}

impl CloseReason {
    /// Returns whether the other side did nothing wrong, so that it may be connected to at once.
    pub const fn is_orderly(self) -> bool {
        matches!(
            self,
            CloseReason::PeerClosed
                | CloseReason::Idle
                | CloseReason::Drained
                | CloseReason::Shutdown
        )
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::CloseReason;

    #[test]
    fn test_labels_are_distinct() {
        let labels: HashSet<_> = CloseReason::all().map(CloseReason::as_str).collect();
        assert_eq!(labels.len(), CloseReason::COUNT);
        assert_eq!(CloseReason::all().count(), CloseReason::COUNT);
    }

    #[test]
    fn test_index_follows_the_list() {
        for (position, reason) in CloseReason::all().enumerate() {
            assert_eq!(reason.index(), position);
        }
    }
}
