//! Boot profiles: the boots of this host as they were recorded, and what all hosts learnt.

use std::sync::Arc;

use acstor_selection::{BootKind, BootProfile};
use acstor_types::DiskId;

use crate::ahead::finished_boots::{FinishedBoots, RecordedBoot};
use crate::ahead::inherited_orders::Inheritance;
use crate::ahead::rank_list;
use crate::view::attachments::Attachments;
use crate::{ReadPathError, limits};

/// Longest bytes that [`crate::ReadPath::set_boot_profile`] takes.
pub fn boot_profile_len_max() -> u64 {
    rank_list::len_max()
}

/// Returns the bytes of one order of different chunks: how a recorded boot is told.
pub fn encode_order(order: &[u32]) -> Vec<u8> {
    rank_list::encode(&[order.to_vec()])
}

/// Returns the profile of some orders, the likeliest first; `None` of none.
fn profile_of(orders: Vec<Vec<u32>>) -> Result<Option<Arc<BootProfile>>, String> {
    let kinds = (1..=orders.len() as u32).rev().zip(orders);
    let kinds = kinds.map(|(weight, chunks)| BootKind { chunks, weight }).collect();
    let profile = BootProfile::new(kinds).map_err(|error| error.to_string())?;
    Ok((!profile.is_empty()).then(|| Arc::new(profile)))
}

/// The boot profiles of the attached disks.
pub(crate) struct BootProfiles {
    attachments: Arc<Attachments>,
    finished: Arc<FinishedBoots>,
}

impl BootProfiles {
    pub(crate) fn new(attachments: Arc<Attachments>, finished: Arc<FinishedBoots>) -> BootProfiles {
        BootProfiles { attachments, finished }
    }

    /// As [`FinishedBoots::recorded`].
    pub(crate) fn recorded(&self, acknowledged: u64) -> Vec<RecordedBoot> {
        self.finished.recorded(acknowledged)
    }

    /// Takes over orders, as [`rank_list`] has them. Touches no manifest.
    pub(crate) fn set(&self, disk_id: &DiskId, bytes: &[u8]) -> Result<(), ReadPathError> {
        let disk = self.attachments.find(disk_id)?;
        let chunks = disk.shape.chunk_count;
        let refused = |reason| ReadPathError::BootProfile { disk: *disk_id, reason };
        if chunks > limits::WORKING_SET_CHUNKS_MAX {
            return Err(refused(format!("it has {chunks} chunks")));
        }
        let orders = rank_list::decode(chunks, bytes).map_err(refused)?;
        let profile = profile_of(orders).map_err(refused)?;
        disk.records.boot_profile.store(profile);
        Ok(())
    }

    pub(crate) fn get(&self, disk_id: &DiskId) -> Result<Option<Arc<BootProfile>>, ReadPathError> {
        Ok(self.attachments.find(disk_id)?.records.boot_profile.load_full())
    }

    /// As [`crate::ReadPath::inherit_boot_profile`].
    pub(crate) fn inherit(&self, base: &DiskId, own: &DiskId) -> Result<bool, ReadPathError> {
        let own = self.attachments.read(own)?;
        if own.records.boot_profile.load().is_some() {
            return Ok(false);
        }
        let Some(profile) = self.get(base)? else { return Ok(false) };
        let base = self.attachments.read(base)?;
        let mut inheritance = Inheritance::of(&profile, |index| base.digest(index))
            .map_err(|fault| base.refused(fault))?;
        // A disk of as many chunks as it may have is passed over once, at the cost of its content.
        own.visit_all_digests(|index, digest| {
            inheritance.found(index, &digest);
            Ok(())
        })
        .map_err(|fault| own.refused(fault))?;
        let profile = profile_of(inheritance.finish())
            .map_err(|reason| ReadPathError::BootProfile { disk: own.id(), reason })?;
        let is_any = profile.is_some();
        own.records.boot_profile.store(profile);
        Ok(is_any)
    }
}
