//! Reasons for which a connection ended; each is counted, by both sides.

use crate::frame::FrameError;

/// Reason for which a connection ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CloseReason {
    /// The other side closed between two frames.
    PeerClosed,
    /// The other side closed in the middle of a frame.
    Truncated,
    /// Nothing was asked for the idle timeout.
    Idle,
    /// The server stops and everything was answered.
    Drained,
    /// This side was shut down.
    Shutdown,
    /// A frame breaks the protocol.
    Malformed(FrameError),
    /// An answer that nobody asked for, or of another size than asked for.
    UnexpectedAnswer,
    /// Part of a frame came, the rest not in time.
    ReadStalled,
    /// The other side does not read what was sent to it.
    WriteStalled,
    /// Answers are due and a PING was not answered in time.
    ProbeTimeout,
    /// Answers did not come although their deadlines are well past.
    AnswersOverdue,
    /// TCP, TLS and HELLO took too long.
    HandshakeTimeout,
    /// TLS failed: certificate, name or parameters.
    TlsFailed,
    /// TLS was fine and the other side would not be let in any more: it is revoked, its CA is
    /// gone, or it is no host of the ring any more.
    Untrusted,
    /// No common protocol version.
    VersionMismatch,
    /// More connections than the limit.
    TooManyConnections,
    /// The socket failed.
    Io,
}

impl CloseReason {
    /// Number of distinct labels.
    pub const COUNT: usize = 16 + FrameError::ALL.len();

    /// Every reason.
    pub fn all() -> impl Iterator<Item = CloseReason> {
        use CloseReason::*;
        [
            PeerClosed,
            Truncated,
            Idle,
            Drained,
            Shutdown,
            UnexpectedAnswer,
            ReadStalled,
            WriteStalled,
            ProbeTimeout,
            AnswersOverdue,
            HandshakeTimeout,
            TlsFailed,
            Untrusted,
            VersionMismatch,
            TooManyConnections,
            Io,
        ]
        .into_iter()
        .chain(FrameError::ALL.into_iter().map(Malformed))
    }

    /// The label in metrics and logs.
    pub const fn as_str(self) -> &'static str {
        match self {
            CloseReason::PeerClosed => "peer_closed",
            CloseReason::Truncated => "truncated",
            CloseReason::Idle => "idle",
            CloseReason::Drained => "drained",
            CloseReason::Shutdown => "shutdown",
            CloseReason::Malformed(error) => error.as_str(),
            CloseReason::UnexpectedAnswer => "unexpected_answer",
            CloseReason::ReadStalled => "read_stalled",
            CloseReason::WriteStalled => "write_stalled",
            CloseReason::ProbeTimeout => "probe_timeout",
            CloseReason::AnswersOverdue => "answers_overdue",
            CloseReason::HandshakeTimeout => "handshake_timeout",
            CloseReason::TlsFailed => "tls_failed",
            CloseReason::Untrusted => "untrusted",
            CloseReason::VersionMismatch => "version_mismatch",
            CloseReason::TooManyConnections => "too_many_connections",
            CloseReason::Io => "io",
        }
    }

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

    pub(crate) fn index(self) -> usize {
        CloseReason::all().position(|reason| reason == self).unwrap_or(0)
    }
}

impl std::fmt::Display for CloseReason {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.as_str())
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
