//! The fold: what the overlay holds, merged into packs and a new manifest.
//!
//! A fold begins at the last log object that is stored, F, and reads each chunk as it is then,
//! which may be newer than F. Before it ends, everything that it may have read is pushed, up to an
//! object G. Whoever takes the manifest replays the objects after F over it, and so gets the state
//! at G or later: each byte that is newer than F is overwritten by what made it so. This is how a
//! checkpoint is taken while writes go on, once more.
//!
//! Must never: store a pack or manifest before its name was told, use a salt twice, or put into
//! the manifest what lies in a region of class `none`.

mod fold_base;
mod no_base;
mod paged_base;
mod stored_packs;
mod whole_base;
mod written_chunks;

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use acstor_readpath::DiskManifest;
use acstor_types::{ChunkSize, DedupScope, Digest, DiskId, PackId, is_zero};
use bytes::Bytes;
use hashbrown::HashMap;

use self::fold_base::{Changes, FoldBase, Made, NewPack};
use self::no_base::NoBase;
use self::paged_base::PagedBase;
use self::whole_base::WholeBase;
use self::written_chunks::WrittenChunks;
use crate::core::Core;
use crate::push::cadence::Pace;
use crate::push::origin_log_size::LogSize;
use crate::regions::durability::DurabilityClass;
use crate::segments::extent_map::{Extent, Place};
use crate::segments::range_set::RangeSet;
use crate::segments::record::SECTOR;
use crate::segments::slot_floor::write_floor;
use crate::{OverlayError, limits};

/// A log object: everything up to it is meant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogPosition {
    /// The volume that wrote it.
    pub volume: DiskId,
    /// The owner's epoch.
    pub epoch: u32,
    /// Its sequence number.
    pub sequence: u64,
}

/// Result of a fold.
#[derive(Debug)]
pub struct Folded {
    /// The manifest's bytes, which are in the origin.
    pub content: Bytes,
    /// Name of the manifest.
    pub digest: Digest,
    /// Everything up to this log object is in the manifest, which stands for the disk together
    /// with the objects after it only.
    pub until: LogPosition,
    /// Extents that were read from the overlay, as it was then.
    extents: Vec<Extent>,
    stored: LogSize,
}

/// Told the names of all packs so far and of the manifest, before the newest is stored.
pub type Announce<'a> = dyn FnMut(&[PackId], Option<Digest>) -> Result<(), String> + 'a;

/// Told every chunk that a fold has stored, so that this host keeps it where reads look: what is
/// taken from the overlay need not come back from the origin.
pub type Keep<'a> = dyn Fn(&Digest, &Bytes) + 'a;

/// Options of a fold.
pub struct FoldHow<'a> {
    /// Time over which what it stores is spread; zero: at once.
    pub spread: Duration,
    /// Keeper of its chunks.
    pub keep: &'a Keep<'a>,
    /// Scope of the names of chunks that the base does not have; `None`: they have plain names.
    pub scope: Option<DedupScope>,
    /// True if the first manifest of a volume is one of format 2, whose packs are of version 2. Later ones
    /// are of the format of the first.
    pub is_paged: bool,
}

impl Default for FoldHow<'_> {
    /// At once, its chunks are kept by nobody and have plain names, and a first manifest is of format 1.
    fn default() -> Self {
        FoldHow { spread: Duration::ZERO, keep: &|_, _| {}, scope: None, is_paged: false }
    }
}

impl std::fmt::Debug for FoldHow<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut shown = f.debug_struct("FoldHow");
        shown.field("spread", &self.spread).field("is_paged", &self.is_paged);
        shown.finish_non_exhaustive()
    }
}

impl Folded {
    /// Drops from the overlay what the new base, which is there with `manifest`, holds, where it was not
    /// written since.
    pub(crate) fn drop_from(&self, core: &Core, manifest: DiskManifest) {
        for step in self.extents.chunks(1024) {
            let _head = core.log.head();
            let mut map = core.log.map_mut();
            step.iter().for_each(|extent| map.drop_extent(extent));
        }
        core.origin_log.sub(self.stored);
        *core.manifest.lock() = Some(manifest);
    }
}

/// A fold that is under way.
struct Fold<'a, B: FoldBase> {
    core: &'a Core,
    announce: &'a mut Announce<'a>,
    how: &'a FoldHow<'a>,
    chunk_size: ChunkSize,
    size_bytes: u64,
    base: B,
    changed: Changes<B::Place>,
    /// Places of the content that this fold has stored.
    stored: HashMap<Digest, B::Place>,
    /// Chunks of the packs to come.
    pending: Vec<(u64, Digest, Bytes)>,
    /// Bytes of a pack.
    pack_bytes: usize,
    packs: Vec<PackId>,
    pace: Pace,
    extents: Vec<Extent>,
}

/// Folds; `None`: there is nothing that the manifest does not have.
pub(crate) fn fold(
    core: &Core,
    announce: &mut Announce<'_>,
    how: &FoldHow<'_>,
) -> Result<Option<Folded>, OverlayError> {
    let Some((until, stored)) = begin(core)? else { return Ok(None) };
    let mut announce = |packs: &[PackId], manifest| announce(packs, manifest);
    let (made, extents) = run_over_base(core, &mut announce, how)?;
    core.push_groups()?;
    if until.epoch == core.epoch {
        // From here on the record may name it.
        write_floor(core.log.disk(), core.epoch, until.sequence + 1)?;
    }
    let Made { digest, content } = made;
    Ok(Some(Folded { content, digest, until, extents, stored }))
}

/// Folds over what is below the volume; returns as [`run`] does.
fn run_over_base<'a>(
    core: &'a Core,
    announce: &'a mut Announce<'a>,
    how: &'a FoldHow<'a>,
) -> Result<(Made, Vec<Extent>), OverlayError> {
    let size_bytes = core.size_bytes.load(Ordering::Acquire);
    let base = core.manifest.lock().clone();
    let chunk_size = base.as_ref().map_or(core.config.chunk_size, |base| base.shape().chunk_size);
    let shape = (chunk_size, size_bytes);
    let whole = |base| WholeBase::new(base, chunk_size, size_bytes);
    match base {
        None if how.is_paged => run(core, announce, how, shape, NoBase),
        None => run(core, announce, how, shape, whole(None)?),
        Some(DiskManifest::Whole(base)) => run(core, announce, how, shape, whole(Some(base))?),
        Some(DiskManifest::Paged(base)) => run(core, announce, how, shape, PagedBase::open(&base)?),
    }
}

/// Stores packs and manifest; returns the manifest, and the extents that were read.
fn run<'a, B: FoldBase>(
    core: &'a Core,
    announce: &'a mut Announce<'a>,
    how: &'a FoldHow<'a>,
    (chunk_size, size_bytes): (ChunkSize, u64),
    base: B,
) -> Result<(Made, Vec<Extent>), OverlayError> {
    let mut fold = Fold {
        core,
        announce,
        how,
        chunk_size,
        size_bytes,
        base,
        changed: BTreeMap::new(),
        stored: HashMap::new(),
        pending: Vec::new(),
        pack_bytes: 0,
        packs: Vec::new(),
        pace: Pace::over(Instant::now(), how.spread, 0),
        extents: Vec::new(),
    };
    let made = fold.run()?;
    Ok((made, fold.extents))
}

/// Ends what is under way, and returns the end of a batch that is on the origin, with what is
/// stored up to it.
fn begin(core: &Core) -> Result<Option<(LogPosition, LogSize)>, OverlayError> {
    loop {
        core.finish_push()?;
        let pusher = core.pusher.lock();
        if !pusher.is_settled() {
            continue;
        }
        let stored = core.origin_log.get();
        let own = pusher.last().filter(|last| *last >= pusher.first());
        let (volume, epoch) = (core.volume, core.epoch);
        let own = own.map(|sequence| LogPosition { volume, epoch, sequence });
        let until = own.or(core.inherited);
        drop(pusher);
        if until.is_some() || core.log.map().dirty_sectors() == 0 {
            return Ok(until.map(|until| (until, stored)));
        }
        // The first of the log.
        core.push_groups()?;
    }
}

impl<B: FoldBase> Fold<'_, B> {
    /// Stores packs and manifest.
    fn run(&mut self) -> Result<Made, OverlayError> {
        let WrittenChunks { chunks, zeros } = self.written();
        let bytes = chunks.len() * self.chunk_size.bytes();
        self.pack_bytes = (bytes / limits::FOLD_PACKS)
            .clamp(limits::FOLD_PACK_BYTES_MIN, limits::FOLD_BATCH_BYTES);
        self.pace = Pace::over(Instant::now(), self.how.spread, bytes as u64);
        for extent in zeros {
            self.add_zeros(extent)?;
        }
        for chunk in chunks {
            self.add_chunk(chunk)?;
            if self.pending.len() * self.chunk_size.bytes() >= limits::FOLD_BATCH_BYTES {
                let packs = self.name_packs()?;
                self.announce(None)?;
                self.store_packs(packs)?;
            }
        }
        // The manifest has a name when the last packs have: one announcement is enough for both.
        let packs = self.name_packs()?;
        let made = self.base.make(&self.changed, self.chunk_size, self.size_bytes)?;
        self.announce(Some(made.digest))?;
        self.store_packs(packs)?;
        self.core.queue.wait_for_fold(&self.core.life, self.pace.next_at())?;
        store(self.core, &manifest_key(&made.digest), std::slice::from_ref(&made.content))?;
        Ok(made)
    }

    fn announce(&mut self, manifest: Option<Digest>) -> Result<(), OverlayError> {
        (self.announce)(&self.packs, manifest).map_err(OverlayError::Unavailable)
    }

    /// Returns what the overlay has that travels.
    fn written(&self) -> WrittenChunks {
        let map = self.core.log.map();
        let mut written = WrittenChunks::default();
        for extent in map.extents.range(0, self.size_bytes / SECTOR) {
            map.regions.split(extent.start, extent.end, |start, end, group| {
                if map.regions.is_pushed(group) {
                    written.add(&extent.clip(start, end), self.chunk_size, self.size_bytes);
                }
            });
        }
        written
    }

    /// Adds whole chunks of zeros: of them only those count that the base has something else of.
    fn add_zeros(&mut self, extent: Extent) -> Result<(), OverlayError> {
        let chunk = |sector: u64| self.chunk_size.count_for(sector * SECTOR);
        for chunk in self.base.data_in(chunk(extent.start)..chunk(extent.end))? {
            self.changed.insert(chunk, None);
        }
        self.extents.push(extent);
        Ok(())
    }

    fn add_chunk(&mut self, chunk: u64) -> Result<(), OverlayError> {
        let len = self.chunk_size.bytes() as u64;
        let (offset, end) = (chunk * len, ((chunk + 1) * len).min(self.size_bytes));
        let (start, end) = (offset / SECTOR, end / SECTOR);
        let (regions, extents): (_, Vec<_>) = {
            let map = self.core.log.map();
            let travels = |extent: &Extent| {
                !map.regions.has_class(extent.start, extent.end, DurabilityClass::None)
            };
            let extents = map.extents.range(start, end).filter(travels).collect();
            (std::sync::Arc::clone(&map.regions), extents)
        };
        let mut content = vec![0; len as usize];
        let used = ((end - start) * SECTOR) as usize;
        let (mut parts, mut older) = (Vec::new(), RangeSet::default());
        regions.split(start, end, |from, to, group| {
            parts.push((from, to, regions.is_pushed(group)));
        });
        if parts.iter().all(|(.., is_pushed)| *is_pushed) {
            content[..used].copy_from_slice(&self.read_written(offset, used, &mut older)?);
        } else {
            // Partly in a region that stays here: that part is as the base has it.
            for (from, to, is_pushed) in parts {
                let place = ((from - start) * SECTOR) as usize..((to - start) * SECTOR) as usize;
                let bytes = match is_pushed {
                    true => self.read_written(from * SECTOR, place.len(), &mut older)?,
                    false => self.core.read_base_bytes(from * SECTOR, place.len())?,
                };
                content[place].copy_from_slice(&bytes);
            }
        }
        // A place in the log is never used twice, but zeros may have been something else when they
        // were read just now, and be zeros again when the base is replaced.
        self.extents.extend(extents.into_iter().filter(|extent| {
            let range = (extent.start - start) * SECTOR..(extent.end - start) * SECTOR;
            let read = &content[range.start as usize..range.end as usize];
            let is_older = older.overlaps(extent.start, extent.end);
            (extent.place != Place::Zero || is_zero(read)) && !is_older
        }));
        self.add_content(chunk, content)
    }

    /// Reads what travels. What this host has lost and the origin never got is as the origin has it: a
    /// push leaves that out as well, so manifest and objects say together what they said before.
    fn read_written(
        &self,
        offset: u64,
        len: usize,
        older: &mut RangeSet,
    ) -> Result<Vec<u8>, OverlayError> {
        let (bytes, lost) = self.core.read_whole(offset, len, true)?;
        for (from, to) in lost.iter() {
            let (volume, offset, len) = (self.core.volume, from * SECTOR, (to - from) * SECTOR);
            tracing::warn!(%volume, offset, len, "folded as the origin has it: damaged here");
        }
        older.extend(&lost);
        Ok(bytes)
    }

    fn add_content(&mut self, chunk: u64, content: Vec<u8>) -> Result<(), OverlayError> {
        let base = self.base.digest(chunk)?;
        if is_zero(&content) {
            if base.is_some() {
                self.changed.insert(chunk, None);
            }
            return Ok(());
        }
        let digest = Digest::of_in(self.how.scope.as_ref(), &content);
        // What the base has at this place keeps its name, whichever scope that is of.
        let is_same = |base: &Digest| {
            *base == digest || (!base.is_comparable(&digest) && base.matches(&content))
        };
        if base.as_ref().is_some_and(is_same) {
            return Ok(());
        }
        if let Some(place) = self.stored.get(&digest).copied() {
            self.changed.insert(chunk, Some((digest, place)));
            return Ok(());
        }
        self.pending.push((chunk, digest, Bytes::from(content)));
        Ok(())
    }

    /// Puts what is pending into packs, without what the base has elsewhere.
    fn name_packs(&mut self) -> Result<Vec<NewPack<B::Place>>, OverlayError> {
        let pending = std::mem::take(&mut self.pending);
        if pending.is_empty() {
            return Ok(Vec::new());
        }
        let mut known: HashMap<Digest, Option<B::Place>> =
            pending.iter().map(|(_, digest, _)| (*digest, None)).collect();
        self.base.find(&mut known)?;
        let mut is_taken = hashbrown::HashSet::new();
        let fresh = |(_, digest, _): &&(u64, Digest, Bytes)| {
            matches!(known.get(digest), Some(None)) && is_taken.insert(*digest)
        };
        let fresh: Vec<(Digest, Bytes)> = pending
            .iter()
            .filter(fresh)
            .map(|(_, digest, chunk)| (*digest, chunk.clone()))
            .collect();
        let packs = match fresh.is_empty() {
            true => Vec::new(),
            false => B::pack(&fresh, self.chunk_size, self.pack_bytes)?,
        };
        for pack in &packs {
            self.packs.push(pack.id);
            let places = pack.chunks.iter().zip(&pack.places);
            known.extend(places.map(|((digest, _), place)| (*digest, Some(*place))));
        }
        for (chunk, digest, _) in pending {
            if let Some(Some(place)) = known.get(&digest).copied() {
                self.stored.insert(digest, place);
                self.changed.insert(chunk, Some((digest, place)));
            }
        }
        Ok(packs)
    }

    /// Stores packs, at their pace.
    fn store_packs(&mut self, packs: Vec<NewPack<B::Place>>) -> Result<(), OverlayError> {
        for pack in packs {
            self.core.queue.wait_for_fold(&self.core.life, self.pace.next_at())?;
            let name = pack.id.0.to_string();
            store(self.core, &format!("packs/{}/{name}", &name[..2]), &pack.parts)?;
            for (digest, content) in &pack.chunks {
                (self.how.keep)(digest, content);
                self.pace.note(content.len() as u64);
            }
        }
        Ok(())
    }
}

fn manifest_key(digest: &Digest) -> String {
    let name = digest.to_string();
    format!("manifests/{}/{name}", &name[..2])
}

/// Stores an object whose name, by its salt, nobody else can have used.
fn store(core: &Core, key: &str, parts: &[Bytes]) -> Result<(), OverlayError> {
    if !core.sink.put_if_absent(key, parts)? {
        tracing::debug!(key, "stored before: an answer was lost");
    }
    Ok(())
}
