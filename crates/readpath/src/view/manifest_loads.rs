//! Reading manifests that are not in memory, some at a time.

use std::sync::Arc;

use tokio::sync::Semaphore;

use crate::fetch::flight::Priority;
use crate::fetch::sources::Sources;
use crate::view::attachment::Attachment;
use crate::view::disk_view::DiskView;
use crate::{ReadError, limits};

/// The permits of manifests that are being read.
pub(crate) struct ManifestLoads {
    /// One per manifest.
    permits: Arc<Semaphore>,
    /// One per manifest that is read for anybody but a guest.
    permits_of_others: Arc<Semaphore>,
}

impl Default for ManifestLoads {
    fn default() -> ManifestLoads {
        ManifestLoads {
            permits: Arc::new(Semaphore::new(limits::MANIFEST_READS_MAX)),
            permits_of_others: Arc::new(Semaphore::new(limits::MANIFEST_READS_OF_OTHERS_MAX)),
        }
    }
}

impl ManifestLoads {
    /// The disk with its manifest in memory, where it stays for a while. No thread of the runtime waits
    /// for the local disk.
    ///
    /// Whoever waits for a manifest that is being read holds no permit of the others'. All but guests
    /// have a part of the permits only, and wait for it before a guest could wait for them.
    ///
    /// # Errors
    /// [`ReadError::Manifest`], [`ReadError::Stopped`].
    ///
    /// # Cancel safety
    /// A manifest that is being read is read to the end, for whoever needs it next.
    pub(crate) async fn load(
        &self,
        sources: &Arc<Sources>,
        attachment: &Arc<Attachment>,
        priority: Priority,
    ) -> Result<Arc<DiskView>, ReadError> {
        if let Some(view) = attachment.at_hand() {
            return Ok(view);
        }
        let share = match priority {
            Priority::Guest => None,
            _ => {
                let turn = attachment.turn_of_others.clone().lock_owned().await;
                if let Some(view) = attachment.at_hand() {
                    return Ok(view);
                }
                let permit = self.permits_of_others.clone().acquire_owned().await;
                Some((turn, permit.map_err(|_| ReadError::Stopped)?))
            }
        };
        let turn = attachment.turn.clone().lock_owned().await;
        if let Some(view) = attachment.at_hand() {
            return Ok(view);
        }
        let permit = self.permits.clone().acquire_owned().await;
        let permit = permit.map_err(|_| ReadError::Stopped)?;
        let runtime = sources.runtime.clone();
        let (sources, attachment) = (sources.clone(), attachment.clone());
        let read = runtime.spawn_blocking(move || {
            let _held = (share, turn, permit);
            attachment.load(&sources)
        });
        read.await.unwrap_or(Err(ReadError::Stopped))
    }
}
