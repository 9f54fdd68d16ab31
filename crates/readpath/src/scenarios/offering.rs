//! Disks whose manifest is read when it is needed, and dropped when it is not.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use acstor_types::ErrorKind;
use parking_lot::{Condvar, Mutex};
use tokio::time::advance;

use super::image::{CHUNK, Image, Shape};
use super::test_origin::TestOrigin;
use super::world::{World, check, config};
use crate::{
    BlockView, DiskManifest, ExtentKind, ManifestFault, ManifestSource, ManifestState,
    PagedManifest, ReadError, TryRead, limits,
};

/// A manifest that counts how often it is read, that faults, and that takes as long as a test wants.
pub(super) struct TestSource {
    manifest: Mutex<DiskManifest>,
    reads: AtomicUsize,
    pub(super) fault: Mutex<Option<ErrorKind>>,
    is_closed: Mutex<bool>,
    opened: Condvar,
}

impl TestSource {
    pub(super) fn of(image: &Image) -> Arc<TestSource> {
        Arc::new(TestSource {
            manifest: Mutex::new(image.manifest.clone().into()),
            reads: AtomicUsize::new(0),
            fault: Mutex::default(),
            is_closed: Mutex::default(),
            opened: Condvar::new(),
        })
    }

    /// Keeps all readers waiting until it is opened.
    pub(super) fn close(&self) {
        *self.is_closed.lock() = true;
    }

    pub(super) fn open(&self) {
        *self.is_closed.lock() = false;
        self.opened.notify_all();
    }

    pub(super) fn reads(&self) -> usize {
        self.reads.load(Ordering::Relaxed)
    }
}

impl ManifestSource for TestSource {
    fn read(&self) -> Result<DiskManifest, ManifestFault> {
        self.reads.fetch_add(1, Ordering::Relaxed);
        self.opened.wait_while(&mut self.is_closed.lock(), |is_closed| *is_closed);
        match *self.fault.lock() {
            Some(kind) => Err(ManifestFault::new(kind, "as the test wants it")),
            None => Ok(self.manifest.lock().clone()),
        }
    }

    fn read_paged(&self) -> Result<Option<PagedManifest>, ManifestFault> {
        Ok(None)
    }
}

pub(super) fn offer(
    world: &World,
    host: &str,
    image: &Image,
) -> (Arc<dyn BlockView>, Arc<TestSource>) {
    let source = TestSource::of(image);
    let (header, digest) = (image.manifest.header(), image.manifest.digest());
    let path = &world.host(host).path;
    (path.offer(header, digest, source.clone()).unwrap(), source)
}

/// Reads a chunk and compares it.
async fn read(view: &Arc<dyn BlockView>, image: &Image, chunk: u64) {
    let segments = view.read(chunk * CHUNK as u64, CHUNK).await.unwrap();
    check(image, chunk * CHUNK as u64, CHUNK, &segments);
}

pub(super) fn state(world: &World, image: &Image) -> ManifestState {
    world.host("a").path.manifest_state(&image.id()).unwrap()
}

#[tokio::test(start_paused = true)]
async fn test_offered_disk_is_read_from_its_source_at_the_first_read_only() {
    let world = World::new(&["a"], &config());
    let image = Image::register(Shape::plain(1, 40), &world.origin);
    let (view, source) = offer(&world, "a", &image);
    assert_eq!(view.size_bytes(), image.manifest.size_bytes());
    assert_eq!(state(&world, &image), ManifestState::OnDisk);
    assert!(matches!(view.try_read(0, CHUNK), Ok(TryRead::WouldWait)));
    assert_eq!(source.reads(), 0, "names and attributes need no manifest");
    view.prepare().unwrap().await.unwrap();
    assert!(view.prepare().is_none(), "it is at hand");
    for chunk in [0, 7, 0] {
        read(&view, &image, chunk).await;
    }
    assert_eq!((source.reads(), state(&world, &image)), (1, ManifestState::InMemory));
}

#[tokio::test(start_paused = true)]
async fn test_readers_that_come_together_read_the_manifest_once() {
    let world = World::new(&["a"], &config());
    let image = Image::register(Shape::plain(1, 40), &world.origin);
    let (view, source) = offer(&world, "a", &image);
    let reads: Vec<_> =
        (0..20).map(|chunk| tokio::spawn(view.read(chunk * CHUNK as u64, CHUNK))).collect();
    for (chunk, read) in (0..).zip(reads) {
        check(&image, chunk * CHUNK as u64, CHUNK, &read.await.unwrap().unwrap());
    }
    assert_eq!(source.reads(), 1);
}

#[tokio::test(start_paused = true)]
async fn test_manifest_leaves_memory_when_nobody_has_needed_it_for_a_while() {
    let world = World::new(&["a"], &config());
    let image = Image::register(Shape::plain(1, 40), &world.origin);
    let (view, source) = offer(&world, "a", &image);
    let path = &world.host("a").path;
    let is_open = AtomicBool::new(true);
    let sweep =
        || path.release_idle_manifests(limits::MANIFEST_IDLE, |_| is_open.load(Ordering::Relaxed));
    view.read(0, CHUNK).await.unwrap();
    advance(2 * limits::MANIFEST_IDLE).await;
    sweep();
    assert_eq!(state(&world, &image), ManifestState::InMemory, "it is open");
    is_open.store(false, Ordering::Relaxed);
    advance(limits::MANIFEST_IDLE / 2).await;
    sweep();
    assert_eq!(state(&world, &image), ManifestState::InMemory, "not for long");
    advance(limits::MANIFEST_IDLE).await;
    sweep();
    assert_eq!(state(&world, &image), ManifestState::OnDisk);
    read(&view, &image, 0).await;
    assert_eq!((source.reads(), state(&world, &image)), (2, ManifestState::InMemory));
}

#[tokio::test(start_paused = true)]
async fn test_manifest_of_a_base_stays_in_memory_as_long_as_its_view_is_held() {
    let world = World::new(&["a"], &config());
    let image = Image::register(Shape::plain(1, 40), &world.origin);
    let (_view, source) = offer(&world, "a", &image);
    let path = &world.host("a").path;
    let base = path.attach(image.manifest.clone()).unwrap();
    advance(2 * limits::MANIFEST_IDLE).await;
    path.release_idle_manifests(limits::MANIFEST_IDLE, |_| false);
    assert_eq!(state(&world, &image), ManifestState::InMemory);
    read(&base, &image, 0).await;
    drop(base);
    advance(2 * limits::MANIFEST_IDLE).await;
    path.release_idle_manifests(limits::MANIFEST_IDLE, |_| false);
    assert_eq!((source.reads(), state(&world, &image)), (0, ManifestState::OnDisk));
}

#[tokio::test(start_paused = true)]
async fn test_owner_reads_the_origin_for_a_peer_by_an_offered_disk() {
    let world = World::new(&["a", "b"], &config());
    let image = Image::register(Shape::plain(1, 640), &world.origin);
    let (view, _) = offer(&world, "a", &image);
    let (_, source) = offer(&world, "b", &image);
    let chunk = world.span_of(&image, "b", 0);
    read(&view, &image, chunk).await;
    assert_eq!(source.reads(), 1, "the owner knows where in the origin the chunk is");
    world.flush();
    assert_eq!(world.host("b").store.digests().len(), 1, "and keeps it");
}

#[tokio::test(start_paused = true)]
async fn test_damaged_manifest_fails_reads_until_the_disk_is_offered_anew() {
    let world = World::new(&["a"], &config());
    let image = Image::register(Shape::plain(1, 40), &world.origin);
    let (view, source) = offer(&world, "a", &image);
    *source.fault.lock() = Some(ErrorKind::Unavailable);
    let error = view.read(0, CHUNK).await.unwrap_err();
    assert!(matches!(error, ReadError::Manifest { is_damaged: false, .. }), "{error}");
    assert_eq!(state(&world, &image), ManifestState::OnDisk, "it may pass");
    // Another manifest than the one that was attached, well as it is.
    *source.fault.lock() = None;
    let other = Image::register(Shape { zero_every: 7, ..Shape::plain(1, 40) }, &TestOrigin::new());
    *source.manifest.lock() = other.manifest.clone().into();
    let error = view.prepare().unwrap().await.unwrap_err();
    assert!(matches!(error, ReadError::Manifest { is_damaged: true, .. }), "{error}");
    assert_eq!(error.kind(), ErrorKind::Corrupt);
    assert_eq!(state(&world, &image), ManifestState::Damaged);
    let (again, _) = offer(&world, "a", &image);
    assert_eq!(state(&world, &image), ManifestState::OnDisk);
    for view in [view, again] {
        read(&view, &image, 0).await;
    }
}

#[tokio::test(start_paused = true)]
async fn test_offer_of_other_content_is_refused_and_moved_chunks_are_taken_over() {
    let world = World::new(&["a"], &config());
    let before = Image::register(Shape::plain(1, 40), &world.origin);
    let (view, _) = offer(&world, "a", &before);
    let other = Image::register(Shape { zero_every: 7, ..Shape::plain(1, 40) }, &TestOrigin::new());
    let path = &world.host("a").path;
    let (header, digest) = (other.manifest.header(), other.manifest.digest());
    assert!(path.offer(header, digest, TestSource::of(&other)).is_err());
    let shape = Shape { chunks_per_pack: 8, ..Shape::plain(1, 40) };
    let after = Image::register(shape, &world.origin);
    assert_ne!(before.manifest.digest(), after.manifest.digest());
    let (_, source) = offer(&world, "a", &after);
    read(&view, &before, 0).await;
    assert_eq!(source.reads(), 2, "compared, and read from the new place");
}

#[tokio::test(start_paused = true)]
async fn test_control_calls_keep_no_manifest_in_memory() {
    let world = World::new(&["a"], &config());
    let image = Image::register(Shape::plain(1, 40), &world.origin);
    let (_view, source) = offer(&world, "a", &image);
    let path = &world.host("a").path;
    let second = std::time::Duration::from_secs(1);
    let report = path.pin(&image.id(), CHUNK as u64, 0, second).await.unwrap();
    assert_eq!(report.missing_bytes, 0);
    path.set_working_set(&image.id(), &[0b11, 0, 0, 0, 0]).unwrap();
    assert_eq!((source.reads(), state(&world, &image)), (2, ManifestState::OnDisk));
    assert_eq!(path.coverage()[0].1.present_chunks, 1);
    assert_eq!(path.coverage()[0].1.wanted_chunks, 2);
    assert_eq!(path.working_set(&image.id()).unwrap().chunk_count, 40);
    assert_eq!(path.pinned_bytes(&image.id()), CHUNK as u64);
    assert_eq!(source.reads(), 2, "what is here is counted without it");
}

#[tokio::test(start_paused = true)]
async fn test_extents_are_those_of_the_manifest_once_it_is_there() {
    let world = World::new(&["a"], &config());
    let image = Image::register(Shape::plain(1, 40), &world.origin);
    let (view, _) = offer(&world, "a", &image);
    let size = view.size_bytes();
    assert_eq!(view.next_extent(5, ExtentKind::Data), Some(5), "all may be data");
    assert_eq!(view.next_extent(5, ExtentKind::Hole), Some(size));
    assert_eq!(view.next_extent(size, ExtentKind::Hole), None);
    view.prepare().unwrap().await.unwrap();
    let known = world.host("a").path.attach(image.manifest.clone()).unwrap();
    for offset in (0..size).step_by(CHUNK / 2) {
        for kind in [ExtentKind::Data, ExtentKind::Hole] {
            assert_eq!(view.next_extent(offset, kind), known.next_extent(offset, kind));
        }
    }
}

/// Reads, opens, sweeps, attaches and detaches all at once, on several threads: whatever happens, a read
/// gives the bytes of the disk.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn test_reads_are_exact_while_manifests_come_and_go() {
    const CHUNKS: u64 = 40;
    const READS: u64 = 400;
    let world = World::new(&["a"], &config());
    let images: Vec<Arc<Image>> = (1..=3)
        .map(|number| Shape { zero_every: 7, ..Shape::plain(number, CHUNKS as usize) })
        .map(|shape| Arc::new(Image::register(shape, &world.origin)))
        .collect();
    let path = world.host("a").path.clone();
    let is_over = Arc::new(AtomicBool::new(false));
    let mut readers = Vec::new();
    for image in &images {
        let (view, _) = offer(&world, "a", image);
        for salt in 0..2 {
            let (view, image) = (view.clone(), image.clone());
            readers.push(tokio::spawn(async move {
                for number in 0..READS {
                    if number % 5 == 0
                        && let Some(preparing) = view.prepare()
                    {
                        preparing.await.unwrap();
                    }
                    let offset = (number * 17 + salt * 3) % CHUNKS * CHUNK as u64;
                    let segments = match view.try_read(offset, 2 * CHUNK).unwrap() {
                        TryRead::Ready(segments) => segments,
                        TryRead::WouldWait => view.read(offset, 2 * CHUNK).await.unwrap(),
                    };
                    check(&image, offset, 2 * CHUNK, &segments);
                    tokio::task::yield_now().await;
                }
            }));
        }
    }
    let sweeper = {
        let (path, is_over) = (path.clone(), is_over.clone());
        tokio::task::spawn_blocking(move || {
            while !is_over.load(Ordering::Relaxed) {
                path.release_idle_manifests(std::time::Duration::ZERO, |_| false);
                std::thread::yield_now();
            }
        })
    };
    let changer = {
        let (path, is_over, images) = (path.clone(), is_over.clone(), images.clone());
        tokio::task::spawn_blocking(move || {
            for image in images.iter().cycle() {
                if is_over.load(Ordering::Relaxed) {
                    break;
                }
                let _ = path.detach(&image.id());
                let (header, digest) = (image.manifest.header(), image.manifest.digest());
                path.offer(header, digest, TestSource::of(image)).unwrap();
                drop(path.attach(image.manifest.clone()).unwrap());
                std::thread::yield_now();
            }
        })
    };
    for reader in readers {
        reader.await.unwrap();
    }
    is_over.store(true, Ordering::Relaxed);
    sweeper.await.unwrap();
    changer.await.unwrap();
    for image in &images {
        assert!(path.manifest_state(&image.id()).is_ok());
    }
}
