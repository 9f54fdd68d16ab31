//! Objects that are read of a member.

use std::panic::{AssertUnwindSafe, catch_unwind};

use acstor_readpath::{OriginError, OriginRange, OriginSource, StoredObject};
use acstor_types::PackId;

/// Object of which ranges are read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wanted {
    /// A pack or a manifest.
    Object(StoredObject),
    /// The list of a pack's moved chunks.
    Moved(PackId),
}

impl Wanted {
    /// The name of it, for errors.
    pub(crate) fn name(&self) -> String {
        match self {
            Wanted::Object(StoredObject::Manifest(name)) => name.to_string(),
            Wanted::Object(StoredObject::Pack(pack)) | Wanted::Moved(pack) => pack.0.to_string(),
        }
    }

    /// Fills the ranges from one store; only those of a pack are several.
    ///
    /// # Errors
    /// [`OriginError`].
    pub(crate) fn read(
        &self,
        source: &dyn OriginSource,
        ranges: &mut [OriginRange],
    ) -> Result<(), OriginError> {
        let call = || match (self, ranges) {
            (Wanted::Object(StoredObject::Pack(pack)), ranges) => source.read(pack, ranges),
            (Wanted::Object(StoredObject::Manifest(name)), [range]) => {
                source.read_manifest(name, range)
            }
            (Wanted::Moved(pack), [range]) => {
                source.read_moved(pack, range.offset, &mut range.buffer)
            }
            _ => Err(OriginError::Internal("it is not read by one range".to_owned())),
        };
        // A driver's panic must not take a thread of the pool with it.
        let outcome = catch_unwind(AssertUnwindSafe(call));
        outcome.unwrap_or_else(|_| Err(OriginError::Internal("it panicked".to_owned())))
    }
}
