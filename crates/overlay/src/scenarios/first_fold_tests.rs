//! First manifests of volumes that were made empty, of format 2, and folds over them.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use acstor_readpath::{BlockView, ExtentKind, ReadError, ReadFuture, Segment, TryRead};
use acstor_types::{ChunkSize, Codec, Digest, DiskId, is_zero};
use bytes::Bytes;
use proptest::prelude::*;
use tokio::runtime::Runtime;

use crate::regions::durability::Durability;
use crate::scenarios::memory_disk::MemoryDisk;
use crate::scenarios::memory_origin::MemoryOrigin;
use crate::scenarios::paged_disk::{Chunks, PagedDisk};
use crate::{BlockDevice, Done, FoldHow, Folded, Opening, OverlayError, Volume, VolumeConfig};

const VOLUME: DiskId = DiskId::from_bytes([9; 16]);
/// The largest disk that there is.
const LARGEST: u64 = 64 << 40;
const PAGED: fn() -> FoldHow<'static> = || FoldHow { is_paged: true, ..FoldHow::default() };

/// Content that no codec makes smaller.
fn random(number: u64, len: usize) -> Vec<u8> {
    let digests = (0..len as u64 / 32).map(|at| Digest::of(&(number << 20 | at).to_le_bytes()));
    digests.flat_map(|digest| *digest.as_bytes()).collect()
}

fn text(number: u64, len: usize) -> Vec<u8> {
    let line = format!("line {number} of a text that is written again and again\n");
    line.bytes().cycle().take(len).collect()
}

/// A base of any size; what no chunk has is zero.
struct SparseBase {
    chunks: Chunks,
    chunk_len: u64,
    size_bytes: u64,
}

impl SparseBase {
    fn bytes(&self, offset: u64, len: usize) -> Vec<Segment> {
        let byte = |at: u64| {
            let chunk = self.chunks.get(&(at / self.chunk_len));
            chunk.map_or(0, |(_, plain)| plain[(at % self.chunk_len) as usize])
        };
        let bytes: Vec<u8> = (offset..offset + len as u64).map(byte).collect();
        vec![Segment::Bytes(Bytes::from(bytes))]
    }
}

impl BlockView for SparseBase {
    fn size_bytes(&self) -> u64 {
        self.size_bytes
    }

    fn try_read(&self, offset: u64, len: usize) -> Result<TryRead, ReadError> {
        Ok(TryRead::Ready(self.bytes(offset, len)))
    }

    fn read(&self, offset: u64, len: usize) -> ReadFuture {
        let bytes = self.bytes(offset, len);
        Box::pin(async move { Ok(bytes) })
    }

    fn next_extent(&self, offset: u64, kind: ExtentKind) -> Option<u64> {
        (kind == ExtentKind::Data && offset < self.size_bytes).then_some(offset)
    }

    fn cached_bytes(&self) -> u64 {
        0
    }
}

struct Host {
    origin: MemoryOrigin,
    volume: Arc<Volume>,
    chunk_size: ChunkSize,
    size_bytes: u64,
    _runtime: Runtime,
}

impl Host {
    fn new(chunk_size: u32, size_bytes: u64) -> Host {
        let (runtime, origin) = (Runtime::new().unwrap(), MemoryOrigin::default());
        let chunk_size = ChunkSize::new(chunk_size).unwrap();
        let config = VolumeConfig {
            directory: "unused".into(),
            quota_bytes: 256 << 20,
            reserve_bytes: 0,
            segment_bytes: 1 << 20,
            push_rate: None,
            io_timeout: Some(Duration::from_secs(30)),
            chunk_size,
        };
        let opening = Opening {
            volume: VOLUME,
            epoch: 1,
            next: 100,
            size_bytes,
            manifest: None,
            logs: Vec::new(),
            durability: Durability { period_s: 3600.0, ..Durability::default() },
        };
        let (sink, handle) = (Arc::new(origin.clone()), runtime.handle().clone());
        let disk = Arc::new(MemoryDisk::new(1 << 30));
        let volume = Volume::open_on(disk, config, opening, None, sink, handle).unwrap();
        Host { origin, volume, chunk_size, size_bytes, _runtime: runtime }
    }

    fn largest() -> Host {
        Host::new(64 << 10, LARGEST)
    }

    fn chunk_len(&self) -> u64 {
        self.chunk_size.bytes() as u64
    }

    fn write(&self, chunk: u64, content: Vec<u8>) {
        let done = self.volume.write(chunk * self.chunk_len(), Bytes::from(content), false);
        assert!(matches!(done, Done::Now(Ok(()))));
    }

    fn trim(&self, offset: u64, len: u64) {
        assert!(matches!(self.volume.trim(offset, len, false), Done::Now(Ok(()))));
    }

    fn try_fold(&self) -> Result<Option<Folded>, OverlayError> {
        self.volume.fold(&mut |_, _| Ok(()), &PAGED())
    }

    /// Folds, and goes on over what it made.
    fn fold(&self) -> (PagedDisk, Chunks) {
        let folded = self.try_fold().unwrap().expect("something to fold");
        let disk = PagedDisk::of(&self.origin, &folded.digest).expect("of format 2");
        assert_eq!(disk.size_bytes(), self.size_bytes);
        let chunks = disk.chunks(&self.origin);
        let base = SparseBase {
            chunks: chunks.clone(),
            chunk_len: self.chunk_len(),
            size_bytes: self.size_bytes,
        };
        self.volume.set_base(Arc::new(base), disk.manifest(), &folded);
        (disk, chunks)
    }

    fn extents(&self) -> usize {
        self.volume.core.log.map().extents.len()
    }

    fn packed_bytes(&self) -> usize {
        let packs = self.origin.keys("packs/").into_iter();
        packs.map(|key| self.origin.object(&key).map_or(0, |pack| pack.len())).sum()
    }
}

#[test]
fn first_manifest_of_the_largest_disk_has_what_was_written() {
    let host = Host::largest();
    let last = LARGEST / host.chunk_len() - 1;
    let written: BTreeMap<u64, Vec<u8>> =
        [(0, random(1, 65536)), (1 << 29, text(2, 65536)), (last, random(3, 65536))].into();
    written.iter().for_each(|(chunk, content)| host.write(*chunk, content.clone()));
    let (disk, chunks) = host.fold();
    assert_eq!(disk.levels.len(), 1);
    assert!(disk.levels[0].len() < 16 << 12, "{} bytes", disk.levels[0].len());
    let found: BTreeMap<_, _> =
        chunks.iter().map(|(chunk, (_, plain))| (*chunk, plain.clone())).collect();
    assert_eq!(found, written);
    assert_eq!(host.extents(), 0, "all of it is in the manifest");
}

#[test]
fn chunks_are_compressed_where_that_pays() {
    let host = Host::largest();
    (0..64).for_each(|chunk| host.write(chunk, text(chunk, 65536)));
    (64..128).for_each(|chunk| host.write(chunk, random(chunk, 65536)));
    let (_, chunks) = host.fold();
    for (chunk, (stored, plain)) in &chunks {
        assert!(stored.digest.matches(plain), "of what guests read");
        let expected = if *chunk < 64 { (Codec::Lz4, false) } else { (Codec::Plain, true) };
        assert_eq!((stored.codec, stored.is_incompressible), expected, "{chunk}");
    }
    let random_bytes = 64 * 65536;
    assert!(host.packed_bytes() < random_bytes + random_bytes / 8, "{}", host.packed_bytes());
}

#[test]
fn folds_over_a_first_manifest_are_deltas_and_store_nothing_twice() {
    let host = Host::new(4096, 1 << 40);
    (0..6000).for_each(|chunk| host.write(chunk, random(chunk, 4096)));
    let (first, _) = host.fold();
    let packed = host.packed_bytes();
    host.write(50_000_000, random(17, 4096));
    host.write(3, vec![0; 4096]);
    let (second, chunks) = host.fold();
    assert_eq!((first.levels.len(), second.levels.len()), (1, 2));
    assert!(second.levels[0].len() * 8 <= first.levels[0].len());
    assert_eq!((chunks.len(), host.packed_bytes()), (6000, packed), "it is in the first already");
    assert!(!chunks.contains_key(&3) && chunks.contains_key(&50_000_000));
}

#[test]
fn disk_that_is_made_zero_costs_nothing() {
    let host = Host::largest();
    host.trim(0, LARGEST);
    let (_, chunks) = host.fold();
    assert_eq!((chunks.len(), host.extents(), host.packed_bytes()), (0, 0, 0));
    let chunk_count = LARGEST / host.chunk_len();
    for chunk in [0, 7, 1 << 29, chunk_count - 1] {
        host.write(chunk, random(chunk, 65536));
    }
    assert_eq!(host.fold().1.len(), 4);
    // But for the first sector, and a part of what is zero is written again.
    host.trim(512, LARGEST - 512);
    host.write(9, text(9, 65536));
    let (_, chunks) = host.fold();
    assert_eq!(chunks.keys().copied().collect::<Vec<_>>(), [0, 9]);
    let first = &chunks[&0].1;
    assert_eq!(first[..512], random(0, 65536)[..512]);
    assert!(is_zero(&first[512..]));
    assert_eq!(host.extents(), 0);
}

#[test]
fn what_no_manifest_of_format_1_describes_is_refused_before_anything_is_stored() {
    let host = Host::largest();
    host.write(0, random(1, 65536));
    let fold = || host.volume.fold(&mut |_, _| panic!("announced"), &FoldHow::default());
    let error = fold().unwrap_err();
    assert!(matches!(error, OverlayError::Invalid(_)), "{error}");
    assert!(error.to_string().contains("format 1 describes 4398046511104 at most"), "{error}");
    assert!(host.origin.keys("packs/").is_empty());
}

/// Sectors of the disk of the model, whose last chunk is a part of one.
const SECTORS: u64 = 20 * 8 + 3;

#[derive(Clone, Debug)]
enum Step {
    /// Writes sectors from one on.
    Write(u64, u64, u8),
    /// Makes them zero.
    Trim(u64, u64),
    Fold,
}

fn step() -> impl Strategy<Value = Step> {
    let range = || (0..SECTORS).prop_flat_map(|first| (Just(first), 1..=(SECTORS - first).min(40)));
    prop_oneof![
        4 => (range(), any::<u8>()).prop_map(|((first, len), byte)| Step::Write(first, len, byte)),
        3 => range().prop_map(|(first, len)| Step::Trim(first, len)),
        1 => Just(Step::Trim(0, SECTORS)),
        2 => Just(Step::Fold),
    ]
}

/// Sectors of one byte each, every other of content that is not compressed.
fn sectors(first: u64, len: u64, byte: u8) -> Vec<u8> {
    match byte % 2 {
        0 => vec![byte; len as usize * 512],
        _ => random(first << 8 | u64::from(byte), len as usize * 512),
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn folds_have_what_was_written(steps in prop::collection::vec(step(), 1..40)) {
        let host = Host::new(4096, SECTORS * 512);
        let mut expected = vec![0; SECTORS as usize * 512];
        let mut is_written = false;
        for step in steps.into_iter().chain([Step::Fold]) {
            match step {
                Step::Write(first, len, byte) => {
                    let content = sectors(first, len, byte);
                    let at = first as usize * 512;
                    expected[at..at + content.len()].copy_from_slice(&content);
                    let done = host.volume.write(first * 512, Bytes::from(content), false);
                    prop_assert!(matches!(done, Done::Now(Ok(()))));
                    is_written = true;
                }
                Step::Trim(first, len) => {
                    let at = first as usize * 512;
                    expected[at..at + len as usize * 512].fill(0);
                    host.trim(first * 512, len * 512);
                    is_written = true;
                }
                Step::Fold if !is_written => {}
                Step::Fold => {
                    let (disk, chunks) = host.fold();
                    prop_assert_eq!(host.extents(), 0);
                    prop_assert!(chunks.values().all(|(_, plain)| !is_zero(plain)));
                    let mut found = vec![0; expected.len().next_multiple_of(4096)];
                    for (chunk, (_, plain)) in &chunks {
                        found[*chunk as usize * 4096..][..4096].copy_from_slice(plain);
                    }
                    found.truncate(expected.len());
                    prop_assert!(found == expected, "over {} levels", disk.levels.len());
                }
            }
            let read = host.volume.core.read_bytes(0, expected.len()).unwrap();
            prop_assert!(read == expected);
        }
    }
}
