//! Manifests of which this host has the front only: pages that come from the origin when they are needed,
//! and all others in time.

use std::fs::File;
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::time::Duration;

use acstor_manifest::PAGE_LEN;
use acstor_runclock::TICK;
use acstor_types::{Digest, ErrorKind};
use tempfile::NamedTempFile;
use tokio::time::{Instant, advance, sleep, timeout};

use super::image::CHUNK;
use super::paged_image::PagedImage;
use super::test_origin::OriginFaultMode;
use super::world::{World, bytes_of, config};
use crate::{BlockView, ManifestFile, ManifestState, ReadError, limits};

/// Chunks of the disk: entries on 24 pages, in two windows.
const CHUNKS: u64 = 2000;
const SOON: Duration = Duration::from_secs(20);
const DEMAND: &str = "acstor_manifest_pages_fetched_total{reason=\"demand\"}";
const BACKGROUND: &str = "acstor_manifest_pages_fetched_total{reason=\"background\"}";

/// A disk of one host whose manifest has only its header there, in a file.
struct Disk {
    world: World,
    image: PagedImage,
    file: NamedTempFile,
    view: Arc<dyn BlockView>,
}

impl Disk {
    fn new() -> Disk {
        Disk::with(|file| File::options().read(true).write(true).open(file.path()).unwrap())
    }

    /// A disk whose manifest's file is opened as `open` does.
    fn with(open: impl Fn(&NamedTempFile) -> File) -> Disk {
        let world = World::new(&["a"], &config());
        let size = CHUNKS * CHUNK as u64;
        let image = PagedImage::register(1, size, 0..CHUNKS, "packs", &world.origin);
        world.origin.put_manifest(image.header().name(), &image.bytes);
        let file = front(&image);
        let view = offer(&world, &image, open(&file));
        Disk { world, image, file, view }
    }

    fn name(&self) -> Digest {
        self.image.header().name()
    }

    /// Pages of the manifest, without the header.
    fn pages(&self) -> u64 {
        u64::from(self.image.header().sections().page_count()) - 1
    }

    async fn read(&self, first: u64) {
        read(&self.view, &self.image, first).await;
    }

    fn metric(&self, name: &str) -> u64 {
        self.world.host("a").metric(name)
    }

    fn calls(&self) -> usize {
        self.world.origin.manifest_calls().len()
    }

    fn state(&self) -> ManifestState {
        let path = &self.world.host("a").path;
        path.manifest_state(&self.image.shape().disk_id).unwrap()
    }

    fn content(&self) -> Vec<u8> {
        std::fs::read(self.file.path()).unwrap()
    }

    /// Page with the entry of a chunk.
    fn entry_page(&self, chunk: u64) -> u32 {
        self.image.header().sections().entries.start + (chunk / 85) as u32
    }

    /// The manifest with one page damaged.
    fn damaged(&self, page: u32) -> Vec<u8> {
        let mut bytes = self.image.bytes.clone();
        bytes[page as usize * PAGE_LEN + 9] ^= 1;
        bytes
    }

    /// Lets the host make its manifests whole.
    fn complete(&self) {
        tokio::spawn(self.world.host("a").path.clone().complete_manifests());
    }

    async fn is_whole(&self) {
        until(|| self.metric("acstor_manifests_partial") == 0).await;
    }
}

/// A file with the header of a manifest and holes for the other pages.
fn front(image: &PagedImage) -> NamedTempFile {
    let mut file = NamedTempFile::new().unwrap();
    file.write_all(&image.bytes[..PAGE_LEN]).unwrap();
    file.as_file().set_len(image.bytes.len() as u64).unwrap();
    file
}

fn offer(world: &World, image: &PagedImage, file: File) -> Arc<dyn BlockView> {
    let source = Arc::new(ManifestFile::new(file).unwrap());
    world.host("a").path.offer(image.shape(), image.header().name(), source).unwrap()
}

async fn read(view: &Arc<dyn BlockView>, image: &PagedImage, chunk: u64) {
    let segments = view.read(chunk * CHUNK as u64, CHUNK).await.unwrap();
    assert!(bytes_of(&segments) == image.chunk(chunk), "wrong bytes at chunk {chunk}");
}

/// Waits for a condition, in the time of the test.
async fn until(is_so: impl Fn() -> bool) {
    let come_true = async {
        while !is_so() {
            sleep(Duration::from_millis(100)).await;
        }
    };
    timeout(Duration::from_secs(600), come_true).await.expect("it never came true");
}

#[tokio::test(start_paused = true)]
async fn test_first_read_fetches_the_pages_that_it_needs_and_their_neighbours() {
    let disk = Disk::new();
    disk.read(0).await;
    // Index, then directories and what lies behind them, then packs.
    let calls = disk.world.origin.manifest_calls();
    assert_eq!(calls.len(), 3, "{calls:?}");
    assert!(calls.iter().all(|(_, len)| *len <= 16 * PAGE_LEN), "{calls:?}");
    let fetched = disk.metric(DEMAND);
    assert!(fetched < disk.pages(), "{fetched} of {}", disk.pages());
    disk.read(1).await;
    assert_eq!(disk.calls(), 3);
    disk.read(CHUNKS - 1).await;
    assert_eq!(disk.calls(), 4, "an entry of the next window");
    assert_eq!(disk.metric(BACKGROUND), 0);
}

#[tokio::test(start_paused = true)]
async fn test_pages_that_came_are_there_for_the_next_process_without_the_origin() {
    let disk = Disk::new();
    disk.read(0).await;
    disk.world.origin.remove_manifest(&disk.name());
    let world = World::new(&["a"], &config());
    let image = PagedImage::register(1, CHUNKS * CHUNK as u64, 0..CHUNKS, "packs", &world.origin);
    let view = offer(&world, &image, disk.file.reopen().unwrap());
    read(&view, &image, 0).await;
    assert!(world.origin.manifest_calls().is_empty());
}

#[tokio::test(start_paused = true)]
async fn test_manifest_is_whole_after_a_while_and_the_origin_is_not_needed_any_more() {
    let disk = Disk::new();
    disk.read(7).await;
    disk.complete();
    disk.is_whole().await;
    assert!(disk.content() == disk.image.bytes);
    assert_eq!(disk.metric(DEMAND) + disk.metric(BACKGROUND), disk.pages(), "each once");
    disk.world.origin.remove_manifest(&disk.name());
    let calls = disk.calls();
    for chunk in 0..CHUNKS {
        disk.read(chunk).await;
    }
    assert_eq!(disk.calls(), calls);
    assert_eq!(disk.metric("acstor_manifest_fetch_failures_total"), 0);
}

#[tokio::test(start_paused = true)]
async fn test_manifest_is_made_whole_from_where_another_process_was_killed() {
    let disk = Disk::new();
    // Half of it came, and one page of it only in part.
    let half = disk.image.bytes.len() / 2 / PAGE_LEN * PAGE_LEN + 100;
    disk.file.as_file().write_all_at(&disk.image.bytes[..half], 0).unwrap();
    disk.complete();
    disk.is_whole().await;
    let calls = disk.world.origin.manifest_calls();
    assert!(calls.iter().all(|(offset, _)| *offset > half as u64 - PAGE_LEN as u64), "{calls:?}");
    for chunk in 0..CHUNKS {
        disk.read(chunk).await;
    }
    assert!(disk.content() == disk.image.bytes, "the page in part was fetched when it was needed");
}

#[tokio::test]
async fn test_manifest_in_another_file_is_made_whole_from_the_beginning() {
    let disk = Disk::new();
    // One call brings what the first file lacks.
    let most = disk.image.bytes.len() - PAGE_LEN;
    disk.file.as_file().write_all_at(&disk.image.bytes[..most], 0).unwrap();
    disk.world.origin.hold_manifests();
    disk.complete();
    until(|| disk.calls() == 1).await;
    let other = front(&disk.image);
    let _view = offer(&disk.world, &disk.image, other.reopen().unwrap());
    disk.world.origin.release_manifests();
    disk.is_whole().await;
    assert!(std::fs::read(other.path()).unwrap() == disk.image.bytes);
}

#[tokio::test(start_paused = true)]
async fn test_origin_that_hangs_keeps_few_threads_while_a_manifest_is_to_be_whole() {
    let disk = Disk::new();
    disk.world.origin.hold_manifests();
    disk.complete();
    let given_up = || disk.metric("acstor_manifest_fetch_failures_total");
    // While a thread waits time passes only so.
    while given_up() < limits::COMPLETION_CALLS_MAX as u64 {
        advance(TICK).await;
    }
    for _ in 0..6000 {
        advance(TICK).await;
    }
    assert_eq!(disk.calls(), limits::COMPLETION_CALLS_MAX);
    disk.world.origin.release_manifests();
    disk.is_whole().await;
    assert!(disk.content() == disk.image.bytes);
}

#[tokio::test(start_paused = true)]
async fn test_damaged_page_is_fetched_again() {
    let disk = Disk::new();
    disk.complete();
    disk.is_whole().await;
    let page = disk.entry_page(900);
    let damaged = disk.damaged(page);
    disk.file.as_file().write_all_at(&damaged, 0).unwrap();
    disk.read(900).await;
    assert!(disk.content() == disk.image.bytes);
    assert_eq!(disk.metric(DEMAND), 1);
    assert_ne!(disk.state(), ManifestState::Damaged);
}

#[tokio::test(start_paused = true)]
async fn test_page_that_is_damaged_in_the_origin_fails_the_reads_that_need_it_alone() {
    let disk = Disk::new();
    let page = disk.entry_page(900);
    disk.world.origin.put_manifest(disk.name(), &disk.damaged(page));
    let error = disk.view.read(900 * CHUNK as u64, CHUNK).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Corrupt, "{error}");
    assert!(error.to_string().contains("damaged in the origin"), "{error}");
    disk.read(0).await;
    disk.read(1999).await;
    assert_ne!(disk.state(), ManifestState::Damaged, "attached anew it would be no better");
    disk.world.origin.put_manifest(disk.name(), &disk.image.bytes);
    disk.read(900).await;
}

#[tokio::test(start_paused = true)]
async fn test_manifest_that_is_nowhere_counts_as_damaged() {
    let disk = Disk::new();
    disk.world.origin.remove_manifest(&disk.name());
    let error = disk.view.read(0, CHUNK).await.unwrap_err();
    assert!(matches!(error, ReadError::Manifest { is_damaged: true, .. }), "{error}");
    assert_eq!(disk.state(), ManifestState::Damaged);
    assert_eq!(disk.calls(), limits::PAGE_ATTEMPTS_MAX as usize);
}

#[tokio::test(start_paused = true)]
async fn test_read_waits_for_an_origin_that_is_down_as_long_as_for_a_chunk() {
    let disk = Disk::new();
    disk.world.origin.set(OriginFaultMode::Down);
    let started = Instant::now();
    let error = disk.view.read(0, CHUNK).await.unwrap_err();
    assert!(matches!(error, ReadError::Deadline(30_000)), "{error}");
    assert!((30..32).contains(&started.elapsed().as_secs()), "{:?}", started.elapsed());
    assert!(disk.calls() < 100, "{} calls", disk.calls());
    assert_ne!(disk.state(), ManifestState::Damaged);
    let waiting = tokio::spawn(disk.view.read(0, CHUNK));
    sleep(Duration::from_secs(10)).await;
    assert!(!waiting.is_finished());
    disk.world.origin.set(OriginFaultMode::Well);
    let segments = waiting.await.unwrap().unwrap();
    assert!(bytes_of(&segments) == disk.image.chunk(0));
}

#[tokio::test(start_paused = true)]
async fn test_manifest_becomes_whole_once_the_origin_is_back() {
    let disk = Disk::new();
    disk.world.origin.set(OriginFaultMode::Down);
    disk.complete();
    sleep(Duration::from_secs(300)).await;
    assert_eq!(disk.metric("acstor_manifests_partial"), 1);
    disk.world.origin.set(OriginFaultMode::Well);
    disk.is_whole().await;
    assert!(disk.content() == disk.image.bytes);
}

#[tokio::test(start_paused = true)]
async fn test_readers_of_the_same_pages_fetch_them_once() {
    let disk = Disk::new();
    let reads: Vec<_> =
        (0..50).map(|chunk| tokio::spawn(disk.view.read(chunk * CHUNK as u64, CHUNK))).collect();
    for (chunk, read) in (0..).zip(reads) {
        assert!(bytes_of(&read.await.unwrap().unwrap()) == disk.image.chunk(chunk));
    }
    assert_eq!(disk.calls(), 3);
}

#[tokio::test]
async fn test_reads_of_pages_that_are_here_go_on_while_the_origin_holds_others_back() {
    let disk = Disk::new();
    disk.read(0).await;
    disk.world.origin.hold_manifests();
    // More than there are permits of any kind.
    let held: Vec<_> = (0..200)
        .map(|number| tokio::spawn(disk.view.read((CHUNKS - 1 - number) * CHUNK as u64, CHUNK)))
        .collect();
    let before = disk.calls();
    let has_called = async {
        while disk.calls() == before {
            tokio::task::yield_now().await;
        }
    };
    timeout(SOON, has_called).await.expect("one of them asks the origin");
    timeout(SOON, disk.read(1)).await.expect("its pages are in memory");
    assert!(held.iter().all(|read| !read.is_finished()));
    disk.world.origin.release_manifests();
    for read in held {
        read.await.unwrap().unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn test_pages_are_used_where_this_host_s_disk_does_not_take_them() {
    let disk = Disk::with(|file| File::open(file.path()).unwrap());
    disk.read(0).await;
    disk.read(CHUNKS - 1).await;
    disk.read(0).await;
    assert_eq!(disk.metric("acstor_manifest_pages_unwritten_total"), disk.metric(DEMAND));
    assert!(disk.content()[PAGE_LEN..].iter().all(|byte| *byte == 0));
    disk.complete();
    sleep(3 * limits::COMPLETION_RETRY / 2).await;
    assert_eq!(disk.metric("acstor_manifests_partial"), 1);
    let windows = disk.pages().div_ceil(u64::from(limits::COMPLETION_WINDOW)) + 3;
    let calls = disk.calls() as u64;
    assert!(calls < 4 + 3 * windows, "{calls} calls: it is not tried all the time");
}

#[tokio::test(start_paused = true)]
async fn test_disk_that_is_detached_is_not_made_whole() {
    let disk = Disk::new();
    disk.world.host("a").path.detach(&disk.image.shape().disk_id).unwrap();
    disk.complete();
    sleep(Duration::from_secs(300)).await;
    assert_eq!(disk.calls(), 0);
}

#[tokio::test(start_paused = true)]
async fn test_preload_of_all_brings_the_pages_that_it_needs() {
    let disk = Disk::new();
    let path = disk.world.host("a").path.clone();
    let id = disk.image.shape().disk_id;
    let estimate =
        tokio::task::spawn_blocking(move || path.preload_estimate(&id, crate::PreloadWhat::Full));
    assert_eq!(estimate.await.unwrap().unwrap().total_bytes, CHUNKS * CHUNK as u64);
}
