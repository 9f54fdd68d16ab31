//! An origin in memory that refuses, loses answers and is late; and a base made from it.

use std::collections::BTreeMap;
use std::sync::Arc;

use acstor_readpath::{
    BlockView, DiskManifest, ExtentKind, ReadError, ReadFuture, Segment, TryRead,
};
use acstor_testkit::FaultPlan;
use acstor_types::{Digest, Entry, Manifest};
use bytes::Bytes;
use parking_lot::Mutex;

use crate::scenarios::paged_disk::PagedDisk;
use crate::{OriginSink, SinkError};

/// Objects in memory. Cheap to clone; clones share them.
///
/// Operations of the plan: `put` refuses, `put-answer` stores and fails, `put-late` fails and
/// stores when [`MemoryOrigin::late_arrive`] is called, `get`, `list`.
#[derive(Clone, Debug, Default)]
pub(crate) struct MemoryOrigin {
    objects: Arc<Mutex<BTreeMap<String, Bytes>>>,
    late: Arc<Mutex<Vec<(String, Bytes)>>>,
    pub(crate) faults: FaultPlan,
}

impl MemoryOrigin {
    fn check(&self, operation: &'static str, key: &str) -> Result<(), SinkError> {
        match self.faults.next(operation) {
            None => Ok(()),
            Some(fault) => {
                let (key, cause) = (key.to_owned(), fault.error().to_string());
                Err(SinkError::Unavailable { key, cause })
            }
        }
    }

    /// Stores what was under way, where its place is still free.
    pub(crate) fn late_arrive(&self) {
        for (key, content) in self.late.lock().drain(..) {
            self.objects.lock().entry(key).or_insert(content);
        }
    }

    pub(crate) fn keys(&self, prefix: &str) -> Vec<String> {
        let objects = self.objects.lock();
        objects.keys().filter(|key| key.starts_with(prefix)).cloned().collect()
    }

    /// Takes an object away, as a collection does.
    pub(crate) fn remove(&self, key: &str) {
        self.objects.lock().remove(key);
    }

    pub(crate) fn object(&self, key: &str) -> Option<Bytes> {
        self.objects.lock().get(key).cloned()
    }

    /// Returns the bytes of a manifest that is in the origin.
    pub(crate) fn manifest_bytes(&self, digest: &Digest) -> Bytes {
        let name = digest.to_string();
        let key = format!("manifests/{}/{name}", &name[..2]);
        self.object(&key).expect("the manifest is there")
    }

    /// Returns a manifest of format 1 that is in the origin.
    pub(crate) fn whole_manifest(&self, digest: &Digest) -> Manifest {
        Manifest::parse(self.manifest_bytes(digest)).unwrap()
    }

    /// Returns a manifest that is in the origin, of either format.
    pub(crate) fn manifest(&self, digest: &Digest) -> DiskManifest {
        match PagedDisk::of(self, digest) {
            Some(paged) => paged.manifest(),
            None => self.whole_manifest(digest).into(),
        }
    }

    /// Returns the content of a disk that is in the origin, by a manifest of either format.
    pub(crate) fn disk(&self, manifest: &Digest) -> Vec<u8> {
        match PagedDisk::of(self, manifest) {
            Some(paged) => self.paged_disk(&paged),
            None => self.whole_disk(&self.whole_manifest(manifest)),
        }
    }

    fn paged_disk(&self, paged: &PagedDisk) -> Vec<u8> {
        let chunks = paged.chunks(self);
        let size = paged.size_bytes() as usize;
        let mut disk = vec![0; size];
        for (index, (_, plain)) in &chunks {
            let start = *index as usize * plain.len();
            let end = (start + plain.len()).min(size);
            disk[start..end].copy_from_slice(&plain[..end - start]);
        }
        disk
    }

    fn whole_disk(&self, manifest: &Manifest) -> Vec<u8> {
        let len = manifest.chunk_size().bytes();
        let mut disk = Vec::new();
        for entry in manifest.entries() {
            match entry {
                Entry::Zero => disk.resize(disk.len() + len, 0),
                Entry::Chunk { digest, location } => {
                    let name = location.pack.0.to_string();
                    let key = format!("packs/{}/{name}", &name[..2]);
                    let pack = self.object(&key).expect("the pack is there");
                    let content = pack.slice(location.offset as usize..).slice(..len);
                    assert!(digest.matches(&content));
                    disk.extend_from_slice(&content);
                }
            }
        }
        disk.truncate(manifest.size_bytes() as usize);
        disk
    }
}

impl OriginSink for MemoryOrigin {
    fn put_if_absent(&self, key: &str, parts: &[Bytes]) -> Result<bool, SinkError> {
        self.check("put", key)?;
        let content = Bytes::from(parts.concat());
        if let Err(error) = self.check("put-late", key) {
            self.late.lock().push((key.to_owned(), content));
            return Err(error);
        }
        let is_new = {
            let mut objects = self.objects.lock();
            let is_new = !objects.contains_key(key);
            objects.entry(key.to_owned()).or_insert(content);
            is_new
        };
        self.check("put-answer", key)?;
        Ok(is_new)
    }

    fn get(&self, key: &str, size_max: u64) -> Result<Option<Bytes>, SinkError> {
        self.check("get", key)?;
        let object = self.object(key);
        assert!(object.as_ref().is_none_or(|object| object.len() as u64 <= size_max));
        Ok(object)
    }

    fn list(&self, prefix: &str) -> Result<Vec<String>, SinkError> {
        self.check("list", prefix)?;
        Ok(self.keys(prefix))
    }
}

/// A base in memory.
#[derive(Debug)]
pub(crate) struct MemoryBase(pub Bytes);

impl BlockView for MemoryBase {
    fn size_bytes(&self) -> u64 {
        self.0.len() as u64
    }

    fn try_read(&self, offset: u64, len: usize) -> Result<TryRead, ReadError> {
        let bytes = self.0.slice(offset as usize..offset as usize + len);
        Ok(TryRead::Ready(vec![Segment::Bytes(bytes)]))
    }

    fn read(&self, offset: u64, len: usize) -> ReadFuture {
        let bytes = self.0.slice(offset as usize..offset as usize + len);
        Box::pin(async move { Ok(vec![Segment::Bytes(bytes)]) })
    }

    fn next_extent(&self, offset: u64, kind: ExtentKind) -> Option<u64> {
        let end = self.size_bytes();
        let is_found = |at: &u64| {
            let is_data = self.0[*at as usize..].iter().take(512).any(|byte| *byte != 0);
            is_data == (kind == ExtentKind::Data)
        };
        let found = (offset / 512..end / 512).map(|sector| sector * 512).find(is_found);
        let found = found.map(|at| at.max(offset));
        match kind {
            ExtentKind::Data => found,
            ExtentKind::Hole => (offset < end).then(|| found.unwrap_or(end)),
        }
    }

    fn cached_bytes(&self) -> u64 {
        0
    }
}
