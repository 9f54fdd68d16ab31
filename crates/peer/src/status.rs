//! Reasons for which a peer did not send a chunk.

use std::fmt;

use acstor_types::ErrorKind;

/// A peer's answer to a request that it does not serve; one code each on the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PeerStatus {
    /// The peer has neither the chunk nor a way to get it.
    NotFound,
    /// The request contradicts itself or the peer's manifest.
    Invalid,
    /// The peer could not get the chunk from its own sources.
    Unavailable,
    /// The peer refuses because of load.
    Overloaded,
    /// The peer does not know the message, version or option.
    Unsupported,
    /// A fault of the peer's program.
    Internal,
    /// The request's deadline passed at the peer.
    Expired,
    /// The peer is stopping.
    ShuttingDown,
    /// A code that a newer peer defined; never 0 and never one of the codes above.
    Other(u16),
}

impl PeerStatus {
    /// Every status of version 1.
    pub const ALL: [PeerStatus; 8] = [
        PeerStatus::NotFound,
        PeerStatus::Invalid,
        PeerStatus::Unavailable,
        PeerStatus::Overloaded,
        PeerStatus::Unsupported,
        PeerStatus::Internal,
        PeerStatus::Expired,
        PeerStatus::ShuttingDown,
    ];

    /// The code on the wire; never 0.
    pub const fn code(self) -> u16 {
        match self {
            PeerStatus::NotFound => 1,
            PeerStatus::Invalid => 2,
            PeerStatus::Unavailable => 3,
            PeerStatus::Overloaded => 4,
            PeerStatus::Unsupported => 5,
            PeerStatus::Internal => 6,
            PeerStatus::Expired => 7,
            PeerStatus::ShuttingDown => 8,
            PeerStatus::Other(code) => code,
        }
    }

    /// Returns the status of a code, or `None` for 0, which no refusal has.
    pub const fn from_code(code: u16) -> Option<PeerStatus> {
        Some(match code {
            0 => return None,
            1 => PeerStatus::NotFound,
            2 => PeerStatus::Invalid,
            3 => PeerStatus::Unavailable,
            4 => PeerStatus::Overloaded,
            5 => PeerStatus::Unsupported,
            6 => PeerStatus::Internal,
            7 => PeerStatus::Expired,
            8 => PeerStatus::ShuttingDown,
            code => PeerStatus::Other(code),
        })
    }

    /// Kind of the error: the reaction that it allows the requester.
    pub const fn kind(self) -> ErrorKind {
        match self {
            PeerStatus::NotFound => ErrorKind::NotFound,
            PeerStatus::Invalid => ErrorKind::Invalid,
            PeerStatus::Overloaded => ErrorKind::Overloaded,
            PeerStatus::Unsupported => ErrorKind::Unsupported,
            PeerStatus::Internal => ErrorKind::Internal,
            // An unknown refusal is a refusal: another source may serve.
            PeerStatus::Unavailable
            | PeerStatus::Expired
            | PeerStatus::ShuttingDown
            | PeerStatus::Other(_) => ErrorKind::Unavailable,
        }
    }

    /// The name in metrics and logs.
    pub const fn as_str(self) -> &'static str {
        match self {
            PeerStatus::NotFound => "not_found",
            PeerStatus::Invalid => "invalid",
            PeerStatus::Unavailable => "unavailable",
            PeerStatus::Overloaded => "overloaded",
            PeerStatus::Unsupported => "unsupported",
            PeerStatus::Internal => "internal",
            PeerStatus::Expired => "expired",
            PeerStatus::ShuttingDown => "shutting_down",
            PeerStatus::Other(_) => "other",
        }
    }
}

impl From<ErrorKind> for PeerStatus {
    /// The table kind → status of this edge.
    fn from(kind: ErrorKind) -> PeerStatus {
        match kind {
            ErrorKind::NotFound => PeerStatus::NotFound,
            ErrorKind::Invalid => PeerStatus::Invalid,
            // What is corrupt or fenced here may be right elsewhere.
            ErrorKind::Unavailable | ErrorKind::Corrupt | ErrorKind::Fenced => {
                PeerStatus::Unavailable
            }
            ErrorKind::Overloaded | ErrorKind::Exhausted => PeerStatus::Overloaded,
            ErrorKind::Unsupported => PeerStatus::Unsupported,
            ErrorKind::Internal => PeerStatus::Internal,
        }
    }
}

impl fmt::Display for PeerStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PeerStatus::Other(code) => write!(f, "status {code}"),
            known => f.write_str(known.as_str()),
        }
    }
}

#[cfg(test)]
mod tests {
    use acstor_types::ErrorKind;

    use super::PeerStatus;

    #[test]
    fn test_code_every_status_round_trips() {
        for status in PeerStatus::ALL {
            assert_eq!(PeerStatus::from_code(status.code()), Some(status));
        }
        assert_eq!(PeerStatus::from_code(0), None);
        assert_eq!(PeerStatus::from_code(900), Some(PeerStatus::Other(900)));
    }

    #[test]
    fn test_from_kind_every_kind_has_a_code() {
        for kind in ErrorKind::ALL {
            assert_ne!(PeerStatus::from(kind).code(), 0, "{kind:?}");
        }
    }
}
