//! Ordering what a boot will read, along its profile or the hints of others that boot the same image, from the
//! moment at which the disk is opened.
//!
//! One task per open. Each chunk goes through the single flight with a priority behind all demand; what the
//! guest comes to wait for meanwhile is promoted there. What came waits in memory of its own until it is
//! read, and reaches the chunk store only then, or where this host owns it.

use std::sync::Arc;

use acstor_selection::limits::READ_AHEAD_IN_ORDER;
use tokio::time::{Instant, sleep, sleep_until};

use crate::ahead::read_aheads::OpenAhead;
use crate::fetch::flight::Priority;
use crate::fetch::outcome::AheadBytes;
use crate::fetch::sources::{Sources, Want};
use crate::limits;
use crate::view::attachment::DiskRecords;
use crate::view::disk::Disk;
use crate::view::disk_shape::DiskShape;

/// Begins to read ahead of an open, where the disk has a profile, or hosts tell each other what they miss.
/// `disk`: the disk, once its manifest is
/// in memory; `None` where it cannot be read.
pub(crate) fn begin(
    sources: &Arc<Sources>,
    records: &Arc<DiskRecords>,
    shape: &DiskShape,
    disk: impl Future<Output = Option<Arc<Disk>>> + Send + 'static,
) {
    let chunk_bytes = shape.chunk_size.bytes() as u64;
    let begun = match records.boot_profile.load_full() {
        Some(profile) => records.read_aheads.begin(sources, profile, chunk_bytes),
        None => records.read_aheads.begin_hinted(sources, shape),
    };
    let Some(open) = begun else { return };
    let (sources, records) = (sources.clone(), records.clone());
    sources.runtime.clone().spawn(async move {
        let reading = Reading { open, records, sources, chunk_bytes };
        if let Some(disk) = disk.await {
            reading.run(&disk).await;
        }
        reading.records.read_aheads.remove(&reading.open);
        reading.end().await;
    });
}

/// The task of one open.
struct Reading {
    open: Arc<OpenAhead>,
    records: Arc<DiskRecords>,
    sources: Arc<Sources>,
    chunk_bytes: u64,
}

impl Reading {
    /// Orders until nothing is left, the handle is closed, or the window of a boot is over.
    async fn run(&self, disk: &Arc<Disk>) {
        let mut age_at = Instant::now() + limits::EXCHANGE_AGE_LOOK;
        loop {
            let freed = self.sources.ahead_room.freed();
            tokio::pin!(freed);
            freed.as_mut().enable();
            if self.open.is_closed() {
                return;
            }
            if Instant::now() >= age_at {
                self.open.age(&self.sources);
                age_at = Instant::now() + limits::EXCHANGE_AGE_LOOK;
            }
            self.order(disk).await;
            if self.open.is_over() || Instant::now() >= self.open.until() {
                return;
            }
            tokio::select! {
                () = self.open.wake.notified() => {}
                () = freed => {}
                () = sleep_until(self.open.until().min(age_at)) => {}
            }
        }
    }

    /// Bytes that may be ordered now: over a full link as few as keep it busy. They go behind all demand,
    /// and a guest there has the most to win.
    fn room(&self) -> u64 {
        let is_full = self.sources.steering.is_own_link_slow();
        let (under_way, memory) = (&self.sources.ahead_room, &self.sources.chunks.ahead);
        let unclaimed = memory.room().saturating_sub(under_way.under_way());
        under_way.left(is_full, self.chunk_bytes).min(unclaimed)
    }

    /// Orders what the window and the room allow.
    async fn order(&self, disk: &Arc<Disk>) {
        loop {
            let others = self.records.read_aheads.beside(&self.open);
            let chunks = self.open.next(others, self.room());
            if chunks.is_empty() {
                return;
            }
            let Some(lacking) = self.lacking(disk, chunks).await else { return };
            lacking.iter().for_each(|(chunk, want)| self.start(disk, *chunk, want));
        }
    }

    /// Looks up chunks to order; returns those that are not here: the next few in the order of the boot,
    /// the others as they lie in the origin, so that neighbours leave it together. `None`: nothing more is
    /// to be ordered now.
    async fn lacking(&self, disk: &Arc<Disk>, chunks: Vec<u32>) -> Option<Vec<(u32, Want)>> {
        let deadline = self.sources.clock.now() + self.sources.config.origin_deadline;
        let indexes = chunks.clone().into_iter().map(u64::from);
        let wants = self.sources.wants(disk, indexes, Priority::Ahead, deadline).await;
        let Ok(wants) = wants else {
            // Whoever reads there is told what is wrong with the manifest.
            chunks.iter().for_each(|chunk| self.open.present(*chunk));
            return None;
        };
        if self.open.is_closed() {
            chunks.iter().for_each(|chunk| self.open.put_back(*chunk));
            return None;
        }
        let mut lacking: Vec<(u32, Want)> = Vec::with_capacity(wants.len());
        for (chunk, want) in chunks.into_iter().zip(wants) {
            match want {
                Some(want) if self.open.claim(&self.sources, chunk, want.digest) => {}
                Some(want) if !self.sources.chunks.is_here(&want.digest) => {
                    lacking.push((chunk, want));
                }
                _ => self.open.present(chunk),
            }
        }
        let next = lacking.len().min(READ_AHEAD_IN_ORDER as usize);
        lacking[next..]
            .sort_by_key(|(_, want)| (want.place.location.pack.0, want.place.location.offset));
        Some(lacking)
    }

    /// Starts to obtain a chunk. Does not wait.
    fn start(&self, disk: &Arc<Disk>, chunk: u32, want: &Want) {
        let sources = self.sources.clone();
        let deadline = sources.clock.now() + sources.config.origin_deadline;
        let under_way = sources.ahead_room.enter(self.chunk_bytes);
        let flight = sources.obtain(disk, want, Priority::Ahead, deadline);
        self.open.count(&sources, AheadBytes::Ordered, self.chunk_bytes);
        self.open.ordered(chunk, &flight);
        let open = self.open.clone();
        self.sources.runtime.spawn(async move {
            let outcome = flight.wait(deadline).await;
            open.landed(&sources, chunk, flight.digest, &outcome);
            drop(under_way);
        });
    }

    /// Ends the read-ahead; what it brought is kept for a while for the next open.
    async fn end(&self) {
        let (right, wasted) = self.open.end(&self.sources);
        self.open.count(&self.sources, AheadBytes::Wasted, wasted);
        tracing::debug!(right, wasted, "read-ahead of an open has ended");
        sleep(limits::LEFT_AHEAD_AGE_MAX).await;
        self.sources.chunks.ahead.expire();
    }
}
