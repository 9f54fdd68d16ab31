//! Look-ups that wait: pages of manifests read from this host's disk, some at a time.

use std::sync::Arc;

use acstor_runclock::RunInstant;
use acstor_types::ErrorKind;
use tokio::sync::Semaphore;

use crate::fetch::flight::Priority;
use crate::fetch::sources::{Sources, Want};
use crate::pages::page_failure::PageFailure;
use crate::view::disk::Disk;
use crate::view::disk_map::MapFault;
use crate::view::manifest_source::ManifestFault;
use crate::{ReadError, limits};

/// The permits of look-ups that read pages of manifests.
pub(crate) struct PageReads {
    /// One per look-up.
    permits: Arc<Semaphore>,
    /// One per look-up for anybody but a guest.
    permits_of_others: Arc<Semaphore>,
}

impl Default for PageReads {
    fn default() -> PageReads {
        PageReads {
            permits: Arc::new(Semaphore::new(limits::PAGE_READS_MAX)),
            permits_of_others: Arc::new(Semaphore::new(limits::PAGE_READS_OF_OTHERS_MAX)),
        }
    }
}

impl Sources {
    /// Returns what must be obtained for chunks of a disk, one answer per index. Where all pages are in
    /// memory nothing is waited for; else a thread that may wait reads them, and pages that are not here are
    /// brought from the origin, at most until `deadline`.
    ///
    /// # Errors
    /// [`ReadError::Manifest`], [`ReadError::Deadline`], [`ReadError::Stopped`].
    ///
    /// # Cancel safety
    /// Pages that are being read are kept, for whoever needs them next.
    pub(crate) async fn wants<I>(
        &self,
        disk: &Arc<Disk>,
        indexes: I,
        priority: Priority,
        deadline: RunInstant,
    ) -> Result<Vec<Option<Want>>, ReadError>
    where
        I: Iterator<Item = u64> + Clone + Send + 'static,
    {
        let found = indexes.clone().map(|index| disk.want_at_hand(index));
        match found.collect::<Result<Vec<_>, MapFault>>() {
            Ok(found) => return Ok(found),
            Err(MapFault::Damaged(fault)) => return Err(disk.read_error(fault)),
            Err(MapFault::Missing) => {}
        }
        let look_up = move |disk: &Disk| indexes.clone().map(|index| disk.want(index)).collect();
        self.look_up(disk, priority, deadline, look_up).await
    }

    /// Runs a look-up that may wait for this host's disk, on a thread that may; again when a page that it
    /// did not find has been brought from the origin, which no permit waits for.
    ///
    /// # Errors
    /// As [`Sources::wants`].
    ///
    /// # Cancel safety
    /// As of [`Sources::wants`].
    pub(crate) async fn look_up<T, L>(
        &self,
        disk: &Arc<Disk>,
        priority: Priority,
        deadline: RunInstant,
        look_up: L,
    ) -> Result<T, ReadError>
    where
        T: Send + 'static,
        L: Fn(&Disk) -> Result<T, ManifestFault> + Clone + Send + 'static,
    {
        let reads = async {
            loop {
                match self.look_up_once(disk, priority, look_up.clone()).await? {
                    Ok(found) => {
                        disk.records.health.succeeded();
                        return Ok(found);
                    }
                    Err(fault) => self.bring_page(disk, priority, fault).await?,
                }
            }
        };
        self.clock.timeout_at(deadline, reads).await.unwrap_or_else(|_| {
            Err(ReadError::Deadline(self.config.read_deadline.as_millis() as u64))
        })
    }

    async fn look_up_once<T: Send + 'static>(
        &self,
        disk: &Arc<Disk>,
        priority: Priority,
        look_up: impl FnOnce(&Disk) -> Result<T, ManifestFault> + Send + 'static,
    ) -> Result<Result<T, ManifestFault>, ReadError> {
        // Others wait among themselves before a guest could wait for them.
        let share = match priority {
            Priority::Guest => None,
            _ => {
                let permit = self.page_reads.permits_of_others.clone().acquire_owned().await;
                Some(permit.map_err(|_| ReadError::Stopped)?)
            }
        };
        let permit = self.page_reads.permits.clone().acquire_owned().await;
        let permit = permit.map_err(|_| ReadError::Stopped)?;
        let on_thread = disk.clone();
        let read = self.runtime.spawn_blocking(move || {
            let _held = (share, permit);
            look_up(&on_thread)
        });
        read.await.map_err(|_| ReadError::Stopped)
    }

    /// Brings the page for want of which a look-up failed; of a fault for another reason returns the error
    /// of a read.
    async fn bring_page(
        &self,
        disk: &Arc<Disk>,
        priority: Priority,
        fault: ManifestFault,
    ) -> Result<(), ReadError> {
        let absent = fault.absent.and_then(|absent| Some((absent, disk.level(&absent)?)));
        let Some((absent, level)) = absent else { return Err(disk.read_error(fault)) };
        let _waiting = (priority == Priority::Guest).then(|| self.waiting_reads.enter());
        let brought = self.page_fetches.bring(&level, absent.page).await;
        brought.map_err(|failure| match failure {
            PageFailure::Stopped => ReadError::Stopped,
            PageFailure::Local(fault) => disk.read_error(fault),
            // Neither here nor there: whoever attaches it anew finds out whether it is again.
            failure if failure.is_missing() => {
                let message = format!("{}, and {failure}", fault.message);
                disk.read_error(ManifestFault::new(ErrorKind::Corrupt, message))
            }
            // Attached anew it would be no better.
            failure => {
                let reason = format!("{}, and {failure}", fault.message);
                ReadError::Manifest { disk: disk.id(), is_damaged: true, reason }
            }
        })
    }
}
