//! The manifest of a disk, of either format: whole in memory, or read by the page.

use std::io;
use std::ops::Range;
use std::sync::Arc;

use acstor_manifest::{
    Header, ManifestError, PAGE_LEN, PageBytes, PageCache, RawPages, Reader, Stack, VerifiedPages,
};
use acstor_types::{Digest, Manifest};

use crate::view::disk_shape::DiskShape;
use crate::view::manifest_source::ManifestFault;

/// The file of one manifest on this host's disk, where pages may be missing.
pub trait PageFile: RawPages<Error = ManifestFault> + Send + Sync {
    /// Writes a page that is verified. Blocks.
    ///
    /// # Errors
    /// Those of pwrite(2).
    fn write(&self, number: u32, page: &PageBytes) -> io::Result<()>;

    /// Returns the first pages within `range` that have never been written; `None` where all were, as far
    /// as the file system tells.
    fn next_hole(&self, range: Range<u32>) -> Option<Range<u32>>;
}

/// Pages of one manifest as this host's disk has them.
pub type LocalPages = dyn PageFile;

/// A reader of a manifest of format 2, which waits for this host's disk.
pub type PagedReader = Stack<VerifiedPages<Arc<LocalPages>>>;

/// The manifest of a disk.
#[derive(Clone, Debug)]
pub enum DiskManifest {
    /// Of format 1: whole, in memory.
    Whole(Manifest),
    /// Of format 2: its pages are read when they are needed.
    Paged(PagedManifest),
}

impl DiskManifest {
    /// Shape of the disk.
    pub fn shape(&self) -> DiskShape {
        match self {
            DiskManifest::Whole(manifest) => manifest.header().into(),
            DiskManifest::Paged(manifest) => manifest.shape(),
        }
    }

    /// Name of the manifest in the origin.
    pub fn digest(&self) -> Digest {
        match self {
            DiskManifest::Whole(manifest) => manifest.digest(),
            DiskManifest::Paged(manifest) => manifest.top().0.name(),
        }
    }

    /// Names of the manifests that it is a delta of, the topmost first; none where it is whole.
    pub fn base_names(&self) -> Vec<Digest> {
        match self {
            DiskManifest::Whole(_) => Vec::new(),
            DiskManifest::Paged(manifest) => manifest.names().skip(1).collect(),
        }
    }

    /// Bytes of the manifest and of those below it.
    pub fn len_bytes(&self) -> u64 {
        match self {
            DiskManifest::Whole(manifest) => manifest.as_bytes().len() as u64,
            DiskManifest::Paged(manifest) => manifest.len_bytes(),
        }
    }

    /// Bytes of it that a fold over it writes again: all, or about the share that the upper levels may have
    /// of the lowest ([`levels_to_merge`](acstor_manifest::levels_to_merge)).
    pub fn refolded_bytes(&self) -> u64 {
        match self {
            DiskManifest::Whole(_) => self.len_bytes(),
            DiskManifest::Paged(_) => self.len_bytes() / 64,
        }
    }

    /// Bytes that it takes in memory for as long as it is there.
    pub(crate) fn memory_bytes(&self) -> u64 {
        match self {
            DiskManifest::Whole(manifest) => manifest.as_bytes().len() as u64,
            DiskManifest::Paged(_) => 0,
        }
    }
}

impl From<Manifest> for DiskManifest {
    fn from(manifest: Manifest) -> DiskManifest {
        DiskManifest::Whole(manifest)
    }
}

impl From<PagedManifest> for DiskManifest {
    fn from(manifest: PagedManifest) -> DiskManifest {
        DiskManifest::Paged(manifest)
    }
}

/// A manifest of format 2 and those below it: the headers, and where the pages are read.
#[derive(Clone)]
pub struct PagedManifest {
    /// The topmost first; at least one.
    levels: Arc<[Level]>,
}

pub(crate) type Level = (Arc<Header>, Arc<LocalPages>);

impl PagedManifest {
    /// Puts manifests on top of each other, the topmost first.
    ///
    /// # Errors
    /// [`ManifestFault`] when one is not the base of the one above it, or one is missing.
    pub fn new(levels: Vec<(Arc<Header>, Arc<LocalPages>)>) -> Result<Self, ManifestFault> {
        let readers = levels.iter().map(|(header, _)| Reader::new(header.clone(), ())).collect();
        Stack::new(readers)?;
        Ok(PagedManifest { levels: levels.into() })
    }

    /// The levels, the topmost first.
    pub(crate) fn levels(&self) -> &[Level] {
        &self.levels
    }

    fn top(&self) -> &Level {
        // There is at least one: a stack has one.
        &self.levels[0]
    }

    /// Shape of the disk.
    pub fn shape(&self) -> DiskShape {
        DiskShape::from(&*self.top().0)
    }

    /// A reader of it, which keeps the pages that it needs in `cache`.
    ///
    /// # Errors
    /// [`ManifestError`] when the levels do not fit each other.
    pub fn reader(&self, cache: &Arc<PageCache>) -> Result<PagedReader, ManifestError> {
        let levels = self.levels.iter().map(|(header, raw)| {
            let pages = VerifiedPages::new(header.clone(), cache.clone(), raw.clone());
            Reader::new(header.clone(), pages)
        });
        Stack::new(levels.collect())
    }

    fn len_bytes(&self) -> u64 {
        let pages = |level: &Level| u64::from(level.0.sections().page_count());
        self.levels.iter().map(pages).sum::<u64>() * PAGE_LEN as u64
    }

    /// Name of the content; `None` where the topmost manifest is a delta.
    pub(crate) fn content_name(&self) -> Option<Digest> {
        self.top().0.content_name()
    }

    /// The level of a name.
    pub(crate) fn level(&self, name: &Digest) -> Option<&Level> {
        self.levels.iter().find(|(header, _)| header.name() == *name)
    }

    /// Names of the levels: equal ones say the same.
    pub(crate) fn names(&self) -> impl Iterator<Item = Digest> + '_ {
        self.levels.iter().map(|(header, _)| header.name())
    }
}

impl std::fmt::Debug for PagedManifest {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.names()).finish()
    }
}
