//! Memory that stays with the process once manifests that were read are dropped: none. An allocator
//! keeps what lies below anything that lives, which after a storm is most of it.
#![expect(clippy::unwrap_used, reason = "a test ends at the first surprise")]

use std::fs::{self, File};
use std::thread;

use acstor_readpath::{ManifestFile, ManifestSource};
use acstor_types::{ChunkSize, DiskId, ManifestBuilder};

const GIB: u64 = 1 << 30;
const THREADS: usize = 4;
const MANIFESTS: usize = 10;

/// Memory that the process has, bytes.
fn resident() -> u64 {
    let pages = fs::read_to_string("/proc/self/statm").unwrap();
    pages.split(' ').nth(1).unwrap().parse::<u64>().unwrap() * 4096
}

#[test]
fn test_memory_of_manifests_goes_back_to_the_kernel_when_they_are_dropped() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("manifest");
    let size = 10 * GIB;
    let mut builder = ManifestBuilder::new(DiskId::from_bytes([1; 16]), ChunkSize::DEFAULT, size);
    (0..ChunkSize::DEFAULT.count_for(size)).for_each(|_| builder.push_zero());
    fs::write(&path, builder.finish().unwrap().as_bytes()).unwrap();
    let len = fs::metadata(&path).unwrap().len();
    let file = || ManifestFile::new(File::open(&path).unwrap()).unwrap();
    // An allocator learns from the first one that is given back.
    drop(file().read().unwrap());
    let before = resident();
    // With something small behind each that stays, as a process has it.
    let read = || {
        let one = |_| (file().read().unwrap(), Box::new([1_u8; 200]));
        (0..MANIFESTS).map(one).unzip::<_, _, Vec<_>, Vec<_>>()
    };
    let (manifests, small): (Vec<_>, Vec<_>) = thread::scope(|scope| {
        let threads: Vec<_> = (0..THREADS).map(|_| scope.spawn(read)).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).unzip()
    });
    let all = (THREADS * MANIFESTS) as u64 * len;
    assert!(resident() - before > all / 2, "they are in memory");
    drop(manifests);
    let left = resident().saturating_sub(before);
    assert!(left < all / 10, "{left} of {all} bytes stayed");
    drop(small);
}
