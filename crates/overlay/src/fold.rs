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

use std::collections::BTreeSet;

use acstor_types::{
    ChunkLocation, ChunkSize, Digest, DiskId, Entry, Manifest, ManifestBuilder, PackHeader, PackId,
    PackSalt, is_zero,
};
use bytes::Bytes;
use hashbrown::HashMap;

use crate::core::Core;
use crate::durability::DurabilityClass;
use crate::extent_map::{Extent, Place};
use crate::record::SECTOR;
use crate::{OverlayError, limits};

/// Largest manifest that a fold reads, bytes.
const MANIFEST_BYTES_MAX: u64 = 3 << 30;

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

/// What a fold made.
#[derive(Debug)]
pub struct Folded {
    /// The manifest's bytes, which are in the origin.
    pub content: Bytes,
    /// Name of the manifest.
    pub digest: Digest,
    /// Everything up to this log object is in the manifest, which stands for the disk together
    /// with the objects after it only.
    pub until: LogPosition,
    /// What was read from the overlay, as it was then.
    extents: Vec<Extent>,
    stored: Stored,
}

/// Log objects over the manifest, as the volume counts them.
#[derive(Clone, Copy, Debug)]
struct Stored {
    bytes: u64,
    objects: u64,
}

/// Told the names of all packs so far and of the manifest, before the newest is stored.
pub type Announce<'a> = dyn FnMut(&[PackId], Option<Digest>) -> Result<(), String> + 'a;

impl Folded {
    /// Drops from the overlay what the new base holds, where it was not written since.
    pub(crate) fn drop_from(&self, core: &Core) {
        for step in self.extents.chunks(1024) {
            let _head = core.log.head.lock();
            let mut map = core.log.map.write();
            step.iter().for_each(|extent| map.drop_extent(extent));
        }
        let sub = |counter: &std::sync::atomic::AtomicU64, value| {
            counter.fetch_sub(value, std::sync::atomic::Ordering::Relaxed);
        };
        sub(&core.origin_log_bytes, self.stored.bytes);
        sub(&core.origin_log_objects, self.stored.objects);
        *core.manifest.lock() = Some(self.digest);
    }
}

/// A fold that is under way.
struct Fold<'a> {
    core: &'a Core,
    announce: &'a mut Announce<'a>,
    chunk_size: ChunkSize,
    size_bytes: u64,
    base: Option<Manifest>,
    /// Chunks that are not as in the base.
    changed: HashMap<u64, Entry>,
    /// Where content is that this fold has stored.
    stored: HashMap<Digest, ChunkLocation>,
    /// Chunks of the pack to come.
    pending: Vec<(u64, Digest, Bytes)>,
    packs: Vec<PackId>,
    extents: Vec<Extent>,
}

/// Folds; `None`: there is nothing that the manifest does not have.
pub(crate) fn fold(
    core: &Core,
    announce: &mut Announce<'_>,
) -> Result<Option<Folded>, OverlayError> {
    let Some((until, stored)) = begin(core)? else { return Ok(None) };
    let base = read_manifest(core)?;
    let chunk_size = base.as_ref().map_or(core.config.chunk_size, Manifest::chunk_size);
    let mut announce = |packs: &[PackId], manifest| announce(packs, manifest);
    let mut fold = Fold {
        core,
        announce: &mut announce,
        chunk_size,
        size_bytes: core.size_bytes.load(std::sync::atomic::Ordering::Acquire),
        base,
        changed: HashMap::new(),
        stored: HashMap::new(),
        pending: Vec::new(),
        packs: Vec::new(),
        extents: Vec::new(),
    };
    for chunk in fold.chunks() {
        fold.add_chunk(chunk)?;
    }
    fold.store_pack()?;
    let manifest = fold.manifest()?;
    let digest = manifest.digest();
    (fold.announce)(&fold.packs, Some(digest)).map_err(OverlayError::Unavailable)?;
    let content = manifest.as_bytes().clone();
    store(core, &manifest_key(&digest), std::slice::from_ref(&content))?;
    let extents = fold.extents;
    core.push_all()?;
    Ok(Some(Folded { content, digest, until, extents, stored }))
}

/// Pushes, and returns the end of a batch that is on the origin, with what is stored up to it.
fn begin(core: &Core) -> Result<Option<(LogPosition, Stored)>, OverlayError> {
    use std::sync::atomic::Ordering::Relaxed;
    loop {
        core.push_all()?;
        let pusher = core.pusher.lock();
        if pusher.is_under_way() {
            continue;
        }
        let bytes = core.origin_log_bytes.load(Relaxed);
        let stored = Stored { bytes, objects: core.origin_log_objects.load(Relaxed) };
        let own = pusher.last().filter(|last| *last >= pusher.first());
        let (volume, epoch) = (core.volume, core.epoch);
        let own = own.map(|sequence| LogPosition { volume, epoch, sequence });
        let inherited = *core.inherited.lock();
        return Ok(own.or(inherited).map(|until| (until, stored)));
    }
}

fn read_manifest(core: &Core) -> Result<Option<Manifest>, OverlayError> {
    let Some(digest) = *core.manifest.lock() else { return Ok(None) };
    let key = manifest_key(&digest);
    let bytes = core.sink.get(&key, MANIFEST_BYTES_MAX)?;
    let bytes =
        bytes.ok_or_else(|| OverlayError::Corrupt(format!("{key} is not in the origin")))?;
    let manifest = Manifest::parse(bytes).ok().filter(|manifest| manifest.digest() == digest);
    manifest.map(Some).ok_or_else(|| OverlayError::Corrupt(format!("{key} is damaged")))
}

impl Fold<'_> {
    /// Chunks that the overlay has something of which travels, in order.
    fn chunks(&self) -> BTreeSet<u64> {
        let map = self.core.log.map.read();
        let regions = std::sync::Arc::clone(&map.regions);
        let end = self.size_bytes / SECTOR;
        let mut chunks = BTreeSet::new();
        for extent in map.extents.range(0, end) {
            regions.split(extent.start, extent.end, |start, end, group| {
                if regions.is_pushed(group) {
                    let (first, last) = (start * SECTOR, end * SECTOR - 1);
                    chunks.extend(self.chunk_size.index_of(first)..=self.chunk_size.index_of(last));
                }
            });
        }
        chunks
    }

    fn add_chunk(&mut self, chunk: u64) -> Result<(), OverlayError> {
        let len = self.chunk_size.bytes() as u64;
        let (offset, end) = (chunk * len, ((chunk + 1) * len).min(self.size_bytes));
        let (start, end) = (offset / SECTOR, end / SECTOR);
        let (regions, extents): (_, Vec<_>) = {
            let map = self.core.log.map.read();
            let travels = |extent: &Extent| {
                !map.regions.has_class(extent.start, extent.end, DurabilityClass::None)
            };
            let extents = map.extents.range(start, end).filter(travels).collect();
            (std::sync::Arc::clone(&map.regions), extents)
        };
        let mut content = vec![0; len as usize];
        let used = ((end - start) * SECTOR) as usize;
        let mut parts = Vec::new();
        regions.split(start, end, |from, to, group| {
            parts.push((from, to, regions.is_pushed(group)));
        });
        if parts.iter().all(|(.., is_pushed)| *is_pushed) {
            content[..used].copy_from_slice(&self.core.read_bytes(offset, used)?);
        } else {
            // Partly in a region that stays here: that part is as the base has it.
            for (from, to, is_pushed) in parts {
                let place = ((from - start) * SECTOR) as usize..((to - start) * SECTOR) as usize;
                let bytes = match is_pushed {
                    true => self.core.read_bytes(from * SECTOR, place.len())?,
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
            extent.place != Place::Zero || is_zero(read)
        }));
        self.add_content(chunk, content)
    }

    fn add_content(&mut self, chunk: u64, content: Vec<u8>) -> Result<(), OverlayError> {
        let base = self.base.as_ref().and_then(|base| base.entry(chunk));
        if is_zero(&content) {
            if base.is_some_and(|entry| entry != Entry::Zero) {
                self.changed.insert(chunk, Entry::Zero);
            }
            return Ok(());
        }
        let digest = Digest::of(&content);
        if matches!(base, Some(Entry::Chunk { digest: same, .. }) if same == digest) {
            return Ok(());
        }
        if let Some(location) = self.stored.get(&digest).copied() {
            self.changed.insert(chunk, Entry::Chunk { digest, location });
            return Ok(());
        }
        self.pending.push((chunk, digest, Bytes::from(content)));
        if self.pending.len() * self.chunk_size.bytes() >= limits::FOLD_PACK_BYTES {
            self.store_pack()?;
        }
        Ok(())
    }

    /// Stores what is pending, without what the base has elsewhere.
    fn store_pack(&mut self) -> Result<(), OverlayError> {
        let pending = std::mem::take(&mut self.pending);
        let mut known: HashMap<Digest, Option<ChunkLocation>> =
            pending.iter().map(|(_, digest, _)| (*digest, None)).collect();
        if !known.is_empty()
            && let Some(base) = &self.base
        {
            for entry in base.entries() {
                if let Entry::Chunk { digest, location } = entry
                    && let Some(found) = known.get_mut(&digest)
                {
                    *found = Some(location);
                }
            }
        }
        let mut chunks: Vec<(Digest, Bytes)> = Vec::new();
        for (_, digest, content) in &pending {
            if matches!(known.get(digest), Some(None))
                && !chunks.iter().any(|(other, _)| other == digest)
            {
                chunks.push((*digest, content.clone()));
            }
        }
        if !chunks.is_empty() {
            let placed = self.put_pack(&chunks)?;
            known.extend(placed.into_iter().map(|(digest, location)| (digest, Some(location))));
        }
        for (chunk, digest, _) in pending {
            if let Some(Some(location)) = known.get(&digest).copied() {
                self.stored.insert(digest, location);
                self.changed.insert(chunk, Entry::Chunk { digest, location });
            }
        }
        Ok(())
    }

    fn put_pack(
        &mut self,
        chunks: &[(Digest, Bytes)],
    ) -> Result<Vec<(Digest, ChunkLocation)>, OverlayError> {
        let salt: PackSalt = rand::random();
        let header = PackHeader { chunk_size: self.chunk_size, chunk_count: chunks.len() as u32 };
        let digests: Vec<u8> = chunks.iter().flat_map(|(digest, _)| *digest.as_bytes()).collect();
        let pack = PackId(Digest::of_parts(&[&digests, &salt]));
        self.packs.push(pack);
        (self.announce)(&self.packs, None).map_err(OverlayError::Unavailable)?;
        let mut parts = vec![Bytes::from(header.encode_salted(&salt))];
        parts.extend(chunks.iter().map(|(_, content)| content.clone()));
        parts.push(Bytes::from(digests));
        let name = pack.0.to_string();
        store(self.core, &format!("packs/{}/{name}", &name[..2]), &parts)?;
        let place = |(number, (digest, _)): (usize, &(Digest, Bytes))| {
            let offset = header.chunk_offset(number as u32) as u32;
            (*digest, ChunkLocation { pack, offset })
        };
        Ok(chunks.iter().enumerate().map(place).collect())
    }

    /// Returns the new manifest: a disk of its own, since a disk's content never changes.
    fn manifest(&self) -> Result<Manifest, OverlayError> {
        let disk = DiskId::from_bytes(rand::random());
        let mut builder = ManifestBuilder::new(disk, self.chunk_size, self.size_bytes);
        builder.set_salt(rand::random());
        for chunk in 0..self.chunk_size.count_for(self.size_bytes) {
            let base = || self.base.as_ref().and_then(|base| base.entry(chunk));
            match self.changed.get(&chunk).copied().or_else(base) {
                Some(Entry::Chunk { digest, location }) => builder.push_chunk(&digest, location),
                Some(Entry::Zero) | None => builder.push_zero(),
            }
        }
        builder.finish().map_err(|error| OverlayError::Invalid(format!("the manifest: {error}")))
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
