//! A disk whose manifest may not be in memory, as the front ends read it.

use std::sync::Arc;

use crate::ahead::disk_boots::DiskBoots;
use crate::ahead::read_ahead;
use crate::fetch::flight::Priority;
use crate::fetch::sources::Sources;
use crate::view::PrepareFuture;
use crate::view::attachment::Attachment;
use crate::view::disk_view::note_opened;
use crate::{BlockView, ExtentKind, ReadDone, ReadError, ReadFuture, TryRead};

/// Reads one attached disk, whose manifest is brought into memory when it is needed.
pub(crate) struct OfferedView {
    pub(crate) attachment: Arc<Attachment>,
    pub(crate) sources: Arc<Sources>,
    /// As that of [`DiskView`](crate::view::disk_view::DiskView).
    pub(crate) is_recorded: bool,
}

impl BlockView for OfferedView {
    fn size_bytes(&self) -> u64 {
        self.attachment.shape.size_bytes
    }

    fn opened(&self) {
        note_opened(&self.attachment.records, &self.sources);
        let (attachment, sources) = (self.attachment.clone(), self.sources.clone());
        let shape = &self.attachment.shape;
        read_ahead::begin(&self.sources, &self.attachment.records, shape, async move {
            let view = sources.manifest_loads.load(&sources, &attachment, Priority::Ahead).await;
            view.ok().map(|view| view.disk.clone())
        });
    }

    fn closed(&self) {
        self.attachment.records.read_aheads.closed();
    }

    fn unrecorded(&self) -> Option<Arc<dyn BlockView>> {
        let (attachment, sources) = (self.attachment.clone(), self.sources.clone());
        Some(Arc::new(OfferedView { attachment, sources, is_recorded: false }))
    }

    fn boots(&self) -> Option<Arc<DiskBoots>> {
        Some(self.attachment.records.disk_boots.clone())
    }

    fn prepare(&self) -> Option<PrepareFuture> {
        if self.attachment.at_hand().is_some() {
            return None;
        }
        let (attachment, sources) = (self.attachment.clone(), self.sources.clone());
        Some(Box::pin(async move {
            sources.manifest_loads.load(&sources, &attachment, Priority::Guest).await.map(drop)
        }))
    }

    fn try_read(&self, offset: u64, len: usize) -> Result<TryRead, ReadError> {
        match self.attachment.view.load().as_ref() {
            Some(view) if self.is_recorded => view.try_read(offset, len),
            Some(view) => view.again(false).try_read(offset, len),
            None => Ok(TryRead::WouldWait),
        }
    }

    fn read(&self, offset: u64, len: usize) -> ReadFuture {
        let (attachment, sources) = (self.attachment.clone(), self.sources.clone());
        let is_recorded = self.is_recorded;
        Box::pin(async move {
            let loaded =
                sources.manifest_loads.load(&sources, &attachment, Priority::Guest).await?;
            loaded.again(is_recorded).read(offset, len).await
        })
    }

    fn start_read(&self, offset: u64, len: usize, done: ReadDone) {
        match self.attachment.view.load().as_ref() {
            Some(view) => view.again(self.is_recorded).start_read(offset, len, done),
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

    fn prepare_extent(&self, offset: u64, kind: ExtentKind) -> Option<PrepareFuture> {
        self.attachment.view.load().as_ref()?.prepare_extent(offset, kind)
    }

    /// Counted only while the manifest is in memory; as counted last otherwise.
    fn cached_bytes(&self) -> u64 {
        match self.attachment.view.load().as_ref() {
            Some(view) => view.cached_bytes(),
            None => self.attachment.records.cached.last(),
        }
    }
}
