//! The seam to where a manifest is read again: a file on this host's own disk.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use acstor_manifest::limits::DEPTH_MAX;
use acstor_manifest::{Header, MANIFEST_VERSION, PAGE_LEN, PageBytes, RawPages};
use acstor_types::bytes_le::u32_at;
use acstor_types::{Digest, ErrorKind, Manifest, ManifestError, ManifestHeader};
use bytes::Bytes;
use memmap2::MmapMut;
use rustix::fs::SeekFrom;

use crate::view::disk_manifest::{DiskManifest, LocalPages, PageFile, PagedManifest};
use crate::view::disk_shape::DiskShape;

/// Offset of the version in a manifest of any format, bytes.
const VERSION_OFFSET: usize = 8;

/// A page that is not on this host, or damaged here; the origin has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct AbsentPage {
    /// Name of the manifest.
    pub(crate) manifest: Digest,
    /// Number of the page.
    pub(crate) page: u32,
}

/// Error of reading a manifest.
#[derive(Clone, Debug, thiserror::Error, PartialEq, Eq)]
#[error("{message}")]
pub struct ManifestFault {
    /// Kind, which says what a caller can do about it.
    pub kind: ErrorKind,
    /// Fault of the manifest.
    pub message: String,
    /// The page that has to be fetched first, where that is all.
    pub(crate) absent: Option<AbsentPage>,
}

impl ManifestFault {
    /// A fault that no fetch of a page cures.
    pub fn new(kind: ErrorKind, message: impl Into<String>) -> ManifestFault {
        ManifestFault { kind, message: message.into(), absent: None }
    }

    /// The same fault for want of a page.
    pub(crate) fn with_absent(self, absent: AbsentPage) -> ManifestFault {
        ManifestFault { absent: Some(absent), ..self }
    }

    /// Returns whether the same manifest is bad each time it is read.
    pub fn is_final(&self) -> bool {
        matches!(self.kind, ErrorKind::Corrupt | ErrorKind::Unsupported | ErrorKind::Invalid)
    }

    /// Kind of an error for it: a page that the origin has may be here soon.
    pub(crate) fn kind_now(&self) -> ErrorKind {
        match self.absent {
            Some(_) => ErrorKind::Unavailable,
            None => self.kind,
        }
    }

    /// Content that is not what it was.
    pub(crate) fn changed() -> ManifestFault {
        ManifestFault::new(ErrorKind::Corrupt, "it is not the manifest that was attached")
    }
}

impl From<ManifestError> for ManifestFault {
    fn from(error: ManifestError) -> ManifestFault {
        ManifestFault::new(error.kind(), error.to_string())
    }
}

impl From<acstor_manifest::ManifestError> for ManifestFault {
    fn from(error: acstor_manifest::ManifestError) -> ManifestFault {
        ManifestFault::new(error.kind(), error.to_string())
    }
}

impl From<io::Error> for ManifestFault {
    fn from(error: io::Error) -> ManifestFault {
        let kind = match error.kind() {
            // Shorter than it was.
            io::ErrorKind::UnexpectedEof => ErrorKind::Corrupt,
            _ => ErrorKind::Unavailable,
        };
        ManifestFault::new(kind, error.to_string())
    }
}

/// Source from which the manifest of an attached disk is read whenever it is needed.
pub trait ManifestSource: Send + Sync + 'static {
    /// Reads and validates the manifest, of one of format 2 only what its pages are verified by; waits
    /// for the local disk.
    ///
    /// # Errors
    /// [`ManifestFault`].
    fn read(&self) -> Result<DiskManifest, ManifestFault>;

    /// Reads what the pages of one of format 2 are verified by; `None` of format 1. Waits for the local
    /// disk.
    ///
    /// # Errors
    /// [`ManifestFault`].
    fn read_paged(&self) -> Result<Option<PagedManifest>, ManifestFault>;
}

/// A manifest in a file, and those below it in others. The files stay the same ones when their names
/// are changed or taken away.
#[derive(Debug)]
pub struct ManifestFile {
    top: LevelFile,
    bases: Vec<LevelFile>,
}

/// The file of one manifest.
#[derive(Clone, Debug)]
struct LevelFile {
    file: Arc<File>,
    len: u64,
}

/// Header of a manifest of either format.
enum AnyHeader {
    Whole(ManifestHeader),
    Paged(Arc<Header>),
}

impl LevelFile {
    fn new(file: File) -> io::Result<LevelFile> {
        let len = file.metadata()?.len();
        Ok(LevelFile { file: Arc::new(file), len })
    }

    fn header(&self) -> Result<AnyHeader, ManifestFault> {
        let mut bytes = [0; PAGE_LEN];
        let front = &mut bytes[..usize::try_from(self.len).unwrap_or(PAGE_LEN).min(PAGE_LEN)];
        self.file.read_exact_at(front, 0)?;
        let is_paged = front.len() == PAGE_LEN && u32_at(front, VERSION_OFFSET) == MANIFEST_VERSION;
        Ok(match is_paged {
            true => AnyHeader::Paged(Arc::new(Header::parse(front, self.len)?)),
            false => AnyHeader::Whole(ManifestHeader::parse(front, self.len)?),
        })
    }

    /// Reads a manifest of format 1.
    fn read_whole(&self) -> Result<Manifest, ManifestFault> {
        let len = usize::try_from(self.len).unwrap_or(usize::MAX);
        // Pages of its own, which the kernel has back at once: the allocator keeps what lies below
        // anything that lives, after a storm as much as all images that were read.
        let mut bytes = MmapMut::map_anon(len).map_err(|error| {
            let message = format!("there is no memory for {len} bytes: {error}");
            ManifestFault::new(ErrorKind::Exhausted, message)
        })?;
        self.file.read_exact_at(&mut bytes, 0)?;
        Ok(Manifest::parse(Bytes::from_owner(bytes))?)
    }
}

/// The pages of one manifest in its file, which may have holes where pages are to come.
struct FilePages {
    level: LevelFile,
    name: Digest,
}

fn offset_of(page: u32) -> u64 {
    u64::from(page) * PAGE_LEN as u64
}

impl RawPages for FilePages {
    type Error = ManifestFault;

    fn read(&self, number: u32, page: &mut PageBytes) -> Result<(), ManifestFault> {
        Ok(self.level.file.read_exact_at(page, offset_of(number))?)
    }

    fn refused(&self, number: u32) -> ManifestFault {
        let message = format!("page {number} of manifest {} is not here, or damaged", self.name);
        let absent = AbsentPage { manifest: self.name, page: number };
        ManifestFault::new(ErrorKind::Corrupt, message).with_absent(absent)
    }
}

impl PageFile for FilePages {
    fn write(&self, number: u32, page: &PageBytes) -> io::Result<()> {
        self.level.file.write_all_at(page, offset_of(number))
    }

    fn next_hole(&self, range: Range<u32>) -> Option<Range<u32>> {
        let seek = |to| rustix::fs::seek(&*self.level.file, to);
        let end = offset_of(range.end).min(self.level.len);
        let hole = seek(SeekFrom::Hole(offset_of(range.start))).ok().filter(|hole| *hole < end)?;
        // No data behind it is an error.
        let data = seek(SeekFrom::Data(hole)).unwrap_or(end).min(end);
        let start = u32::try_from(hole / PAGE_LEN as u64).ok()?;
        Some(start..u32::try_from(data.div_ceil(PAGE_LEN as u64)).ok()?)
    }
}

impl ManifestFile {
    /// Takes an open file.
    ///
    /// # Errors
    /// The error of fstat(2).
    pub fn new(file: File) -> io::Result<ManifestFile> {
        ManifestFile::with_bases(file, Vec::new())
    }

    /// Takes the open file of a delta and those of the manifests below it, the lowest last.
    ///
    /// # Errors
    /// The error of fstat(2).
    pub fn with_bases(file: File, bases: Vec<File>) -> io::Result<ManifestFile> {
        let bases = bases.into_iter().map(LevelFile::new).collect::<io::Result<_>>()?;
        Ok(ManifestFile { top: LevelFile::new(file)?, bases })
    }

    /// Reads which manifest is to lie below the lowest one that there is: of a delta its base; `None`
    /// below a whole one.
    ///
    /// # Errors
    /// [`ManifestFault`], also when there are as many as may lie on top of each other already.
    pub fn next_base(&self) -> Result<Option<Digest>, ManifestFault> {
        let lowest = self.bases.last().unwrap_or(&self.top);
        let base = match lowest.header()? {
            AnyHeader::Paged(header) => header.base(),
            AnyHeader::Whole(_) => None,
        };
        if base.is_some() && self.bases.len() + 1 >= usize::from(DEPTH_MAX) {
            let message = format!("more than {DEPTH_MAX} manifests lie on top of each other");
            return Err(ManifestFault::new(ErrorKind::Corrupt, message));
        }
        Ok(base)
    }

    /// Puts the open file of the manifest that [`next_base`](Self::next_base) names below the others.
    ///
    /// # Errors
    /// The error of fstat(2).
    pub fn push_base(&mut self, file: File) -> io::Result<()> {
        self.bases.push(LevelFile::new(file)?);
        Ok(())
    }

    /// Reads what the first bytes say of the disk, and that the file has the length for it.
    ///
    /// # Errors
    /// [`ManifestFault`].
    pub fn shape(&self) -> Result<DiskShape, ManifestFault> {
        Ok(match self.top.header()? {
            AnyHeader::Whole(header) => header.into(),
            AnyHeader::Paged(header) => DiskShape::from(&*header),
        })
    }
}

impl ManifestSource for ManifestFile {
    fn read(&self) -> Result<DiskManifest, ManifestFault> {
        // Its length is checked before memory is taken.
        match self.read_paged()? {
            Some(manifest) => Ok(manifest.into()),
            None => Ok(self.top.read_whole()?.into()),
        }
    }

    fn read_paged(&self) -> Result<Option<PagedManifest>, ManifestFault> {
        let AnyHeader::Paged(top) = self.top.header()? else { return Ok(None) };
        let level = |header: Arc<Header>, level: &LevelFile| -> (Arc<Header>, Arc<LocalPages>) {
            let name = header.name();
            (header, Arc::new(FilePages { level: level.clone(), name }))
        };
        let mut levels = vec![level(top, &self.top)];
        for base in &self.bases {
            match base.header()? {
                AnyHeader::Paged(header) => levels.push(level(header, base)),
                AnyHeader::Whole(_) => {
                    let message = "a manifest of format 1 is no base of a delta".to_owned();
                    return Err(ManifestFault::new(ErrorKind::Invalid, message));
                }
            }
        }
        PagedManifest::new(levels).map(Some)
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Cursor, Write};

    use acstor_manifest::{Base, Builder, PageCache};
    use acstor_types::{ChunkSize, DiskId, ManifestBuilder};

    use super::*;
    use crate::scenarios::paged_image::disk;
    use crate::view::disk_map::DiskMap;

    const SIZE: u64 = 40 * 4096;

    fn file(bytes: &[u8]) -> File {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(bytes).unwrap();
        file
    }

    fn paged(base: Option<Base>) -> Vec<u8> {
        let builder = Builder::new(disk(1, SIZE, base), Cursor::new(Vec::new())).unwrap();
        builder.finish().unwrap().to_bytes().unwrap()
    }

    fn whole() -> Vec<u8> {
        let chunk_size = ChunkSize::new(4096).unwrap();
        let mut builder = ManifestBuilder::new(DiskId::from_bytes([1; 16]), chunk_size, SIZE);
        (0..40).for_each(|_| builder.push_zero());
        builder.finish().unwrap().as_bytes().to_vec()
    }

    #[test]
    fn test_file_of_either_format_gives_the_same_disk() {
        for (bytes, is_paged) in [(whole(), false), (paged(None), true)] {
            let source = ManifestFile::new(file(&bytes)).unwrap();
            let shape = source.shape().unwrap();
            assert_eq!((shape.size_bytes, shape.chunk_count), (SIZE, 40));
            let manifest = source.read().unwrap();
            assert_eq!(manifest.shape(), shape);
            assert_eq!(matches!(manifest, DiskManifest::Paged(_)), is_paged);
            let map = DiskMap::new(manifest, &Arc::new(PageCache::default())).unwrap();
            assert_eq!(map.content(3), Ok(None));
        }
    }

    #[test]
    fn test_delta_is_read_with_its_base_only() {
        let base = paged(None);
        let header = Header::parse(&base, base.len() as u64).unwrap();
        let delta = paged(Some(Base::of(&header)));
        let read = |bases: &[&[u8]]| {
            let bases = bases.iter().map(|bytes| file(bytes)).collect();
            ManifestFile::with_bases(file(&delta), bases).unwrap().read()
        };
        assert!(read(&[&base]).is_ok());
        let whole = whole();
        for bases in [&[][..], &[&whole[..]], &[&delta[..]], &[&base[..], &base]] {
            let fault = read(bases).unwrap_err();
            assert!(fault.is_final(), "{fault}");
        }
    }

    #[test]
    fn test_file_that_is_cut_is_damaged() {
        for bytes in [whole(), paged(None)] {
            for len in [0, 50, bytes.len() - 1] {
                let source = ManifestFile::new(file(&bytes[..len])).unwrap();
                assert!(source.shape().unwrap_err().is_final());
                assert!(source.read().unwrap_err().is_final());
            }
        }
    }
}
