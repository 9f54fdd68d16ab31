//! Life of a volume: open, fenced or closed.

use std::sync::atomic::{AtomicU8, Ordering};

use parking_lot::Mutex;

use crate::segments::flusher::closed;
use crate::{DeviceError, DeviceErrorKind};

const OPEN: u8 = 0;
const FENCED: u8 = 1;
const CLOSED: u8 = 2;

/// State of a volume, open, fenced or closed, and the reason for a fence. It is fenced once, from
/// open, and closed once, from either.
#[derive(Debug, Default)]
pub(crate) struct Life {
    state: AtomicU8,
    /// Reason for the fence.
    reason: Mutex<String>,
}

impl Life {
    /// Fences the volume; returns whether it was open.
    pub(crate) fn fence(&self, reason: String) -> bool {
        *self.reason.lock() = reason;
        self.state.compare_exchange(OPEN, FENCED, Ordering::AcqRel, Ordering::Acquire).is_ok()
    }

    /// Closes the volume for good.
    pub(crate) fn close(&self) {
        self.state.store(CLOSED, Ordering::Release);
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.state.load(Ordering::Acquire) == CLOSED
    }

    pub(crate) fn is_fenced(&self) -> bool {
        self.state.load(Ordering::Acquire) == FENCED
    }

    /// Returns why the volume takes no writes, if it does not.
    pub(crate) fn check_writable(&self) -> Result<(), DeviceError> {
        match self.state.load(Ordering::Acquire) {
            OPEN => Ok(()),
            CLOSED => Err(closed()),
            _ => Err(DeviceError::new(DeviceErrorKind::Fenced, self.reason.lock().clone())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fenced_volume_can_only_be_closed() {
        let life = Life::default();
        assert_eq!(life.check_writable(), Ok(()));
        assert!(life.fence("another host owns it".to_owned()));
        assert!(!life.fence("again".to_owned()));
        assert_eq!(life.check_writable().unwrap_err().kind, DeviceErrorKind::Fenced);
        life.close();
        assert!(!life.fence("too late".to_owned()));
        assert!(life.is_closed() && !life.is_fenced());
        assert_eq!(life.check_writable(), Err(closed()));
    }
}
