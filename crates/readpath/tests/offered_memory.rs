//! Memory of a disk that is offered, counted by the allocator: none that grows with its size. The count
//! is the process's, as the read path has threads of its own: this test is alone in its binary.
#![expect(clippy::unwrap_used, reason = "a test ends at the first surprise")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicIsize, Ordering};
use std::time::Duration;

use acstor_peer::{PeerClient, PeerConfig, Security};
use acstor_readpath::{
    BlockView, HostStore, ManifestFile, ManifestState, PosixPackReader, ReadPath, ReadPathConfig,
    Seams, TryRead,
};
use acstor_ring::RingHandle;
use acstor_runclock::RunClock;
use acstor_store::{ChunkStore, EvictionKind, StoreConfig};
use acstor_types::{ChunkSize, DiskId, MANIFEST_HEADER_LEN, Manifest, ManifestBuilder};
use prometheus_client::registry::Registry;

/// The system's allocator, which counts the bytes that live.
struct Counting;

static LIVE: AtomicIsize = AtomicIsize::new(0);

// SAFETY: every call goes to the system's allocator as it is.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        LIVE.fetch_add(layout.size() as isize, Ordering::Relaxed);
        // SAFETY: the caller's promise.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        LIVE.fetch_sub(layout.size() as isize, Ordering::Relaxed);
        // SAFETY: the caller's promise.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

const GIB: u64 = 1 << 30;
const IMAGES: u8 = 200;
/// Memory that an offered disk may take, bytes: a few KiB, however large it is.
const BYTES_MAX: isize = 4 << 10;

/// A manifest of zeros: as large as any other of that size.
fn manifest(number: u8, size: u64) -> Manifest {
    let mut builder =
        ManifestBuilder::new(DiskId::from_bytes([number; 16]), ChunkSize::DEFAULT, size);
    (0..ChunkSize::DEFAULT.count_for(size)).for_each(|_| builder.push_zero());
    builder.finish().unwrap()
}

/// Writes the header of a manifest, and as many bytes as the rest of it has; of it all with `is_whole`.
fn write(directory: &Path, manifest: &Manifest, is_whole: bool) -> Arc<ManifestFile> {
    let path = directory.join(manifest.disk_id().to_string());
    let file =
        File::options().read(true).write(true).create(true).truncate(true).open(path).unwrap();
    let bytes = manifest.as_bytes();
    file.set_len(bytes.len() as u64).unwrap();
    let len = if is_whole { bytes.len() } else { MANIFEST_HEADER_LEN };
    file.write_all_at(&bytes[..len], 0).unwrap();
    Arc::new(ManifestFile::new(file).unwrap())
}

fn read_path(directory: &Path) -> ReadPath {
    let store = ChunkStore::open(&StoreConfig {
        path: directory.to_owned(),
        capacity_bytes: 64 << 20,
        chunk_size: ChunkSize::DEFAULT,
        eviction: EvictionKind::S3Fifo,
    });
    let clock = RunClock::start(&tokio::runtime::Handle::current());
    let seams = Seams {
        store: Arc::new(HostStore::new(store.unwrap(), ChunkSize::DEFAULT)),
        peers: Arc::new(PeerClient::by(&PeerConfig::new(Security::Plain), clock.clone()).unwrap()),
        origin: Arc::new(PosixPackReader::new(directory)),
        rings: Arc::new(RingHandle::empty()),
        clock,
    };
    let runtime = tokio::runtime::Handle::current();
    let config = ReadPathConfig { host: "a".to_owned(), ..ReadPathConfig::default() };
    ReadPath::new(config, seams, &mut Registry::default(), runtime).unwrap()
}

fn offer(path: &ReadPath, file: Arc<ManifestFile>, manifest: &Manifest) -> Arc<dyn BlockView> {
    path.offer(file.shape().unwrap(), manifest.digest(), file).unwrap()
}

#[tokio::test]
async fn test_offered_disks_take_next_to_no_memory_until_they_are_read_and_after() {
    let directory = tempfile::tempdir().unwrap();
    let path = read_path(directory.path());
    // Once beforehand, so that what is made or given back only at the first use counts for nothing.
    let first = manifest(u8::MAX, GIB);
    let view = offer(&path, write(directory.path(), &first, true), &first);
    view.prepare().unwrap().await.unwrap();
    assert!(matches!(view.try_read(0, 4096).unwrap(), TryRead::Ready(_)));
    path.detach(&first.disk_id()).unwrap();
    drop((first, view));
    let before = LIVE.load(Ordering::Relaxed);
    let mut views = Vec::new();
    for number in 0..IMAGES {
        // The digest of one of them is as good as any: nothing else is read of them.
        let manifest = manifest(number, if number == 0 { 256 * GIB } else { GIB });
        views.push(offer(&path, write(directory.path(), &manifest, false), &manifest));
    }
    let used = manifest(IMAGES, 10 * GIB);
    let view = offer(&path, write(directory.path(), &used, true), &used);
    let id = used.disk_id();
    drop(used);
    let live = || LIVE.load(Ordering::Relaxed) - before;
    let most = (isize::from(IMAGES) + 1) * BYTES_MAX;
    println!("{} bytes for each offered disk", live() / (isize::from(IMAGES) + 1));
    assert!(live() > 0 && live() < most, "{} bytes", live());
    view.prepare().unwrap().await.unwrap();
    assert_eq!(path.manifest_state(&id).unwrap(), ManifestState::InMemory);
    assert!(matches!(view.try_read(5 * GIB, 4096).unwrap(), TryRead::Ready(_)));
    path.release_idle_manifests(Duration::ZERO, |_| true);
    assert_eq!(path.manifest_state(&id).unwrap(), ManifestState::InMemory);
    path.release_idle_manifests(Duration::ZERO, |_| false);
    assert_eq!(path.manifest_state(&id).unwrap(), ManifestState::OnDisk);
    assert!(live() < most, "{} bytes", live());
    path.stop(Duration::from_secs(60));
}
