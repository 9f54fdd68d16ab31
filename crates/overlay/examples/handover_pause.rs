//! The pause of a guest whose volume is handed over, over an origin of a given speed.
//!
//! A guest writes 4 KiB after 4 KiB, 64 MiB/s at most, while a volume with much that was never
//! pushed is handed over as the data plane does it: pushed and folded ahead, released, opened in
//! another directory. Every byte to and from the origin passes a link of the given speed. Printed are
//! the longest gap between two answers, and what travelled.
//!
//! `cargo run --release --example handover_pause -- DIRECTORY [DIRTY_MIB] [MBIT_PER_S]`
#![expect(clippy::unwrap_used, reason = "a benchmark ends by panicking")]

use std::fs;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use acstor_overlay::{
    BlockDevice, Durability, FoldHow, LogRange, Opening, OriginSink, SinkError, Volume,
    VolumeConfig,
};
use acstor_readpath::{BlockView, ExtentKind, ReadError, ReadFuture, Segment, TryRead};
use acstor_types::{ChunkSize, DiskId, Entry, Manifest};
use bytes::Bytes;
use parking_lot::{Mutex, RwLock};

const VOLUME: DiskId = DiskId::from_bytes([9; 16]);
const BLOCK: u64 = 64 << 10;
/// Highest rate of the guest's writes, bytes per second.
const GUEST_BYTES_PER_S: f64 = 64.0 * 1024.0 * 1024.0;

/// A directory behind a link.
struct LinkedOrigin {
    root: PathBuf,
    bytes_per_s: f64,
    free_at: Mutex<Instant>,
    carried: AtomicU64,
}

impl LinkedOrigin {
    fn carry(&self, bytes: u64) {
        self.carried.fetch_add(bytes, Ordering::Relaxed);
        let time = Duration::from_secs_f64(bytes as f64 / self.bytes_per_s);
        let until = {
            let mut free_at = self.free_at.lock();
            *free_at = (*free_at).max(Instant::now()) + time;
            *free_at
        };
        // A round trip of a local network on top.
        std::thread::sleep(
            until.saturating_duration_since(Instant::now()) + Duration::from_micros(200),
        );
    }
}

fn failed(key: &str, error: &std::io::Error) -> SinkError {
    SinkError::Unavailable { key: key.to_owned(), cause: error.to_string() }
}

impl OriginSink for LinkedOrigin {
    fn put_if_absent(&self, key: &str, parts: &[Bytes]) -> Result<bool, SinkError> {
        let (path, content) = (self.root.join(key), parts.concat());
        self.carry(content.len() as u64);
        fs::create_dir_all(path.parent().unwrap()).map_err(|error| failed(key, &error))?;
        if path.exists() {
            return Ok(false);
        }
        fs::write(path, content).map_err(|error| failed(key, &error))?;
        Ok(true)
    }

    fn get(&self, key: &str, _: u64) -> Result<Option<Bytes>, SinkError> {
        match fs::read(self.root.join(key)) {
            Ok(content) => {
                self.carry(content.len() as u64);
                Ok(Some(content.into()))
            }
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(failed(key, &error)),
        }
    }

    fn list(&self, prefix: &str) -> Result<Vec<String>, SinkError> {
        self.carry(0);
        let Ok(entries) = fs::read_dir(self.root.join(prefix)) else { return Ok(Vec::new()) };
        let names = entries.flatten().map(|entry| entry.file_name().into_string().unwrap());
        Ok(names.map(|name| format!("{prefix}{name}")).collect())
    }
}

/// Content of a manifest, read from the packs; it is not part of what is measured.
struct ManifestBase {
    entries: Vec<Entry>,
    chunk_bytes: usize,
    size_bytes: u64,
    root: PathBuf,
}

impl ManifestBase {
    fn view(manifest: &Manifest, root: &Path) -> Arc<dyn BlockView> {
        Arc::new(ManifestBase {
            entries: manifest.entries().collect(),
            chunk_bytes: manifest.chunk_size().bytes(),
            size_bytes: manifest.size_bytes(),
            root: root.to_owned(),
        })
    }

    fn bytes(&self, offset: u64, len: usize) -> Vec<u8> {
        let mut content = vec![0; len];
        let mut done = 0;
        while done < len {
            let at = offset as usize + done;
            let (chunk, within) = (at / self.chunk_bytes, at % self.chunk_bytes);
            let part = (self.chunk_bytes - within).min(len - done);
            if let Entry::Chunk { location, .. } = &self.entries[chunk] {
                let name = location.pack.0.to_string();
                let pack = fs::File::open(self.root.join(format!("packs/{}/{name}", &name[..2])));
                let from = u64::from(location.offset) + within as u64;
                pack.unwrap().read_exact_at(&mut content[done..done + part], from).unwrap();
            }
            done += part;
        }
        content
    }
}

impl BlockView for ManifestBase {
    fn size_bytes(&self) -> u64 {
        self.size_bytes
    }

    fn try_read(&self, offset: u64, len: usize) -> Result<TryRead, ReadError> {
        Ok(TryRead::Ready(vec![Segment::Bytes(self.bytes(offset, len).into())]))
    }

    fn read(&self, offset: u64, len: usize) -> ReadFuture {
        let bytes = self.bytes(offset, len);
        Box::pin(async move { Ok(vec![Segment::Bytes(bytes.into())]) })
    }

    fn next_extent(&self, offset: u64, kind: ExtentKind) -> Option<u64> {
        (kind == ExtentKind::Data && offset < self.size_bytes).then_some(offset)
    }

    fn cached_bytes(&self) -> u64 {
        0
    }
}

fn config(path: &Path) -> VolumeConfig {
    VolumeConfig {
        directory: path.to_owned(),
        quota_bytes: 1 << 40,
        reserve_bytes: 0,
        segment_bytes: 64 << 20,
        push_rate: None,
        io_timeout: None,
        chunk_size: ChunkSize::DEFAULT,
    }
}

fn opening(size_bytes: u64) -> Opening {
    Opening {
        volume: VOLUME,
        epoch: 1,
        next: 1,
        size_bytes,
        manifest: None,
        logs: Vec::new(),
        durability: Durability { period_s: 86_400.0, ..Durability::default() },
    }
}

/// Content that does not compress.
fn fill(buffer: &mut [u8], seed: u64) {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    for word in buffer.chunks_exact_mut(8) {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        word.copy_from_slice(&state.to_le_bytes());
    }
}

/// Device of the guest: a volume, or none for a moment.
type Served = RwLock<Option<Arc<Volume>>>;

/// Writes until told to stop; returns the longest time that a write took, and how many there were.
fn guest(
    runtime: &tokio::runtime::Runtime,
    served: &Served,
    is_over: &AtomicBool,
) -> (Duration, u64) {
    let (mut longest, mut count, begun) = (Duration::ZERO, 0_u64, Instant::now());
    let mut block = vec![0; 4096];
    while !is_over.load(Ordering::Relaxed) {
        fill(&mut block, count + (1 << 40));
        let asked = Instant::now();
        let done = loop {
            // As the switched device does: a request waits while there is nobody.
            if let Some(volume) = &*served.read() {
                break volume.write(count % 65_536 * 4096, Bytes::from(block.clone()), false);
            }
            std::thread::sleep(Duration::from_millis(1));
        };
        runtime.block_on(done.outcome()).unwrap();
        longest = longest.max(asked.elapsed());
        count += 1;
        let due = begun + Duration::from_secs_f64(count as f64 * 4096.0 / GUEST_BYTES_PER_S);
        std::thread::sleep(due.saturating_duration_since(Instant::now()));
    }
    (longest, count)
}

/// Hands over as the data plane does; returns the next owner, and how long there was none.
fn hand_over(
    source: &Volume,
    served: &Served,
    origin: &Arc<LinkedOrigin>,
    there: &Path,
    size_bytes: u64,
    runtime: &tokio::runtime::Runtime,
) -> (Arc<Volume>, Duration) {
    let mut manifest: Option<(Manifest, u64)> = None;
    while source.push_ahead().unwrap() {
        let Some(folded) = source.fold(&mut |_, _| Ok(()), &FoldHow::default()).unwrap() else {
            break;
        };
        manifest = Some((Manifest::parse(folded.content.clone()).unwrap(), folded.until.sequence));
        let view = Manifest::parse(folded.content.clone()).unwrap();
        source.set_base(ManifestBase::view(&view, &origin.root), view.into(), &folded);
    }
    let release = source.prepare_release().unwrap();
    let begun = Instant::now();
    *served.write() = None;
    let last = release.finish().unwrap();
    let (manifest, folded) = manifest.unzip();
    let first = folded.map_or(1, |folded| folded + 1);
    let log = LogRange { volume: VOLUME, epoch: 1, first, last: last.sequence };
    let base = manifest.as_ref().map(|manifest| ManifestBase::view(manifest, &origin.root));
    let opening = Opening {
        epoch: 2,
        next: last.sequence + 1,
        // Its bytes travel, too.
        manifest: manifest
            .inspect(|manifest| origin.carry(manifest.as_bytes().len() as u64))
            .map(Into::into),
        logs: if first <= last.sequence { vec![log] } else { Vec::new() },
        ..opening(size_bytes)
    };
    // What would be the record, read and changed: four operations.
    (0..4).for_each(|_| origin.carry(2048));
    let sink = Arc::clone(origin);
    let handle = runtime.handle().clone();
    let next = Volume::open(config(there), opening, base, sink, handle).unwrap();
    *served.write() = Some(Arc::clone(&next));
    (next, begun.elapsed())
}

fn main() {
    let mut arguments = std::env::args().skip(1);
    let directory = PathBuf::from(arguments.next().unwrap());
    let number = |text: Option<String>, default: u64| text.map_or(default, |n| n.parse().unwrap());
    let dirty_mib = number(arguments.next(), 4096);
    let mbit_per_s = number(arguments.next(), 1000);
    let size_bytes = (dirty_mib << 20) + (1 << 30);
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let origin = Arc::new(LinkedOrigin {
        root: directory.join("origin"),
        bytes_per_s: mbit_per_s as f64 * 1e6 / 8.0,
        free_at: Mutex::new(Instant::now()),
        carried: AtomicU64::new(0),
    });
    let sink = Arc::clone(&origin);
    let (here, there) = (directory.join("here"), directory.join("there"));
    let handle = runtime.handle().clone();
    let source = Volume::open(config(&here), opening(size_bytes), None, sink, handle).unwrap();
    let mut block = vec![0; BLOCK as usize];
    for at in (0..dirty_mib << 20).step_by(BLOCK as usize) {
        fill(&mut block, at);
        let done = source.write((1 << 30) + at, Bytes::from(block.clone()), false);
        runtime.block_on(done.outcome()).unwrap();
    }
    println!("dirty: {} MiB", source.status().dirty_bytes >> 20);

    let (served, is_over) = (Served::new(Some(Arc::clone(&source))), AtomicBool::new(false));
    std::thread::scope(|scope| {
        let writing = scope.spawn(|| guest(&runtime, &served, &is_over));
        let begun = Instant::now();
        let before = origin.carried.load(Ordering::Relaxed);
        let (next, pause) = hand_over(&source, &served, &origin, &there, size_bytes, &runtime);
        println!(
            "hand-over: {:.1} s, without an owner: {pause:.3?}",
            begun.elapsed().as_secs_f64()
        );
        let carried = origin.carried.load(Ordering::Relaxed) - before;
        println!("carried: {} MiB over {mbit_per_s} Mbit/s", carried >> 20);
        std::thread::sleep(Duration::from_secs(1));
        is_over.store(true, Ordering::Relaxed);
        let (longest, count) = writing.join().unwrap();
        println!("guest: {count} writes, the longest took {longest:.3?}");
        next.close();
    });
}
