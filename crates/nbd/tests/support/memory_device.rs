//! A device in memory.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use acstor_overlay::{
    BlockDevice, DeviceError, DeviceErrorKind, DeviceExtent, DeviceFuture, DeviceUse, Done,
    ExtentQuery, Piece, SECTOR_BYTES, TryRead, ZeroHow,
};
use acstor_readpath::Segment;
use bytes::Bytes;
use parking_lot::Mutex;

const PAGE: u64 = 4096;
/// Pages under one lock.
const PAGES_PER_SHARD: u64 = 64;

#[derive(Clone, Default)]
struct Page {
    /// `None` is a hole.
    bytes: Option<Bytes>,
    is_dirty: bool,
}

/// A device in memory: pages of 4 KiB, holes where nothing was written.
pub struct MemoryDevice {
    size: AtomicU64,
    shards: Vec<Mutex<Vec<Page>>>,
    pub flushes: AtomicU64,
    pub durable_writes: AtomicU64,
    pub uses: Arc<Mutex<Vec<Noted>>>,
}

/// News of the use of a device, with the number of the client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Noted {
    Opened(u64),
    Arrived(u64, u64, usize),
    Closed(u64),
}

/// Notes the use by one client.
struct NotedUse(u64, Arc<Mutex<Vec<Noted>>>);

impl DeviceUse for NotedUse {
    fn arrived(&self, offset: u64, len: usize) {
        self.1.lock().push(Noted::Arrived(self.0, offset, len));
    }
}

impl Drop for NotedUse {
    fn drop(&mut self) {
        self.1.lock().push(Noted::Closed(self.0));
    }
}

impl MemoryDevice {
    /// A device of `size` bytes, which may grow to `size_max`.
    pub fn new(size: u64, size_max: u64) -> MemoryDevice {
        let shards = size_max.div_ceil(PAGE * PAGES_PER_SHARD);
        let empty = || Mutex::new(vec![Page::default(); PAGES_PER_SHARD as usize]);
        MemoryDevice {
            size: AtomicU64::new(size),
            shards: (0..shards).map(|_| empty()).collect(),
            flushes: AtomicU64::new(0),
            durable_writes: AtomicU64::new(0),
            uses: Arc::default(),
        }
    }

    pub fn grow(&self, size: u64) {
        self.size.store(size, Ordering::Release);
    }

    /// Everything is on the origin now.
    pub fn mark_pushed(&self) {
        for shard in &self.shards {
            shard.lock().iter_mut().for_each(|page| page.is_dirty = false);
        }
    }

    /// The bytes of a range, as the tests compare them.
    pub fn content(&self, offset: u64, len: usize) -> Vec<u8> {
        let mut content = Vec::with_capacity(len);
        for piece in self.pieces(offset, len) {
            match piece {
                Piece::Base(Segment::Zeros(len)) => content.resize(content.len() + len, 0),
                Piece::Base(Segment::Bytes(bytes)) => content.extend_from_slice(&bytes),
                other => assert!(other.is_empty(), "no such piece here: {other:?}"),
            }
        }
        content
    }

    fn page<R>(&self, index: u64, look: impl FnOnce(&mut Page) -> R) -> R {
        let mut shard = self.shards[(index / PAGES_PER_SHARD) as usize].lock();
        look(&mut shard[(index % PAGES_PER_SHARD) as usize])
    }

    /// Calls `each` with the index of every page of a range and the part of it that the range covers.
    fn each_page(offset: u64, len: u64, mut each: impl FnMut(u64, usize, usize)) {
        let mut at = offset;
        let end = offset + len;
        while at < end {
            let start = at % PAGE;
            let part = (PAGE - start).min(end - at);
            each(at / PAGE, start as usize, part as usize);
            at += part;
        }
    }

    fn pieces(&self, offset: u64, len: usize) -> Vec<Piece> {
        let mut pieces = Vec::with_capacity(len / PAGE as usize + 2);
        Self::each_page(offset, len as u64, |index, start, part| {
            pieces.push(Piece::Base(self.page(index, |page| match &page.bytes {
                Some(bytes) => Segment::Bytes(bytes.slice(start..start + part)),
                None => Segment::Zeros(part),
            })));
        });
        pieces
    }

    fn check(&self, offset: u64, len: u64) -> Result<(), DeviceError> {
        let is_inside = offset.checked_add(len).is_some_and(|end| end <= self.size_bytes());
        if is_inside && (offset | len).is_multiple_of(SECTOR_BYTES) {
            return Ok(());
        }
        Err(DeviceError::new(DeviceErrorKind::Invalid, "not inside, or not whole sectors"))
    }

    fn zero(&self, offset: u64, len: u64, fua: bool) -> Done<()> {
        if let Err(error) = self.check(offset, len) {
            return Done::Now(Err(error));
        }
        Self::each_page(offset, len, |index, start, part| {
            self.page(index, |page| {
                page.is_dirty = true;
                page.bytes = match page.bytes.take() {
                    Some(bytes) if part < PAGE as usize => {
                        let mut bytes = bytes.to_vec();
                        bytes[start..start + part].fill(0);
                        Some(Bytes::from(bytes))
                    }
                    _ => None,
                };
            });
        });
        self.durable_writes.fetch_add(u64::from(fua), Ordering::Relaxed);
        Done::Now(Ok(()))
    }
}

impl BlockDevice for MemoryDevice {
    fn size_bytes(&self) -> u64 {
        self.size.load(Ordering::Acquire)
    }

    fn is_read_only(&self) -> bool {
        false
    }

    fn opened(&self, client: u64) -> Option<Box<dyn DeviceUse>> {
        self.uses.lock().push(Noted::Opened(client));
        Some(Box::new(NotedUse(client, self.uses.clone())))
    }

    fn try_read(&self, offset: u64, len: usize) -> Result<TryRead, DeviceError> {
        self.check(offset, len as u64)?;
        Ok(TryRead::Ready(self.pieces(offset, len)))
    }

    fn read(&self, offset: u64, len: usize) -> DeviceFuture<Vec<Piece>> {
        let outcome = self.check(offset, len as u64).map(|()| self.pieces(offset, len));
        Box::pin(async move { outcome })
    }

    fn write(&self, offset: u64, data: Bytes, fua: bool) -> Done<()> {
        if let Err(error) = self.check(offset, data.len() as u64) {
            return Done::Now(Err(error));
        }
        let mut rest = data;
        Self::each_page(offset, rest.len() as u64, |index, start, part| {
            let fresh = rest.split_to(part);
            self.page(index, |page| {
                page.is_dirty = true;
                if part == PAGE as usize {
                    page.bytes = Some(Bytes::copy_from_slice(&fresh));
                    return;
                }
                let mut bytes =
                    page.bytes.take().map_or_else(|| vec![0; PAGE as usize], |old| old.to_vec());
                bytes[start..start + part].copy_from_slice(&fresh);
                page.bytes = Some(Bytes::from(bytes));
            });
        });
        self.durable_writes.fetch_add(u64::from(fua), Ordering::Relaxed);
        Done::Now(Ok(()))
    }

    fn write_zeroes(&self, offset: u64, len: u64, how: ZeroHow) -> Done<()> {
        self.zero(offset, len, how.fua)
    }

    fn trim(&self, offset: u64, len: u64, fua: bool) -> Done<()> {
        self.zero(offset, len, fua)
    }

    fn flush(&self) -> Done<()> {
        self.flushes.fetch_add(1, Ordering::Relaxed);
        Done::Now(Ok(()))
    }

    fn extents(&self, offset: u64, len: u64, _: ExtentQuery, max: usize) -> Vec<DeviceExtent> {
        let mut extents: Vec<DeviceExtent> = Vec::new();
        Self::each_page(offset, len, |index, _, part| {
            let (is_hole, is_dirty) =
                self.page(index, |page| (page.bytes.is_none(), page.is_dirty));
            match extents.last_mut() {
                Some(last) if last.is_hole == is_hole && last.is_dirty == is_dirty => {
                    last.len += part as u64;
                }
                _ => extents.push(DeviceExtent {
                    len: part as u64,
                    is_hole,
                    is_zero: is_hole,
                    is_dirty,
                }),
            }
        });
        extents.truncate(max);
        extents
    }

    fn prefetch(&self, offset: u64, len: u64) -> Done<()> {
        Done::Now(self.check(offset, len))
    }
}
