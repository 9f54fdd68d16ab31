//! Boots of one disk, by the handle that reads: which of its reads are those of a boot, and in which order
//! they come.
//!
//! A front end cannot tell by which open of a file a read came: the kernel knows all of them by one handle,
//! and gives a read past the page cache the number of the process that reads. So a boot is one process
//! that opens the disk past the page cache and reads its first chunk first, as firmware and QEMU do. The page
//! cache of the host is one reader: what a guest has brought into it no other guest asks for again, so
//! that only the first boot through it tells anything. A client of a volume over the disk has a connection of its
//! own, and its reads are past every page cache of this host.
//!
//! While nobody boots, a read costs one relaxed load.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use arc_swap::ArcSwap;
use parking_lot::Mutex;
use tokio::runtime::Handle;
use tokio::time::{Instant, sleep};

use crate::ahead::boot_order::BootOrder;
use crate::ahead::boot_recorder::BootRecorder;
use crate::ahead::finished_boots::{FinishedBoots, RecordingPermit};
use crate::limits;
use crate::view::disk_shape::DiskShape;

/// Time between two looks at the boots that are under way.
const TICK: Duration = Duration::from_secs(1);

/// Reader of a disk, as far as a front end can tell them apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Reader {
    /// A process that reads past the page cache, by its number.
    Direct(u64),
    /// A client of a volume over the disk, which has a connection of its own, by its number.
    Client(u64),
    /// The page cache of this host, for all who read through it.
    Cached,
}

/// The boots of one disk.
#[derive(Debug)]
pub struct DiskBoots {
    shape: DiskShape,
    /// Time for which reads count for the working set.
    window: Duration,
    working_set: Arc<BootRecorder>,
    finished: Arc<FinishedBoots>,
    runtime: Handle,
    /// True if a boot is under way or awaited.
    is_on: AtomicBool,
    sessions: ArcSwap<HashMap<Reader, Arc<BootSession>>>,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    direct_handles: u64,
    cached_handles: u64,
    /// Times of the opens past the page cache whose reader has not read yet.
    awaited: VecDeque<Instant>,
    /// True if a boot through the page cache was recorded: another one would tell half.
    is_page_cache_warm: bool,
    /// True if a task looks at the boots.
    is_watched: bool,
}

/// One open of a disk by a guest that may boot from it.
#[derive(Debug)]
struct BootSession {
    begun: Instant,
    /// True while its reads count for the working set.
    is_in_window: AtomicBool,
    /// True while the order of its reads is recorded.
    is_ordered: AtomicBool,
    order: Option<BootOrder>,
    permit: Mutex<Option<RecordingPermit>>,
}

impl DiskBoots {
    pub(crate) fn new(
        shape: DiskShape,
        window: Duration,
        working_set: Arc<BootRecorder>,
        finished: Arc<FinishedBoots>,
        runtime: Handle,
    ) -> DiskBoots {
        DiskBoots {
            shape,
            window,
            working_set,
            finished,
            runtime,
            is_on: AtomicBool::new(false),
            sessions: ArcSwap::default(),
            state: Mutex::default(),
        }
    }

    /// Notes that a handle was opened. Before its first read.
    pub fn opened(self: &Arc<Self>, is_direct: bool) {
        if self.shape.chunk_count > limits::WORKING_SET_CHUNKS_MAX {
            return;
        }
        let mut state = self.state.lock();
        if is_direct {
            state.direct_handles += 1;
            if state.awaited.len() < limits::BOOT_OPENS_MAX {
                state.awaited.push_back(Instant::now());
            }
        } else {
            state.cached_handles += 1;
            self.join_or_begin_cached(&state);
        }
        self.is_on.store(true, Ordering::Relaxed);
        if !std::mem::replace(&mut state.is_watched, true) {
            let boots = self.clone();
            self.runtime.spawn(async move { boots.watch().await });
        }
    }

    /// Has a handle through the page cache be part of the boot there, without prolonging it; one after a mere
    /// inspection begins anew. Under the lock.
    fn join_or_begin_cached(&self, state: &State) {
        let session = self.sessions.load().get(&Reader::Cached).cloned();
        let is_joined = session.is_some_and(|session| {
            state.is_page_cache_warm || session.is_ordered.load(Ordering::Relaxed)
        });
        if !is_joined {
            self.begin(Reader::Cached, !state.is_page_cache_warm);
        }
    }

    /// Notes that a handle was closed. Which of those that are alike it was is not known: the order of their
    /// boots ends with the last.
    pub fn closed(&self, is_direct: bool) {
        let mut state = self.state.lock();
        let handles = if is_direct { &mut state.direct_handles } else { &mut state.cached_handles };
        *handles = handles.saturating_sub(1);
        if *handles > 0 {
            return;
        }
        if is_direct {
            state.awaited.clear();
        }
        for (reader, session) in self.sessions.load().iter() {
            if (*reader != Reader::Cached) == is_direct {
                self.end_order(*reader, session, &mut state);
            }
        }
    }

    /// Notes that a read of a front end arrived.
    #[inline]
    pub fn arrived(&self, reader: Reader, offset: u64, len: usize) {
        if self.is_on.load(Ordering::Relaxed) {
            self.note(reader, offset, len);
        }
    }

    fn note(&self, reader: Reader, offset: u64, len: usize) {
        let end = offset.saturating_add(len as u64).min(self.shape.size_bytes);
        if offset >= end {
            return;
        }
        let size = self.shape.chunk_size;
        let (first, last) = (size.index_of(offset), size.index_of(end - 1));
        // A reader that was there before a boot began reads elsewhere.
        let may_begin = first == 0 && reader != Reader::Cached;
        let sessions = self.sessions.load();
        match sessions.get(&reader) {
            Some(session) if session.is_ordered.load(Ordering::Relaxed) || !may_begin => {
                self.note_in(session, reader, len, (first, last));
            }
            _ if may_begin => {
                if let Some(session) = self.claim(reader) {
                    self.note_in(&session, reader, len, (first, last));
                }
            }
            _ => {}
        }
    }

    fn note_in(
        &self,
        session: &BootSession,
        reader: Reader,
        len: usize,
        (first, last): (u64, u64),
    ) {
        if session.is_in_window.load(Ordering::Relaxed) {
            self.working_set.record(first, last);
        }
        let is_own = reader != Reader::Cached || len <= limits::BOOT_CACHED_READ_MAX;
        if is_own
            && session.is_ordered.load(Ordering::Relaxed)
            && let Some(order) = &session.order
        {
            order.note(first, last);
        }
    }

    /// Begins the boot of a reader where an open waits for one, also of one that has booted, or opened the
    /// disk in vain, before; returns its boot.
    fn claim(&self, reader: Reader) -> Option<Arc<BootSession>> {
        let mut state = self.state.lock();
        let session = self.sessions.load().get(&reader).cloned();
        if session.as_ref().is_some_and(|session| session.is_ordered.load(Ordering::Relaxed)) {
            return session;
        }
        match state.awaited.pop_front() {
            Some(_) => Some(self.begin(reader, true)),
            None => session,
        }
    }

    /// Begins a boot. Under the lock.
    fn begin(&self, reader: Reader, is_ordered: bool) -> Arc<BootSession> {
        let permit = if is_ordered { self.finished.begin() } else { None };
        let session = Arc::new(BootSession {
            begun: Instant::now(),
            is_in_window: AtomicBool::new(true),
            is_ordered: AtomicBool::new(permit.is_some()),
            order: permit.is_some().then(|| BootOrder::new(self.shape.chunk_count)),
            permit: Mutex::new(permit),
        });
        let mut sessions = HashMap::clone(&self.sessions.load());
        sessions.insert(reader, session.clone());
        self.sessions.store(Arc::new(sessions));
        session
    }

    /// Ends the order of a boot, once. Under the lock.
    fn end_order(&self, reader: Reader, session: &BootSession, state: &mut State) {
        if !session.is_ordered.swap(false, Ordering::Relaxed) {
            return;
        }
        drop(session.permit.lock().take());
        let order = session.order.as_ref().and_then(BootOrder::take);
        state.is_page_cache_warm |= reader == Reader::Cached && order.is_some();
        self.finished.finished(self.shape.disk_id, self.shape.chunk_count, order);
    }

    /// Looks at the boots until none is under way or awaited.
    async fn watch(self: Arc<Self>) {
        loop {
            sleep(TICK).await;
            if !self.tick(Instant::now()) {
                return;
            }
        }
    }

    /// Ends what is over; returns whether anything is left.
    fn tick(&self, now: Instant) -> bool {
        let mut state = self.state.lock();
        let is_waiting =
            |opened: &Instant| now.saturating_duration_since(*opened) < limits::BOOT_TIME_MAX;
        state.awaited.retain(is_waiting);
        let before = self.sessions.load_full();
        let mut sessions = HashMap::clone(&before);
        sessions.retain(|reader, session| {
            if now.saturating_duration_since(session.begun) >= self.window {
                session.is_in_window.store(false, Ordering::Relaxed);
            }
            if session.order.as_ref().is_some_and(|order| order.tick(now)) {
                self.end_order(*reader, session, &mut state);
            }
            session.is_in_window.load(Ordering::Relaxed)
                || session.is_ordered.load(Ordering::Relaxed)
        });
        let is_left = !sessions.is_empty() || !state.awaited.is_empty();
        if sessions.len() != before.len() {
            self.sessions.store(Arc::new(sessions));
        }
        self.is_on.store(is_left, Ordering::Relaxed);
        state.is_watched = is_left;
        is_left
    }
}

#[cfg(test)]
mod tests {
    use acstor_types::{ChunkSize, DiskId};
    use prometheus_client::registry::Registry;

    use super::*;
    use crate::ahead::finished_boots::RecordedBoot;
    use crate::observe::metrics::Metrics;

    const CHUNK: u64 = 64 << 10;
    const WINDOW: Duration = Duration::from_secs(120);

    struct Bench {
        boots: Arc<DiskBoots>,
        working_set: Arc<BootRecorder>,
        finished: Arc<FinishedBoots>,
    }

    impl Bench {
        fn new() -> Bench {
            let shape = DiskShape {
                disk_id: DiskId::from_bytes([7; 16]),
                size_bytes: 10_000 * CHUNK - 100,
                chunk_size: ChunkSize::new(CHUNK as u32).unwrap(),
                chunk_count: 10_000,
            };
            let metrics = Arc::new(Metrics::new(&mut Registry::default()));
            let working_set = Arc::new(BootRecorder::new(shape.chunk_count));
            working_set.opened(WINDOW);
            let finished = Arc::new(FinishedBoots::new(metrics));
            let (set, told) = (working_set.clone(), finished.clone());
            let boots = DiskBoots::new(shape, WINDOW, set, told, Handle::current());
            Bench { boots: Arc::new(boots), working_set, finished }
        }

        /// Reads 4 KiB of each of some chunks.
        fn read(&self, reader: Reader, chunks: impl IntoIterator<Item = u64>) {
            chunks.into_iter().for_each(|chunk| self.boots.arrived(reader, chunk * CHUNK, 4096));
        }

        fn orders(&self) -> Vec<Vec<u32>> {
            self.finished.recorded(0).into_iter().map(|RecordedBoot { order, .. }| order).collect()
        }

        fn set(&self) -> Vec<usize> {
            let bitmap = self.working_set.working_set().unwrap().bitmap;
            (0..bitmap.len() * 8).filter(|at| bitmap[at / 8] >> (at % 8) & 1 == 1).collect()
        }
    }

    fn chunks(first: u32, count: u32) -> Vec<u32> {
        [0].into_iter().chain((first..first + count).rev()).collect()
    }

    fn read_of(chunks: &[u32]) -> impl Iterator<Item = u64> + '_ {
        chunks.iter().map(|chunk| u64::from(*chunk))
    }

    #[tokio::test(start_paused = true)]
    async fn test_guests_that_boot_at_once_have_an_order_each() {
        let bench = Bench::new();
        let orders = [chunks(100, 40), chunks(200, 50)];
        bench.boots.opened(true);
        bench.boots.opened(true);
        for at in 0..41 {
            bench.read(Reader::Direct(1), orders[0].get(at).map(|chunk| u64::from(*chunk)));
            bench.read(Reader::Direct(2), read_of(&orders[1][at..at + 1]));
            bench.read(Reader::Direct(1), [0, 100]);
        }
        bench.read(Reader::Direct(2), read_of(&orders[1][41..]));
        assert_eq!(bench.orders(), Vec::<Vec<u32>>::new());
        sleep(Duration::from_secs(15)).await;
        let mut found = bench.orders();
        found.sort_by_key(|order| *order.iter().max().unwrap());
        assert_eq!(found.len(), 2);
        assert_eq!(found[0][..3], [0, 100, 139], "by first touch");
        assert_eq!(found[1], orders[1]);
    }

    #[tokio::test(start_paused = true)]
    async fn test_clients_of_volumes_boot_beside_processes_of_the_same_numbers() {
        let bench = Bench::new();
        let readers = [Reader::Client(1), Reader::Direct(1), Reader::Client(2)];
        let orders = [chunks(100, 40), chunks(200, 50), chunks(300, 60)];
        readers.iter().for_each(|_| bench.boots.opened(true));
        for (reader, order) in readers.into_iter().zip(&orders) {
            bench.read(reader, read_of(order));
        }
        readers.iter().for_each(|_| bench.boots.closed(true));
        let mut found = bench.orders();
        found.sort_by_key(Vec::len);
        assert_eq!(found, orders);
    }

    #[tokio::test(start_paused = true)]
    async fn test_boot_ends_though_others_keep_starting() {
        let bench = Bench::new();
        for guest in 0..20 {
            bench.boots.opened(true);
            bench.read(Reader::Direct(guest), read_of(&chunks(100, 40)));
            sleep(Duration::from_secs(61)).await;
            // An application reads on, at its leisure.
            bench.read(Reader::Direct(0), [5000 + guest * 10]);
        }
        assert_eq!(bench.orders().len(), 20);
        assert!(bench.orders().iter().all(|order| *order == chunks(100, 40)));
        let set = bench.set();
        assert!(set.contains(&5000), "within two minutes of its open");
        assert_eq!(set.iter().filter(|chunk| **chunk >= 5000).count(), 1, "{set:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn test_guest_that_was_there_before_takes_no_boot_of_another() {
        let bench = Bench::new();
        bench.boots.opened(true);
        bench.read(Reader::Direct(1), 3000..3100);
        bench.read(Reader::Direct(2), read_of(&chunks(100, 40)));
        bench.boots.closed(true);
        assert_eq!(bench.orders(), [chunks(100, 40)]);
        assert_eq!(bench.set().len(), 41);
    }

    #[tokio::test(start_paused = true)]
    async fn test_process_that_opens_in_vain_boots_with_its_next_handle() {
        let bench = Bench::new();
        bench.boots.opened(true);
        bench.read(Reader::Direct(1), [0]);
        bench.boots.closed(true);
        bench.read(Reader::Direct(1), [0]);
        bench.boots.opened(true);
        bench.read(Reader::Direct(1), read_of(&chunks(100, 40)));
        bench.boots.closed(true);
        assert_eq!(bench.orders(), [chunks(100, 40)]);
    }

    #[tokio::test(start_paused = true)]
    async fn test_reads_without_an_open_are_no_boot() {
        let bench = Bench::new();
        bench.read(Reader::Direct(1), 0..50);
        bench.read(Reader::Cached, 0..50);
        sleep(Duration::from_secs(200)).await;
        assert_eq!((bench.orders().len(), bench.set().len()), (0, 0));
        bench.boots.opened(true);
        sleep(limits::BOOT_TIME_MAX + TICK).await;
        bench.read(Reader::Direct(1), 0..50);
        assert_eq!(bench.set().len(), 0, "an open waits for its reader as long as a boot lasts");
        assert!(!bench.boots.is_on.load(Ordering::Relaxed));
    }

    #[tokio::test(start_paused = true)]
    async fn test_inspection_is_no_boot_and_hides_none() {
        let bench = Bench::new();
        bench.boots.opened(false);
        bench.read(Reader::Cached, [0, 1, 9999]);
        bench.boots.closed(false);
        assert_eq!(bench.orders().len(), 0);
        sleep(TICK).await;
        bench.boots.opened(false);
        bench.read(Reader::Cached, read_of(&chunks(100, 40)));
        bench.boots.closed(false);
        assert_eq!(bench.orders(), [chunks(100, 40)]);
    }

    #[tokio::test(start_paused = true)]
    async fn test_read_ahead_of_the_kernel_is_in_no_order() {
        let bench = Bench::new();
        bench.boots.opened(false);
        for chunk in (0..40).rev() {
            bench.boots.arrived(Reader::Cached, chunk * CHUNK, limits::BOOT_CACHED_READ_MAX / 2);
            bench.boots.arrived(Reader::Cached, (chunk + 100) * CHUNK, 1 << 20);
        }
        bench.boots.closed(false);
        assert_eq!(bench.orders(), [(0..40).rev().collect::<Vec<_>>()]);
        assert_eq!(bench.set().len(), 40 + 55, "but in the working set");
        // Who reads past the page cache asks for what it needs, however much.
        bench.boots.opened(true);
        for chunk in [0, 16, 32] {
            bench.boots.arrived(Reader::Direct(1), chunk * CHUNK, 1 << 20);
        }
        bench.boots.closed(true);
        assert_eq!(bench.orders()[1], (0..48).collect::<Vec<_>>());
    }

    #[tokio::test(start_paused = true)]
    async fn test_second_boot_through_the_page_cache_tells_half_and_is_not_recorded() {
        let bench = Bench::new();
        for first in [100, 200] {
            bench.boots.opened(false);
            bench.read(Reader::Cached, read_of(&chunks(first, 40)));
            bench.boots.closed(false);
            sleep(WINDOW + TICK).await;
        }
        assert_eq!(bench.orders(), [chunks(100, 40)]);
        assert_eq!(bench.set().len(), 81);
    }

    #[tokio::test(start_paused = true)]
    async fn test_reads_are_cut_at_the_end_of_the_disk() {
        let bench = Bench::new();
        bench.boots.opened(true);
        bench.read(Reader::Direct(1), 0..20);
        bench.boots.arrived(Reader::Direct(1), 9999 * CHUNK, 1 << 20);
        bench.boots.arrived(Reader::Direct(1), 10_000 * CHUNK, 1 << 20);
        bench.boots.arrived(Reader::Direct(1), u64::MAX, usize::MAX);
        bench.boots.arrived(Reader::Direct(1), 5 * CHUNK, 0);
        bench.boots.closed(true);
        assert_eq!(bench.orders()[0].iter().max(), Some(&9999));
        assert_eq!(bench.orders()[0].len(), 21);
    }

    #[tokio::test(start_paused = true)]
    async fn test_boots_past_the_most_at_a_time_are_in_the_working_set_only() {
        let bench = Bench::new();
        for guest in 0..=limits::BOOTS_RECORDED_MAX as u64 {
            bench.boots.opened(true);
            bench.read(Reader::Direct(guest), (0..20).map(|chunk| chunk * (guest + 1)));
        }
        bench.boots.closed(true);
        sleep(Duration::from_secs(15)).await;
        assert_eq!(bench.orders().len(), limits::BOOTS_RECORDED_MAX);
        assert!(bench.set().contains(&(19 * 65)));
        bench.boots.opened(true);
        bench.read(Reader::Direct(500), read_of(&chunks(100, 40)));
        sleep(Duration::from_secs(15)).await;
        assert_eq!(bench.orders().len(), limits::BOOTS_RECORDED_MAX + 1, "permits come back");
    }
}
