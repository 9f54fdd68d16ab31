//! INIT: what this server and the kernel agree on.

use crate::limits::{REQUEST_PAGES_MAX, WRITE_SIZE_MAX};
use crate::wire::abi::{self, init};
use crate::{FuseConfig, FuseError};

/// Flags that this server asks for where the kernel has them.
///
/// Not asked for, on purpose: `AUTO_INVAL_DATA` (a fresh mtime would drop the cached pages of
/// immutable files; `EXPLICIT_INVAL_DATA` keeps them), `WRITEBACK_CACHE` (nothing is written, and
/// it would bring FLUSH back), `ATOMIC_O_TRUNC` (opens are checked for writing anyway), POSIX and
/// flock locks (QEMU's locks on a base image are local to the host), `OVER_IO_URING` (cannot be
/// taken over after a crash).
const WANTED: u64 = init::ASYNC_READ
    | init::DO_READDIRPLUS
    | init::READDIRPLUS_AUTO
    | init::ASYNC_DIO
    | init::PARALLEL_DIROPS
    | init::ABORT_ERROR
    | init::MAX_PAGES
    | init::EXPLICIT_INVAL_DATA
    | init::INIT_EXT
    | init::HAS_RESEND;

/// Flags that must not be on, whoever agreed on them.
const FORBIDDEN: u64 = init::AUTO_INVAL_DATA | init::WRITEBACK_CACHE | init::ATOMIC_O_TRUNC;

/// Result of INIT; holds until the connection ends, whatever process serves it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Negotiated {
    /// Minor version of the protocol, 35 or more.
    pub minor: u32,
    /// Flags that both sides know, `flags2` in the upper half.
    pub flags: u64,
    /// Pages of the largest request.
    pub max_pages: u16,
}

impl Negotiated {
    /// Returns whether requests in flight survive the death of the process that read them (Linux
    /// 6.9).
    pub fn can_resend(&self) -> bool {
        self.flags & init::HAS_RESEND != 0
    }

    /// Checks that this build can serve a connection that another process agreed on.
    pub(crate) fn check(&self) -> Result<(), FuseError> {
        let unknown = self.flags & !WANTED;
        if self.minor > abi::MINOR || unknown != 0 || self.max_pages > REQUEST_PAGES_MAX {
            let what = format!("protocol 7.{}, flags {unknown:#x}", self.minor);
            return Err(FuseError::SessionTooNew { what });
        }
        Ok(())
    }
}

/// Answer to an INIT.
#[derive(Debug)]
pub(crate) enum Answer {
    /// Agreed.
    Agreed(abi::InitOut, Negotiated),
    /// The kernel speaks a newer major version and will ask again with ours.
    AskAgain(abi::InitOut),
    /// The kernel is too old; text for the log.
    TooOld(String),
}

/// Answers an INIT with the kernel's version and flags.
pub(crate) fn negotiate(config: &FuseConfig, major: u32, minor: u32, offered: u64) -> Answer {
    if major > abi::MAJOR {
        let init = abi::InitOut { major: abi::MAJOR, minor: abi::MINOR, ..Default::default() };
        return Answer::AskAgain(init);
    }
    if major < abi::MAJOR || minor < abi::MINOR_MIN {
        return Answer::TooOld(format!(
            "the kernel speaks FUSE {major}.{minor}; 7.{} (Linux 5.16) is needed",
            abi::MINOR_MIN
        ));
    }
    let agreed = Negotiated {
        minor: minor.min(abi::MINOR),
        flags: offered & WANTED & !FORBIDDEN,
        max_pages: REQUEST_PAGES_MAX,
    };
    let init = abi::InitOut {
        major: abi::MAJOR,
        minor: agreed.minor,
        max_readahead: config.read_ahead_kb << 10,
        flags: agreed.flags as u32,
        max_background: config.max_background,
        congestion_threshold: config.max_background / 4 * 3,
        max_write: WRITE_SIZE_MAX,
        time_gran: 1,
        max_pages: agreed.max_pages,
        map_alignment: 0,
        flags2: (agreed.flags >> 32) as u32,
        unused: [0; 7],
    };
    Answer::Agreed(init, agreed)
}

#[cfg(test)]
mod tests {
    use super::{Answer, FORBIDDEN, WANTED, negotiate};
    use crate::FuseConfig;
    use crate::wire::abi::init;
    use proptest::prelude::*;

    fn agreed(minor: u32, offered: u64) -> super::Negotiated {
        match negotiate(&FuseConfig::new("/mnt"), 7, minor, offered) {
            Answer::Agreed(out, agreed) => {
                assert_eq!(u64::from(out.flags) | u64::from(out.flags2) << 32, agreed.flags);
                agreed
            }
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn this_kernel_s_offer_gives_everything_wanted() {
        let agreed = agreed(45, u64::MAX);
        assert_eq!((agreed.minor, agreed.flags), (45, WANTED));
        assert!(agreed.can_resend());
        agreed.check().unwrap();
    }

    #[test]
    fn a_kernel_without_resend_is_served_without() {
        assert!(!agreed(37, !init::HAS_RESEND).can_resend());
    }

    #[test]
    fn other_versions_are_answered_as_the_protocol_says() {
        let config = FuseConfig::new("/mnt");
        let Answer::AskAgain(init) = negotiate(&config, 8, 0, 0) else { panic!("major 8") };
        assert_eq!(init.major, 7);
        for (major, minor) in [(6, 99), (7, 34)] {
            assert!(matches!(negotiate(&config, major, minor, 0), Answer::TooOld(_)));
        }
    }

    #[test]
    fn a_session_with_something_unknown_is_refused() {
        let mut session = agreed(45, u64::MAX);
        session.flags |= init::WRITEBACK_CACHE;
        assert!(session.check().unwrap_err().to_string().contains("newer version"));
        session = agreed(45, u64::MAX);
        session.minor = 46;
        assert!(session.check().is_err());
    }

    proptest! {
        #[test]
        fn nothing_is_agreed_that_was_not_offered_or_is_forbidden(offered: u64, minor in 35u32..99) {
            let agreed = agreed(minor, offered);
            prop_assert_eq!(agreed.flags & !offered, 0);
            prop_assert_eq!(agreed.flags & FORBIDDEN, 0);
            prop_assert!(agreed.check().is_ok());
        }
    }
}
