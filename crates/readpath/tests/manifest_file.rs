//! The file of a manifest that somebody else cuts or changes.

use std::fs::File;
use std::os::unix::fs::FileExt;

use acstor_readpath::{ManifestFile, ManifestSource};
use acstor_types::{ChunkSize, DiskId, ManifestBuilder};

#[test]
fn test_manifest_file_that_is_cut_or_changed_is_damaged() {
    let directory = tempfile::tempdir().unwrap();
    let size = 1 << 30;
    let mut builder = ManifestBuilder::new(DiskId::from_bytes([1; 16]), ChunkSize::DEFAULT, size);
    (0..ChunkSize::DEFAULT.count_for(size)).for_each(|_| builder.push_zero());
    let whole = builder.finish().unwrap();
    let path = directory.path().join("manifest");
    std::fs::write(&path, whole.as_bytes()).unwrap();
    let file = ManifestFile::new(File::open(&path).unwrap()).unwrap();
    assert_eq!(file.read().unwrap().digest(), whole.digest());
    let other = File::options().write(true).open(&path).unwrap();
    other.write_all_at(b"x", 100_000).unwrap();
    assert!(file.read().unwrap_err().is_final());
    other.set_len(100_000).unwrap();
    assert!(file.read().unwrap_err().is_final(), "it is shorter than it was");
    other.set_len(50).unwrap();
    assert!(file.shape().unwrap_err().is_final());
}
