//! Reasons for which a page was not brought.

use crate::view::manifest_source::ManifestFault;
use crate::{OriginError, limits};

/// Reason for which one attempt did not bring a page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum PageFailure {
    /// The origin's call failed.
    Origin(OriginError),
    /// The origin's bytes are not the page's, or the page is not in order.
    Refused(ManifestFault),
    /// This host's disk failed.
    Local(ManifestFault),
    /// The origin is down and this is not the time to probe it.
    Down,
    /// The origin did not answer in time.
    Late,
    /// The read path was stopped.
    Stopped,
}

impl PageFailure {
    /// Returns whether the origin, which answers, does not have the page as it should be.
    pub(crate) fn is_of_the_page(&self) -> bool {
        match self {
            PageFailure::Refused(_) => true,
            PageFailure::Origin(error) => {
                matches!(error, OriginError::NotFound { .. } | OriginError::ShortRead { .. })
            }
            _ => false,
        }
    }

    /// Returns whether another attempt may bring the page, after so many in vain at an origin that answers.
    pub(crate) fn may_pass(&self, in_vain: u32) -> bool {
        match self {
            PageFailure::Stopped | PageFailure::Local(_) => false,
            _ => in_vain < limits::PAGE_ATTEMPTS_MAX,
        }
    }

    /// Returns whether the origin, which answers, has no such manifest.
    pub(crate) fn is_missing(&self) -> bool {
        matches!(self, PageFailure::Origin(OriginError::NotFound { .. }))
    }
}

impl std::fmt::Display for PageFailure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            PageFailure::Origin(OriginError::NotFound { .. }) => {
                f.write_str("the origin does not have the manifest")
            }
            PageFailure::Origin(OriginError::ShortRead { .. }) => {
                f.write_str("the manifest is cut in the origin")
            }
            PageFailure::Origin(OriginError::Unavailable { cause, .. }) => {
                write!(f, "the origin does not answer: {cause}")
            }
            PageFailure::Origin(error) => error.fmt(f),
            PageFailure::Refused(fault) | PageFailure::Local(fault) => fault.fmt(f),
            PageFailure::Down => f.write_str("the origin does not answer"),
            PageFailure::Late => f.write_str("the origin does not answer in time"),
            PageFailure::Stopped => f.write_str("the read path is stopped"),
        }
    }
}
