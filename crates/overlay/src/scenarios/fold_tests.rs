//! Folds: their requests to the origin, and the callers that wait for them.

use std::cell::RefCell;
use std::sync::Arc;
use std::time::{Duration, Instant};

use acstor_testkit::Fault;
use acstor_types::{ChunkSize, DedupScope, Digest, DiskId, Entry, PackId};
use bytes::Bytes;
use tokio::runtime::Runtime;

use crate::regions::durability::Durability;
use crate::scenarios::memory_disk::MemoryDisk;
use crate::scenarios::memory_origin::{MemoryBase, MemoryOrigin};
use crate::{
    BlockDevice, Done, FoldHow, Folded, LogDisk, Opening, OverlayError, Volume, VolumeConfig,
};

const VOLUME: DiskId = DiskId::from_bytes([6; 16]);
const SIZE: u64 = 64 << 20;
const CHUNK: u64 = 64 << 10;

fn content(chunk: u64, salt: u64) -> Vec<u8> {
    let digests =
        (0..CHUNK / 32).map(|at| Digest::of(&(salt << 40 | chunk << 20 | at).to_le_bytes()));
    digests.flat_map(|digest| *digest.as_bytes()).collect()
}

struct Host {
    origin: MemoryOrigin,
    volume: Arc<Volume>,
    _runtime: Runtime,
}

impl Host {
    fn new() -> Host {
        let (runtime, origin) = (Runtime::new().unwrap(), MemoryOrigin::default());
        let disk: Arc<dyn LogDisk> = Arc::new(MemoryDisk::new(1 << 30));
        let config = VolumeConfig {
            directory: "unused".into(),
            quota_bytes: 256 << 20,
            reserve_bytes: 0,
            segment_bytes: 1 << 20,
            push_rate: None,
            io_timeout: Some(Duration::from_secs(30)),
            chunk_size: ChunkSize::DEFAULT,
        };
        let opening = Opening {
            volume: VOLUME,
            epoch: 1,
            next: 100,
            size_bytes: SIZE,
            manifest: None,
            logs: Vec::new(),
            durability: Durability { period_s: 3600.0, ..Durability::default() },
        };
        let sink = Arc::new(origin.clone());
        let handle = runtime.handle().clone();
        let volume = Volume::open_on(disk, config, opening, None, sink, handle).unwrap();
        Host { origin, volume, _runtime: runtime }
    }

    /// Writes a chunk that nothing else is like.
    fn write(&self, chunk: u64, salt: u64) {
        self.write_content(chunk, content(chunk, salt));
    }

    fn write_content(&self, chunk: u64, content: Vec<u8>) {
        let done = self.volume.write(chunk * CHUNK, Bytes::from(content), false);
        assert!(matches!(done, Done::Now(Ok(()))));
    }

    fn fold(&self, how: &FoldHow<'_>) -> Result<Folded, OverlayError> {
        self.volume.fold(&mut |_, _| Ok(()), how).map(|folded| folded.expect("something to fold"))
    }

    fn install(&self, folded: &Folded) {
        let base = MemoryBase(Bytes::from(self.origin.disk(&folded.digest)));
        let manifest = self.origin.manifest(&folded.digest);
        self.volume.set_base(Arc::new(base), manifest, folded);
    }
}

#[test]
fn fold_reads_nothing_of_the_origin() {
    let host = Host::new();
    (0..8).for_each(|chunk| host.write(chunk, 1));
    host.install(&host.fold(&FoldHow::default()).unwrap());
    (4..12).for_each(|chunk| host.write(chunk, 2));
    host.volume.push_now().unwrap();
    // Neither the manifest before nor a chunk of it.
    host.origin.faults.fail_always("get", Fault::EIO);
    let folded = host.fold(&FoldHow::default()).unwrap();
    host.origin.faults.disarm();
    host.install(&folded);
}

#[test]
fn chunks_of_a_fold_are_given_to_who_keeps_them() {
    let host = Host::new();
    (0..8).for_each(|chunk| host.write(chunk, 1));
    host.write(9, 1);
    let kept = RefCell::new(Vec::new());
    let keep = |digest: &Digest, content: &Bytes| {
        assert!(digest.matches(content));
        kept.borrow_mut().push(*digest);
    };
    let folded = host.fold(&FoldHow { keep: &keep, ..FoldHow::default() }).unwrap();
    let manifest = host.origin.whole_manifest(&folded.digest);
    let named = manifest.entries().filter_map(|entry| match entry {
        acstor_types::Entry::Chunk { digest, .. } => Some(digest),
        acstor_types::Entry::Zero => None,
    });
    assert_eq!(named.collect::<Vec<_>>(), *kept.borrow());
    host.install(&folded);
    kept.borrow_mut().clear();
    host.write(3, 2);
    host.volume.push_now().unwrap();
    host.fold(&FoldHow { keep: &keep, ..FoldHow::default() }).unwrap();
    assert_eq!(kept.borrow().len(), 1, "the others are kept already");
}

#[test]
fn small_fold_is_announced_once_before_anything_is_stored() {
    let host = Host::new();
    (0..40).for_each(|chunk| host.write(chunk, 1));
    let mut announced: Vec<(Vec<PackId>, Option<Digest>)> = Vec::new();
    let origin = host.origin.clone();
    let mut announce = |packs: &[PackId], manifest: Option<Digest>| {
        assert!(origin.keys("packs/").is_empty() && origin.keys("manifests/").is_empty());
        announced.push((packs.to_vec(), manifest));
        Ok(())
    };
    let folded = host.volume.fold(&mut announce, &FoldHow::default()).unwrap().unwrap();
    assert_eq!(announced.len(), 1);
    assert_eq!(announced[0].1, Some(folded.digest));
    let mut names: Vec<String> = announced[0].0.iter().map(|pack| pack.0.to_string()).collect();
    names.sort();
    let stored = host.origin.keys("packs/").into_iter();
    let stored: Vec<String> =
        stored.map(|key| key.rsplit('/').next().unwrap().to_owned()).collect();
    assert_eq!(names, stored);
    assert_eq!(stored.len(), 3, "of a mebibyte and a rest");
}

#[test]
fn fold_takes_its_time_and_is_given_up_for_those_who_wait() {
    let host = Host::new();
    (0..40).for_each(|chunk| host.write(chunk, 1));
    host.volume.push_now().unwrap();
    let spread = |seconds| FoldHow { spread: Duration::from_secs(seconds), ..FoldHow::default() };
    let begun = Instant::now();
    std::thread::scope(|scope| {
        let folding = scope.spawn(|| host.fold(&spread(3600)).map(drop));
        while host.origin.keys("packs/").is_empty() {
            std::thread::yield_now();
        }
        host.volume.set_fold_unwanted(true);
        let outcome = folding.join().unwrap();
        assert!(matches!(outcome, Err(OverlayError::Unavailable(_))), "{outcome:?}");
    });
    assert!(host.fold(&FoldHow::default()).is_err(), "not until it is wanted again");
    host.volume.set_fold_unwanted(false);
    host.install(&host.fold(&FoldHow::default()).unwrap());
    (0..40).for_each(|chunk| host.write(chunk, 2));
    let (slow, before) = (Duration::from_millis(200), Instant::now());
    host.fold(&FoldHow { spread: slow, ..FoldHow::default() }).unwrap();
    assert!(before.elapsed() >= slow && begun.elapsed() < Duration::from_secs(3600));
}

#[test]
fn fold_is_due_when_it_pays() {
    let host = Host::new();
    (0..4).for_each(|chunk| {
        host.write(chunk, 1);
        host.volume.push_now().unwrap();
    });
    assert!(host.volume.fold_due(1 << 40, 4) && !host.volume.fold_due(1 << 40, 8));
    assert!(host.volume.fold_due(200 << 10, 1000));
    host.install(&host.fold(&FoldHow::default()).unwrap());
    // A manifest of a thousand chunks pays from 40 KiB of log or three objects on.
    host.write(0, 2);
    host.volume.push_now().unwrap();
    assert!(host.volume.fold_due(1, 1), "as many bytes as the manifest has");
    let zeros = Bytes::from(vec![0; 4096]);
    host.install(&host.fold(&FoldHow::default()).unwrap());
    assert!(matches!(host.volume.write(0, zeros, false), Done::Now(Ok(()))));
    host.volume.push_now().unwrap();
    assert!(!host.volume.fold_due(1, 1), "not for one small object");
}

#[test]
fn manifest_that_an_earlier_process_installed_goes_below_the_log() {
    let host = Host::new();
    (0..8).for_each(|chunk| host.write(chunk, 1));
    let first = host.fold(&FoldHow::default()).unwrap().digest;
    host.write(3, 2);
    let manifest = host.origin.whole_manifest(&first);
    let base = MemoryBase(Bytes::from(host.origin.disk(&first)));
    host.volume.replace_base(Arc::new(base), manifest.clone().into());
    let packs = host.origin.keys("packs/").len();
    host.volume.push_now().unwrap();
    let second = host.fold(&FoldHow::default()).unwrap();
    assert_eq!(host.origin.keys("packs/").len(), packs + 1, "only what was written since");
    let entries = |digest| host.origin.whole_manifest(digest).entries().collect::<Vec<_>>();
    let (before, after) = (entries(&first), entries(&second.digest));
    let changed: Vec<usize> = (0..before.len()).filter(|at| before[*at] != after[*at]).collect();
    assert_eq!(changed, [3], "the others lie where the manifest below has them");
    host.install(&second);
}

fn chunks_of(host: &Host, manifest: &Digest) -> Vec<Digest> {
    let entries = host.origin.whole_manifest(manifest);
    let digests = entries.entries().filter_map(|entry| match entry {
        Entry::Chunk { digest, .. } => Some(digest),
        Entry::Zero => None,
    });
    digests.collect()
}

#[test]
fn test_fold_same_content_in_two_projects_has_two_names() {
    let fold_of = |project: Option<&str>| {
        let host = Host::new();
        (0..8).for_each(|chunk| host.write(chunk, 1));
        let scope = project.map(DedupScope::new);
        let folded = host.fold(&FoldHow { scope, ..FoldHow::default() }).unwrap();
        // Compares the content of each chunk with its name.
        assert_eq!(host.origin.disk(&folded.digest).len(), SIZE as usize);
        chunks_of(&host, &folded.digest)
    };
    let (one, same, other, plain) =
        (fold_of(Some("one")), fold_of(Some("one")), fold_of(Some("other")), fold_of(None));
    assert_eq!(one, same);
    for (one, (other, plain)) in one.iter().zip(other.iter().zip(&plain)) {
        assert!(one != other && one != plain && other != plain);
        assert_eq!(DedupScope::of_digest(one), Some(DedupScope::new("one")));
        assert_eq!(DedupScope::of_digest(plain), None);
    }
}

#[test]
fn test_fold_in_a_scope_leaves_the_base_its_names_and_shares_within() {
    let host = Host::new();
    (0..8).for_each(|chunk| host.write(chunk, 1));
    let first = host.fold(&FoldHow::default()).unwrap();
    let base = chunks_of(&host, &first.digest);
    host.install(&first);
    let packs = host.origin.keys("packs/").len();
    // As it was, something else, and that once more elsewhere.
    host.write(0, 1);
    host.write(1, 2);
    host.write_content(9, content(1, 2));
    host.volume.push_now().unwrap();
    let scope = Some(DedupScope::new("a project"));
    let folded = host.fold(&FoldHow { scope, ..FoldHow::default() }).unwrap();
    let chunks = chunks_of(&host, &folded.digest);
    assert_eq!(chunks[0], base[0], "the same content at the same place");
    assert_eq!(chunks[2..8], base[2..8]);
    assert_eq!(DedupScope::of_digest(&chunks[1]), scope);
    assert_eq!(chunks[8], chunks[1]);
    assert_eq!(host.origin.keys("packs/").len(), packs + 1);
    let keys = host.origin.keys("packs/");
    let sizes = keys.iter().map(|key| host.origin.object(key).unwrap().len() as u64);
    assert!(sizes.min().unwrap() < 2 * CHUNK, "one chunk is stored");
    host.install(&folded);
}
