//! An origin in memory, with delays and faults.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use acstor_pack::ChunkDecompressor;
use acstor_types::{Digest, PackId};
use parking_lot::{Condvar, Mutex};
use tokio::sync::watch;
use tokio::time::Instant;

use super::link::Link;
use super::network::NetworkPort;
use crate::observe::metrics::Metrics;
use crate::origin::moved_packs::MovedPacks;
use crate::origin::origin_pool::{LateSink, finish_run, read_run, workers};
use crate::origin::origin_queue::OriginQueue;
use crate::{OriginError, OriginRange, OriginSource};

/// Fault mode of the origin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum OriginFaultMode {
    Well,
    /// Every call fails at once.
    Down,
    /// Each second call fails.
    Flaky,
    /// Calls do not return.
    Hangs,
    /// Refuses because of load.
    Overloaded,
    /// Its driver panics.
    Panics,
}

/// One call that reached the origin.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Call {
    pub(super) at: Duration,
    pub(super) pack: PackId,
    pub(super) offset: u64,
    pub(super) len: usize,
}

pub(super) struct TestOrigin {
    packs: Mutex<HashMap<PackId, BTreeMap<usize, Vec<u8>>>>,
    state: Mutex<State>,
    fault_mode: watch::Sender<OriginFaultMode>,
    manifests: Mutex<Manifests>,
    /// Wakes the calls for manifests that are held.
    released: Condvar,
    /// Packs of which no call returns.
    hung: watch::Sender<HashSet<PackId>>,
    /// Calls that wait for such a pack.
    stuck: AtomicUsize,
    started: Instant,
}

#[derive(Default)]
struct Manifests {
    by_name: HashMap<Digest, Vec<u8>>,
    /// Offset and length of each call, bytes.
    calls: Vec<(u64, usize)>,
    is_held: bool,
}

#[derive(Default)]
struct State {
    calls: Vec<Call>,
    bytes: usize,
    delay: Duration,
    link: Option<Link>,
    damaged: HashSet<Digest>,
}

impl TestOrigin {
    pub(super) fn new() -> Arc<TestOrigin> {
        Arc::new(TestOrigin {
            packs: Mutex::default(),
            manifests: Mutex::default(),
            released: Condvar::new(),
            state: Mutex::default(),
            fault_mode: watch::Sender::new(OriginFaultMode::Well),
            hung: watch::Sender::default(),
            stuck: AtomicUsize::new(0),
            started: Instant::now(),
        })
    }

    pub(super) fn put(&self, pack: PackId, offset: usize, bytes: &[u8]) {
        self.packs.lock().entry(pack).or_default().insert(offset, bytes.to_vec());
    }

    pub(super) fn put_manifest(&self, name: Digest, bytes: &[u8]) {
        self.manifests.lock().by_name.insert(name, bytes.to_vec());
    }

    pub(super) fn remove_manifest(&self, name: &Digest) {
        self.manifests.lock().by_name.remove(name);
    }

    /// Keeps all calls for manifests waiting until they are released.
    pub(super) fn hold_manifests(&self) {
        self.manifests.lock().is_held = true;
    }

    pub(super) fn release_manifests(&self) {
        self.manifests.lock().is_held = false;
        self.released.notify_all();
    }

    /// Offset and length of each call for a manifest, bytes.
    pub(super) fn manifest_calls(&self) -> Vec<(u64, usize)> {
        self.manifests.lock().calls.clone()
    }

    pub(super) fn set(&self, fault_mode: OriginFaultMode) {
        self.fault_mode.send_replace(fault_mode);
    }

    /// From now on no call for these packs returns.
    pub(super) fn hang_packs(&self, packs: impl IntoIterator<Item = PackId>) {
        self.hung.send_modify(|hung| hung.extend(packs));
    }

    /// Lets the calls for all packs return.
    pub(super) fn release_packs(&self) {
        self.hung.send_modify(HashSet::clear);
    }

    /// Calls that do not return for their pack's sake.
    pub(super) fn stuck(&self) -> usize {
        self.stuck.load(Ordering::Relaxed)
    }

    /// Puts the chunks of a pack into another as well.
    pub(super) fn copy_pack(&self, from: PackId, to: PackId) {
        let mut packs = self.packs.lock();
        let chunks = packs[&from].clone();
        packs.insert(to, chunks);
    }

    pub(super) fn set_delay(&self, delay: Duration) {
        self.state.lock().delay = delay;
    }

    /// Lets all that leaves the origin, for all hosts, go over this link.
    pub(super) fn set_link(&self, link: Link) {
        self.state.lock().link = Some(link);
    }

    /// From now on the chunk's content is wrong.
    pub(super) fn damage(&self, digest: Digest) {
        self.state.lock().damaged.insert(digest);
    }

    pub(super) fn remove_pack(&self, pack: PackId) {
        self.packs.lock().remove(&pack);
    }

    /// Ends a pack before this offset.
    pub(super) fn truncate(&self, pack: PackId, offset: usize) {
        self.packs.lock().get_mut(&pack).unwrap().retain(|at, _| *at < offset);
    }

    pub(super) fn calls(&self) -> Vec<Call> {
        self.state.lock().calls.clone()
    }

    pub(super) fn call_count(&self) -> usize {
        self.state.lock().calls.len()
    }

    /// Bytes given out.
    pub(super) fn bytes(&self) -> usize {
        self.state.lock().bytes
    }

    /// Runs the workers of one host as tasks, so that they live in paused time.
    pub(super) fn start_workers(
        self: &Arc<Self>,
        threads: usize,
        queue: &Arc<OriginQueue>,
        metrics: &Arc<Metrics>,
        late_sink: &LateSink,
        port: NetworkPort,
    ) {
        let port = Arc::new(port);
        let moved = Arc::new(MovedPacks::new(queue.run_bytes_max()));
        for _ in 0..workers(threads) {
            let port = port.clone();
            let (origin, queue, moved) = (self.clone(), queue.clone(), moved.clone());
            let (metrics, late_sink) = (metrics.clone(), late_sink.clone());
            tokio::spawn(async move {
                let mut decompressor = ChunkDecompressor::new();
                loop {
                    let run = queue.next_run().await;
                    let started = Instant::now();
                    let len = run.parts.iter().map(|part| part.place.stored_len as usize).sum();
                    let through = {
                        let mut state = origin.state.lock();
                        let link = state.link.as_mut();
                        link.map_or(started, |link| link.carry(len, started)) + state.delay
                    };
                    let through = port.network.receive(&port.host, len, through);
                    tokio::time::sleep_until(through).await;
                    let mut fault_mode = origin.fault_mode.subscribe();
                    let _ = fault_mode
                        .wait_for(|fault_mode| *fault_mode != OriginFaultMode::Hangs)
                        .await;
                    origin.stuck.fetch_add(1, Ordering::Relaxed);
                    let mut hung = origin.hung.subscribe();
                    let _ = hung.wait_for(|hung| !hung.contains(&run.pack)).await;
                    origin.stuck.fetch_sub(1, Ordering::Relaxed);
                    let result = read_run(&*origin, &moved, &run, &mut decompressor);
                    finish_run(&queue, &metrics, &late_sink, &run, result, started);
                }
            });
        }
    }
}

fn unavailable(pack: &PackId) -> OriginError {
    OriginError::Unavailable { pack: pack.0.to_string(), cause: "injected".into() }
}

/// Bytes of a pack from `offset` on, of as many chunks as they lie in; `None` past its end.
fn bytes_at(chunks: &BTreeMap<usize, Vec<u8>>, offset: usize, len: usize) -> Option<Vec<u8>> {
    let mut bytes = Vec::with_capacity(len);
    while bytes.len() < len {
        let at = offset + bytes.len();
        let (start, chunk) = chunks.range(..=at).next_back()?;
        let rest = chunk.get(at - start..).filter(|rest| !rest.is_empty())?;
        bytes.extend_from_slice(&rest[..rest.len().min(len - bytes.len())]);
    }
    Some(bytes)
}

impl OriginSource for TestOrigin {
    fn read(&self, pack: &PackId, ranges: &mut [OriginRange]) -> Result<(), OriginError> {
        let first = ranges.first().unwrap().offset;
        let len = ranges.iter().map(|range| range.buffer.len()).sum();
        let ends: Vec<u64> = ranges.iter().map(|r| r.offset + r.buffer.len() as u64).collect();
        assert!(
            ranges.iter().skip(1).zip(&ends).all(|(range, end)| range.offset == *end),
            "a run is contiguous"
        );
        let mut state = self.state.lock();
        let at = self.started.elapsed();
        state.calls.push(Call { at, pack: *pack, offset: first, len });
        let fault_mode = *self.fault_mode.borrow();
        match fault_mode {
            OriginFaultMode::Down => return Err(unavailable(pack)),
            OriginFaultMode::Flaky if state.calls.len() % 2 == 1 => return Err(unavailable(pack)),
            OriginFaultMode::Overloaded => return Err(OriginError::Overloaded("injected")),
            OriginFaultMode::Panics => panic!("injected"),
            _ => {}
        }
        let packs = self.packs.lock();
        let Some(chunks) = packs.get(pack) else {
            return Err(OriginError::NotFound { pack: pack.0.to_string() });
        };
        for range in ranges {
            let Some(bytes) = bytes_at(chunks, range.offset as usize, range.buffer.len()) else {
                let end = range.offset + range.buffer.len() as u64;
                return Err(OriginError::ShortRead { pack: pack.0.to_string(), end });
            };
            range.buffer.copy_from_slice(&bytes);
            if state.damaged.contains(&Digest::of(&bytes)) {
                range.buffer[7] ^= 1;
            }
        }
        state.bytes += len;
        Ok(())
    }

    fn read_manifest(&self, name: &Digest, range: &mut OriginRange) -> Result<(), OriginError> {
        let mut manifests = self.manifests.lock();
        manifests.calls.push((range.offset, range.buffer.len()));
        self.released.wait_while(&mut manifests, |manifests| manifests.is_held);
        match *self.fault_mode.borrow() {
            OriginFaultMode::Down => return Err(unavailable(&PackId(*name))),
            OriginFaultMode::Overloaded => return Err(OriginError::Overloaded("injected")),
            OriginFaultMode::Panics => panic!("injected"),
            _ => {}
        }
        let Some(manifest) = manifests.by_name.get(name) else {
            return Err(OriginError::NotFound { pack: name.to_string() });
        };
        let (start, end) = (range.offset as usize, range.offset as usize + range.buffer.len());
        let Some(bytes) = manifest.get(start..end) else {
            return Err(OriginError::ShortRead { pack: name.to_string(), end: end as u64 });
        };
        range.buffer.copy_from_slice(bytes);
        Ok(())
    }
}
