//! Copies that the pool does not need: the first to leave.
//!
//! Each host walks its own store from the cold end. Of a chunk that it neither owns nor keeps for
//! itself it asks those who should rather have it; where enough of them do, its own copy becomes the
//! first to leave. Nobody lists the pool.
//!
//! Never the last copy: a host stops claiming a chunk *before* it asks others about it. Let all who
//! give a chunk up be ordered by when they stopped to claim it: whoever was last found only others
//! who still claimed it, and of those who give it up none did. So somebody who keeps it remains,
//! whatever the rings look like and however requests overtake each other.
//!
//! Source: ACStor §3.5 (distributed deduplication: copies beyond a threshold are deleted by LRU).
//! Differs: copies are not counted in one place; and they are demoted, not deleted: until the room
//! is needed a copy that is used again is worth having, and a free slot is worth nothing.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use acstor_peer::frame::HOLDS_MAX;
use acstor_store::Cursor;
use acstor_types::{Digest, Oid};
use tokio::time::Instant;

use crate::fetch::outcome::Deduplication;
use crate::fetch::sources::Sources;
use crate::keeping::claims::Claims;
use crate::limits;
use crate::steering::placement::Candidate;
use crate::view::attachments::Attachments;
use crate::view::disk::Disk;

/// Position of the walk of one host.
#[derive(Debug, Default)]
pub struct Walk {
    cursor: Cursor,
    seen: u64,
}

/// Place of a cold chunk, as far as the attached disks say.
#[derive(Debug)]
enum Place {
    /// In the working set of an attached disk.
    Wanted,
    /// The positions of the chunk on the ring.
    At(HashSet<Oid>),
}

/// Walks the chunk store of one host and demotes the copies that the pool does not need.
pub(crate) struct Deduplicator {
    sources: Arc<Sources>,
    attachments: Arc<Attachments>,
    claims: Arc<Claims>,
}

impl Deduplicator {
    pub(crate) fn new(
        sources: Arc<Sources>,
        attachments: Arc<Attachments>,
        claims: Arc<Claims>,
    ) -> Deduplicator {
        Deduplicator { sources, attachments, claims }
    }

    /// Walks for ever; does nothing where copies are not limited.
    pub(crate) async fn run(self: &Arc<Self>) {
        if self.sources.config.copies_max == 0 {
            return;
        }
        let mut walk = Walk::default();
        loop {
            tokio::time::sleep(limits::DEDUPLICATION_INTERVAL).await;
            let usage = self.sources.chunks.store.usage();
            let is_full =
                usage.used_bytes * 100 >= usage.capacity_bytes * limits::DEDUPLICATION_FILL_PERCENT;
            if is_full && !self.sources.is_draining() {
                self.walk_some(&mut walk).await;
            }
        }
    }

    /// Looks at the next cold chunks, however full the store is.
    pub(crate) async fn walk_some(self: &Arc<Self>, walk: &mut Walk) {
        let walker = self.clone();
        let mut cursor = walk.cursor;
        // Reads records and looks through manifests: not among the tasks that answer reads.
        let found = tokio::task::spawn_blocking(move || {
            let store = &walker.sources.chunks.store;
            let cold = store.coldest(&mut cursor, limits::DEDUPLICATION_CHUNKS);
            let places = walker.places(&cold);
            (cursor, cold, places)
        });
        let Ok((cursor, cold, places)) = found.await else { return };
        walk.cursor = cursor;
        walk.seen += limits::DEDUPLICATION_CHUNKS as u64;
        let usage = self.sources.chunks.store.usage();
        let chunk = self.sources.chunks.store.chunk_size().bytes() as u64;
        let depth = usage.capacity_bytes / chunk * limits::DEDUPLICATION_DEPTH_PERCENT / 100;
        if walk.cursor.is_at_cold_end() || walk.seen >= depth {
            *walk = Walk::default();
        }
        let unplaced = cold.len() - places.len();
        self.sources.metrics.deduplicated(Deduplication::Unplaced, unplaced as u64);
        let mut candidates = Vec::new();
        for (digest, place) in places {
            match self.better_placed(&place) {
                Ok(better) => candidates.push((digest, better)),
                Err(outcome) => self.sources.metrics.deduplicated(outcome, 1),
            }
        }
        self.give_up(candidates).await;
    }

    /// Returns the hosts that should rather have a chunk; or the reason for which this host keeps
    /// it in any case.
    fn better_placed(&self, place: &Place) -> Result<Vec<Candidate>, Deduplication> {
        let Place::At(positions) = place else { return Err(Deduplication::Wanted) };
        let sources = &self.sources;
        let mut better: Vec<Candidate> = Vec::new();
        for oid in positions {
            let line = sources.steering.placement.better_placed(*oid, &sources.steering.peers);
            if line.is_empty() {
                return Err(Deduplication::Ours);
            }
            for candidate in line {
                if better.iter().all(|known| known.peer.name != candidate.peer.name) {
                    better.push(candidate);
                }
            }
        }
        if better.len() < sources.config.copies_max {
            return Err(Deduplication::TooFew);
        }
        Ok(better)
    }

    /// Demotes those of the chunks that enough others keep.
    async fn give_up(&self, chunks: Vec<(Digest, Vec<Candidate>)>) {
        // First this, then the questions: see the module's text.
        let _withdrawn = self.claims.offer(chunks.iter().map(|(digest, _)| *digest).collect());
        let mut by_peer: HashMap<Arc<str>, (Arc<str>, Vec<Digest>)> = HashMap::new();
        for (digest, better) in &chunks {
            for one in better {
                let entry = by_peer.entry(one.peer.name.clone());
                let (_, digests) = entry.or_insert_with(|| (one.address.clone(), Vec::new()));
                digests.push(*digest);
            }
        }
        let mut copies: HashMap<Digest, usize> = HashMap::new();
        for (address, digests) in by_peer.into_values() {
            for batch in digests.chunks(HOLDS_MAX) {
                let deadline = Instant::now() + self.sources.config.peer_deadline;
                let asked = self.sources.peers.holds(&address, batch.to_vec(), deadline);
                let Ok(held) = asked.await else { break };
                let kept = batch.iter().zip(held).filter(|(_, is_held)| *is_held);
                kept.for_each(|(digest, _)| *copies.entry(*digest).or_default() += 1);
            }
        }
        for (digest, _) in &chunks {
            let is_enough =
                copies.get(digest).copied().unwrap_or(0) >= self.sources.config.copies_max;
            if is_enough {
                self.sources.chunks.store.demote(digest);
            }
            let outcome = if is_enough { Deduplication::Demoted } else { Deduplication::TooFew };
            self.sources.metrics.deduplicated(outcome, 1);
        }
    }

    /// Finds where chunks are in the attached disks.
    fn places(&self, digests: &[Digest]) -> HashMap<Digest, Place> {
        let wanted: HashSet<u64> = digests.iter().map(Digest::prefix_u64).collect();
        let known: HashSet<Digest> = digests.iter().copied().collect();
        let mut places = HashMap::new();
        for attachment in self.attachments.all() {
            // Of those that are not in memory one after the other; none is kept there.
            if let Ok(disk) = attachment.read(&self.sources) {
                self.places_on(&disk, &wanted, &known, &mut places);
            }
        }
        places
    }

    fn places_on(
        &self,
        disk: &Disk,
        wanted: &HashSet<u64>,
        known: &HashSet<Digest>,
        places: &mut HashMap<Digest, Place>,
    ) {
        let working_set = disk.records.working_set.load_full();
        let is_in_working_set = |index: u64| {
            let indexes = working_set.as_ref().map(|chunks| chunks.indexes());
            let index = u32::try_from(index).ok();
            indexes.zip(index).is_some_and(|(indexes, index)| indexes.binary_search(&index).is_ok())
        };
        let looked = disk.visit_digests(0..disk.shape.chunk_count, |index, digest| {
            if !wanted.contains(&digest.prefix_u64()) || !known.contains(&digest) {
                return Ok(());
            }
            if is_in_working_set(index) {
                places.insert(digest, Place::Wanted);
                return Ok(());
            }
            let oid = disk.oid(index)?;
            let place = places.entry(digest).or_insert_with(|| Place::At(HashSet::new()));
            if let Place::At(positions) = place {
                positions.insert(oid);
            }
            Ok(())
        });
        // What is known of a manifest that is not whole here has to do.
        if let Err(fault) = looked
            && fault.absent.is_none()
        {
            disk.read_error(fault);
        }
    }
}
