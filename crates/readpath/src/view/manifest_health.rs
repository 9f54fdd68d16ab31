//! Health of a disk's manifest, as this host's disk gives it.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use acstor_types::ErrorKind;

use crate::limits;
use crate::view::manifest_source::ManifestFault;

/// Health of one manifest.
#[derive(Debug, Default)]
pub(crate) struct ManifestHealth {
    is_damaged: AtomicBool,
    /// Failures in a row of the local disk to give it.
    failures: AtomicU32,
}

impl ManifestHealth {
    /// Returns whether the manifest could not be read and never will be, as it is.
    pub(crate) fn is_damaged(&self) -> bool {
        self.is_damaged.load(Ordering::Acquire)
    }

    /// Notes that the local disk gave it.
    pub(crate) fn succeeded(&self) {
        self.failures.store(0, Ordering::Relaxed);
    }

    /// Notes a fault; returns whether the manifest counts as damaged with it.
    /// For want of a page that the origin has it never does.
    pub(crate) fn failed(&self, fault: &ManifestFault) -> bool {
        if fault.absent.is_some() {
            return false;
        }
        let is_damaged = fault.is_final() || self.is_given_up(fault);
        if is_damaged {
            self.is_damaged.store(true, Ordering::Release);
        }
        is_damaged
    }

    /// As [`ManifestHealth::failed`], of a fault that says nothing final of what is attached.
    pub(crate) fn failed_to_compare(&self, fault: &ManifestFault) {
        let is_damaged = fault.absent.is_none() && self.is_given_up(fault);
        self.is_damaged.store(is_damaged, Ordering::Release);
    }

    /// Begins anew, with another file.
    pub(crate) fn reset(&self) {
        self.is_damaged.store(false, Ordering::Release);
        self.failures.store(0, Ordering::Relaxed);
    }

    /// Counts a fault, and says whether the local disk had its chances: a bad sector stays one. That memory
    /// is short says nothing of the manifest.
    fn is_given_up(&self, fault: &ManifestFault) -> bool {
        let failed = || self.failures.fetch_add(1, Ordering::Relaxed) + 1;
        fault.kind == ErrorKind::Unavailable && failed() >= limits::MANIFEST_FAILURES_MAX
    }
}
