//! A disk whose manifest may not be in memory, as the front ends read it.

use std::sync::Arc;

use crate::fetch::flight::Side;
use crate::fetch::sources::Sources;
use crate::view::PrepareFuture;
use crate::view::attachment::Attachment;
use crate::view::disk_view::{DiskView, note_opened};
use crate::{BlockView, ExtentKind, ReadDone, ReadError, ReadFuture, TryRead};

/// Reads one attached disk, whose manifest is brought into memory when it is needed.
pub(crate) struct OfferedView {
    pub(crate) attachment: Arc<Attachment>,
    pub(crate) sources: Arc<Sources>,
}

impl Sources {
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
        self: &Arc<Self>,
        attachment: &Arc<Attachment>,
        side: Side,
    ) -> Result<Arc<DiskView>, ReadError> {
        if let Some(view) = attachment.at_hand() {
            return Ok(view);
        }
        let share = match side {
            Side::Guest => None,
            Side::Peer | Side::Preload | Side::Prefetch => {
                let turn = attachment.turn_of_others.clone().lock_owned().await;
                if let Some(view) = attachment.at_hand() {
                    return Ok(view);
                }
                let permit = self.manifest_permits_of_others.clone().acquire_owned().await;
                Some((turn, permit.map_err(|_| ReadError::Stopped)?))
            }
        };
        let turn = attachment.turn.clone().lock_owned().await;
        if let Some(view) = attachment.at_hand() {
            return Ok(view);
        }
        let permit = self.manifest_permits.clone().acquire_owned().await;
        let permit = permit.map_err(|_| ReadError::Stopped)?;
        let (sources, attachment) = (self.clone(), attachment.clone());
        let read = self.runtime.spawn_blocking(move || {
            let _held = (share, turn, permit);
            attachment.load(&sources)
        });
        read.await.unwrap_or(Err(ReadError::Stopped))
    }
}

impl BlockView for OfferedView {
    fn size_bytes(&self) -> u64 {
        self.attachment.header.size_bytes
    }

    fn opened(&self) {
        note_opened(&self.attachment.records, &self.sources);
    }

    fn prepare(&self) -> Option<PrepareFuture> {
        if self.attachment.at_hand().is_some() {
            return None;
        }
        let (attachment, sources) = (self.attachment.clone(), self.sources.clone());
        Some(Box::pin(async move { sources.load(&attachment, Side::Guest).await.map(drop) }))
    }

    fn try_read(&self, offset: u64, len: usize) -> Result<TryRead, ReadError> {
        match self.attachment.view.load().as_ref() {
            Some(view) => view.try_read(offset, len),
            None => Ok(TryRead::WouldWait),
        }
    }

    fn read(&self, offset: u64, len: usize) -> ReadFuture {
        let (attachment, sources) = (self.attachment.clone(), self.sources.clone());
        Box::pin(
            async move { sources.load(&attachment, Side::Guest).await?.read(offset, len).await },
        )
    }

    fn start_read(&self, offset: u64, len: usize, done: ReadDone) {
        match self.attachment.view.load().as_ref() {
            Some(view) => view.start_read(offset, len, done),
            None => done(None),
        }
    }

    /// Without the manifest all of the disk counts as data.
    fn next_extent(&self, offset: u64, kind: ExtentKind) -> Option<u64> {
        if let Some(view) = self.attachment.view.load().as_ref() {
            return view.next_extent(offset, kind);
        }
        let size = self.size_bytes();
        let next = if kind == ExtentKind::Data { offset } else { size };
        (offset < size).then_some(next)
    }

    /// Counted only while the manifest is in memory; as counted last otherwise.
    fn cached_bytes(&self) -> u64 {
        match self.attachment.view.load().as_ref() {
            Some(view) => view.cached_bytes(),
            None => self.attachment.records.cached.last(),
        }
    }
}
