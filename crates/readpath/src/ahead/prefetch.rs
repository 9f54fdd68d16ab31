//! Fetching ahead of sequential readers, within what demand leaves over.

use std::ops::Range;
use std::sync::{Arc, Weak};

use crate::ahead::streams::StreamUpdate;
use crate::fetch::flight::{Flight, Priority};
use crate::fetch::outcome::Prefetch;
use crate::fetch::sources::{Sources, Want};
use crate::view::disk::Disk;

/// The fetches ahead of one host's readers: its sources, within their permits.
pub(crate) struct Prefetcher<'a>(pub(crate) &'a Arc<Sources>);

impl Prefetcher<'_> {
    /// Carries out what a read means for the prefetch.
    pub(crate) fn follow(&self, disk: &Arc<Disk>, update: StreamUpdate) {
        if update.used > 0 {
            self.0.metrics.prefetch(Prefetch::Used, update.used);
        }
        self.give_up(&update.wasted);
        if let Some((stream, range)) = update.order {
            let (sources, disk) = (self.0.clone(), disk.clone());
            // Not on the front end's thread: the answer goes out first.
            self.0
                .runtime
                .spawn(async move { Prefetcher(&sources).prefetch(&disk, stream, range).await });
        }
    }

    async fn prefetch(&self, disk: &Arc<Disk>, stream: u64, range: Range<u64>) {
        let mut issued: Vec<(u64, Weak<Flight>)> = Vec::new();
        let range = range.start..range.end.min(disk.shape.chunk_count);
        let deadline = self.0.clock.now() + self.0.config.origin_deadline;
        let wants = self.0.wants(disk, range.clone(), Priority::Prefetch, deadline).await;
        // Whoever reads there is told what is wrong with the manifest.
        let Ok(wants) = wants else { return };
        for (index, want) in range.zip(wants) {
            let Some(want) = want.filter(|want| !self.0.chunks.is_here(&want.digest)) else {
                continue;
            };
            match self.prefetch_chunk(disk, &want) {
                Some(flight) => issued.push((index, Arc::downgrade(&flight))),
                None => {
                    self.0.metrics.prefetch(Prefetch::Denied, 1);
                    break;
                }
            }
        }
        if !issued.is_empty() {
            self.0.metrics.prefetch(Prefetch::Issued, issued.len());
            let late = disk.streams.issued(stream, issued);
            self.give_up(&late);
        }
    }

    /// Starts to obtain a chunk ahead; `None` where as many are under way as may be.
    fn prefetch_chunk(&self, disk: &Arc<Disk>, want: &Want) -> Option<Arc<Flight>> {
        let permit = self.0.prefetch_permits.clone().try_acquire_owned().ok()?;
        let deadline = self.0.clock.now() + self.0.config.origin_deadline;
        let flight = self.0.obtain(disk, want, Priority::Prefetch, deadline);
        let watched = flight.clone();
        self.0.runtime.spawn(async move {
            let _ = watched.wait(deadline).await;
            drop(permit);
        });
        Some(flight)
    }

    fn give_up(&self, flights: &[Weak<Flight>]) {
        if flights.is_empty() {
            return;
        }
        self.0.metrics.prefetch(Prefetch::Wasted, flights.len());
        for flight in flights.iter().filter_map(Weak::upgrade) {
            flight.revoke();
        }
    }
}
