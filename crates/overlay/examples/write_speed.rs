//! Benchmark of writes in the overlay itself, without a front end: microseconds per 4 KiB.
//!
//! Usage: `cargo run --release -p acstor-overlay --example write_speed -- DIRECTORY [WRITES]`.
//! Random 4 KiB writes over 4 GiB, buffered, then each with FUA, then reads of what was written;
//! beside them plain `pwrite` and `pwrite` + `fdatasync` on a preallocated file of that directory.

use std::error::Error;
use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

use acstor_overlay::{
    BlockDevice, Durability, Opening, OriginSink, SinkError, Volume, VolumeConfig,
};
use acstor_types::{ChunkSize, DiskId};
use bytes::Bytes;
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

const DISK_BYTES: u64 = 4 << 30;
const BLOCK: u64 = 4096;

/// An origin that keeps nothing: only the local side is measured.
struct NoOrigin;

impl OriginSink for NoOrigin {
    fn put_if_absent(&self, _key: &str, _parts: &[Bytes]) -> Result<bool, SinkError> {
        Ok(true)
    }

    fn get(&self, _key: &str, _size_max: u64) -> Result<Option<Bytes>, SinkError> {
        Ok(None)
    }

    fn list(&self, _prefix: &str) -> Result<Vec<String>, SinkError> {
        Ok(Vec::new())
    }
}

/// Time that this thread was on a CPU, seconds: what a busy machine does not change much.
fn cpu_seconds() -> Result<f64, Box<dyn Error>> {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat")?;
    let nanoseconds: u64 = text.split_whitespace().next().ok_or("no schedstat")?.parse()?;
    Ok(nanoseconds as f64 / 1e9)
}

fn time(
    what: &str,
    count: u64,
    mut one: impl FnMut(u64) -> Result<(), Box<dyn Error>>,
) -> Result<(), Box<dyn Error>> {
    let mut rng = ChaCha8Rng::seed_from_u64(count);
    let (begin, cpu) = (Instant::now(), cpu_seconds()?);
    for _ in 0..count {
        one(rng.random_range(0..DISK_BYTES / BLOCK) * BLOCK)?;
    }
    let each = begin.elapsed().as_secs_f64() * 1e6 / count as f64;
    let cpu = (cpu_seconds()? - cpu) * 1e6 / count as f64;
    println!("{what:32} {each:9.2} us, {cpu:6.2} us of CPU, {:9.0} /s", 1e6 / each);
    Ok(())
}

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let directory = PathBuf::from(arguments.next().ok_or("usage: write_speed DIRECTORY [WRITES]")?);
    let writes: u64 = arguments.next().map_or(Ok(200_000), |text| text.parse())?;
    let synced = (writes / 100).max(1);
    let runtime = tokio::runtime::Runtime::new()?;
    let config = VolumeConfig {
        directory: directory.join("volume"),
        quota_bytes: 16 << 30,
        reserve_bytes: 0,
        segment_bytes: 64 << 20,
        push_rate: None,
        io_timeout: None,
        chunk_size: ChunkSize::DEFAULT,
    };
    let opening = Opening {
        volume: DiskId::from_bytes([1; 16]),
        epoch: 1,
        next: 1,
        size_bytes: DISK_BYTES,
        manifest: None,
        logs: Vec::new(),
        durability: Durability { period_s: 3600.0, ..Durability::default() },
    };
    let volume = Volume::open(config, opening, None, Arc::new(NoOrigin), runtime.handle().clone())?;
    let block = Bytes::from(vec![7; BLOCK as usize]);
    time("overlay, buffered write", writes, |offset| {
        Ok(runtime.block_on(volume.write(offset, block.clone(), false).outcome())?)
    })?;
    time("overlay, the same blocks again", writes, |offset| {
        Ok(runtime.block_on(volume.write(offset, block.clone(), false).outcome())?)
    })?;
    time("overlay, write with FUA", synced, |offset| {
        Ok(runtime.block_on(volume.write(offset, block.clone(), true).outcome())?)
    })?;
    time("overlay, try_read", writes, |offset| {
        volume.try_read(offset, BLOCK as usize)?;
        Ok(())
    })?;
    let begin = Instant::now();
    volume.close();
    println!("close, with a checkpoint of the map: {:?}", begin.elapsed());
    let path = directory.join("plain");
    let plain: File =
        OpenOptions::new().read(true).write(true).create(true).truncate(true).open(&path)?;
    rustix::fs::fallocate(&plain, rustix::fs::FallocateFlags::empty(), 0, DISK_BYTES)?;
    time("plain file, pwrite", writes, |offset| Ok(plain.write_all_at(&block, offset)?))?;
    time("plain file, the same again", writes, |offset| Ok(plain.write_all_at(&block, offset)?))?;
    time("plain file, pwrite + fdatasync", synced, |offset| {
        plain.write_all_at(&block, offset)?;
        Ok(plain.sync_data()?)
    })?;
    std::fs::remove_file(path)?;
    Ok(())
}
