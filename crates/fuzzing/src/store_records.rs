//! The chunk store's recovery over any records and any superblock: it opens or refuses, and never
//! gives bytes that do not match their digest.
//!
//! Input: a mode, 64 bytes for the superblock, then records. Bit 0 of the mode keeps the superblock
//! that the store wrote, bit 1 repairs the checksums and slot numbers of the records.

use std::sync::LazyLock;

use acstor_store::{ChunkStore, EvictionKind, StoreConfig};
use acstor_types::ChunkSize;
use tempfile::TempDir;

const RECORD_LEN: usize = 64;
const SLOTS: usize = 8;
const CHUNK_SIZE: usize = 4096;

struct Fixture {
    directory: TempDir,
    config: StoreConfig,
    superblock: Vec<u8>,
}

static FIXTURE: LazyLock<Fixture> = LazyLock::new(|| {
    let directory = TempDir::new().expect("a directory");
    let config = StoreConfig {
        path: directory.path().to_owned(),
        capacity_bytes: (4096 + SLOTS * (CHUNK_SIZE + RECORD_LEN)) as u64,
        chunk_size: ChunkSize::new(CHUNK_SIZE as u32).expect("a chunk size"),
        eviction: EvictionKind::S3Fifo,
    };
    drop(ChunkStore::open(&config).expect("a new store"));
    let superblock = std::fs::read(directory.path().join("superblock")).expect("a superblock");
    Fixture { directory, config, superblock }
});

fn repair(records: &mut [u8]) {
    for (slot, record) in records.chunks_exact_mut(RECORD_LEN).enumerate() {
        record[..8].copy_from_slice(b"ACSR\x01\0\0\0");
        record[48..52].copy_from_slice(&(CHUNK_SIZE as u32).to_le_bytes());
        record[52..56].copy_from_slice(&(slot as u32).to_le_bytes());
        let crc = crc32fast::hash(&record[..60]);
        record[60..].copy_from_slice(&crc.to_le_bytes());
    }
}

/// Uses one input; see the module.
///
/// # Panics
///
/// When a promise of the module is broken.
pub fn run(input: &[u8]) {
    let Some((mode, rest)) = input.split_first() else { return };
    let Some((superblock, records)) = rest.split_at_checked(64) else { return };
    let Fixture { directory, config, superblock: good } = &*FIXTURE;
    let superblock = if mode & 1 == 1 { good } else { superblock };
    let mut records = records[..records.len().min(2 * SLOTS * RECORD_LEN)].to_vec();
    if mode & 2 == 2 {
        repair(&mut records);
    }
    std::fs::write(directory.path().join("superblock"), superblock).expect("written");
    std::fs::write(directory.path().join("records"), &records).expect("written");
    let Ok(store) = ChunkStore::open(config) else { return };
    let digests: Vec<_> = store.digests().collect();
    assert!(digests.len() <= SLOTS);
    for digest in digests {
        if let Ok(Some(chunk)) = store.get(&digest) {
            assert!(digest.matches(&chunk.to_bytes().expect("readable")));
        }
    }
}
