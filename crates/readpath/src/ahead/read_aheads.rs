//! Read-ahead of one disk along its boot profile, one for each open that may be booting; or along the hints of
//! other hosts, one for all opens.
//!
//! The kernel gives every open of a disk the same handle, so a read is told to all of them: to those of
//! other guests it is a read by somebody who is farther, or not as far.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};

use acstor_selection::{AheadBalance, BootProfile, ReadAhead, Touch};
use acstor_types::Digest;
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::Instant;

use crate::exchange::hint_window::{AheadWindow, HintWindow};
use crate::fetch::flight::{Flight, Outcome};
use crate::fetch::outcome::{AheadBytes, HintFate};
use crate::fetch::sources::Sources;
use crate::limits;
use crate::view::disk_shape::DiskShape;

/// The opens of a disk that are read ahead.
#[derive(Debug, Default)]
pub(crate) struct ReadAheads {
    /// Opens that are read ahead: only then does a read have to look here.
    active: AtomicUsize,
    opens: Mutex<Vec<Arc<OpenAhead>>>,
    /// Of opens whose read-ahead is over while that of others goes on.
    over: Mutex<AheadBalance>,
}

/// Read-ahead of one open.
#[derive(Debug)]
pub(crate) struct OpenAhead {
    state: Mutex<State>,
    /// Told of whatever may make room in the window.
    pub(super) wake: Arc<Notify>,
    is_closed: AtomicBool,
    /// Time at which it ends, whatever is left.
    until: Mutex<Instant>,
    /// True if it follows hints of other hosts: all opens of the disk are one then.
    is_hinted: bool,
    /// Opens that it is for.
    handles: AtomicUsize,
    chunk_bytes: u64,
}

#[derive(Debug)]
struct State {
    window: Box<dyn AheadWindow>,
    /// Chunks that were ordered and not read.
    orders: HashMap<u32, Order>,
}

/// A chunk that was ordered.
#[derive(Debug, Default)]
enum Order {
    /// Not looked up yet.
    #[default]
    Unknown,
    UnderWay(Digest, Weak<Flight>),
    /// In the memory for it, and claimed.
    Claimed(Digest),
    /// In the chunk store, or on the way there.
    Kept,
}

impl ReadAheads {
    /// Begins the read-ahead of an open along a profile; `None` where there is no memory for it, or enough
    /// are booting.
    pub(crate) fn begin(
        &self,
        sources: &Sources,
        profile: Arc<BootProfile>,
        chunk_bytes: u64,
    ) -> Option<Arc<OpenAhead>> {
        let budget = sources.chunks.ahead.bytes_max();
        if profile.is_empty() || budget < chunk_bytes {
            return None;
        }
        let mut opens = self.opens.lock();
        if opens.len() >= limits::READ_AHEAD_OPENS_MAX {
            return None;
        }
        let seed = Digest::of(sources.config.host.as_bytes()).prefix_u64();
        let window = Box::new(ReadAhead::new(profile, chunk_bytes, budget, seed));
        let open = OpenAhead::new(sources, (window, Arc::default()), chunk_bytes, false);
        opens.push(open.clone());
        self.active.store(opens.len(), Ordering::Relaxed);
        Some(open)
    }

    /// Begins to read ahead of an open along the hints of other hosts; `None` where there is no exchange, or
    /// it is under way: this open is part of it then.
    pub(crate) fn begin_hinted(
        &self,
        sources: &Sources,
        shape: &DiskShape,
    ) -> Option<Arc<OpenAhead>> {
        let chunk_bytes = shape.chunk_size.bytes() as u64;
        let budget = sources.chunks.ahead.bytes_max();
        if budget < chunk_bytes {
            return None;
        }
        let mut opens = self.opens.lock();
        if let Some(open) = opens.iter().find(|open| open.is_hinted && !open.is_closed()) {
            open.handles.fetch_add(1, Ordering::Relaxed);
            *open.until.lock() = Instant::now() + sources.config.boot_window;
            open.wake.notify_one();
            return None;
        }
        if opens.len() >= limits::READ_AHEAD_OPENS_MAX {
            return None;
        }
        let wake = Arc::new(Notify::new());
        let member = sources.exchange.begin(shape, budget, wake.clone())?;
        let window = Box::new(HintWindow(member));
        let open = OpenAhead::new(sources, (window, wake), chunk_bytes, true);
        opens.push(open.clone());
        self.active.store(opens.len(), Ordering::Relaxed);
        Some(open)
    }

    /// Notes a close: of the last open, since that of a guest that runs is over long before its close.
    pub(crate) fn closed(&self) {
        if self.active.load(Ordering::Relaxed) == 0 {
            return;
        }
        if let Some(open) = self.opens.lock().iter().rev().find(|open| !open.is_closed())
            && open.handles.fetch_sub(1, Ordering::Relaxed) == 1
        {
            open.is_closed.store(true, Ordering::Relaxed);
            open.wake.notify_one();
        }
    }

    /// Forgets an open.
    pub(super) fn remove(&self, open: &Arc<OpenAhead>) {
        let mut opens = self.opens.lock();
        opens.retain(|other| !Arc::ptr_eq(other, open));
        self.active.store(opens.len(), Ordering::Relaxed);
        let is_last = opens.is_empty();
        drop(opens);
        let balance = open.balance();
        let mut over = self.over.lock();
        *over += balance;
        if is_last {
            *over = AheadBalance::default();
        }
    }

    /// Bytes that the other opens of the disk ordered.
    pub(super) fn beside(&self, open: &Arc<OpenAhead>) -> AheadBalance {
        let opens = self.opens.lock().clone();
        let mut sum = *self.over.lock();
        let others = opens.iter().filter(|other| !Arc::ptr_eq(other, open));
        others.for_each(|other| sum += other.balance());
        sum
    }

    /// Notes a read of the chunks from `first` to `last`; returns whether a profile names what is read, so
    /// that nobody else need guess what comes next. One relaxed load where nothing is read ahead.
    #[inline]
    pub(crate) fn note(&self, sources: &Sources, first: u64, last: u64) -> bool {
        self.active.load(Ordering::Relaxed) > 0 && self.tell(sources, first, last)
    }

    fn tell(&self, sources: &Sources, first: u64, last: u64) -> bool {
        let opens = self.opens.lock().clone();
        let mut is_named = false;
        for open in opens {
            is_named |= open.note(sources, first, last);
        }
        is_named
    }
}

impl OpenAhead {
    fn new(
        sources: &Sources,
        (window, wake): (Box<dyn AheadWindow>, Arc<Notify>),
        chunk_bytes: u64,
        is_hinted: bool,
    ) -> Arc<OpenAhead> {
        Arc::new(OpenAhead {
            state: Mutex::new(State { window, orders: HashMap::new() }),
            wake,
            is_closed: AtomicBool::new(false),
            until: Mutex::new(Instant::now() + sources.config.boot_window),
            is_hinted,
            handles: AtomicUsize::new(1),
            chunk_bytes,
        })
    }

    /// Counts bytes by what led to their order.
    pub(super) fn count(&self, sources: &Sources, fate: AheadBytes, bytes: u64) {
        if self.is_hinted {
            sources.metrics.exchange.bytes(fate, bytes);
        } else {
            sources.metrics.read_ahead(fate, bytes);
        }
    }

    /// Time at which it ends, whatever is left.
    pub(super) fn until(&self) -> Instant {
        *self.until.lock()
    }

    /// Gives up what came long ago and was not read.
    pub(super) fn age(&self, sources: &Sources) {
        let mut state = self.state.lock();
        let old = state.window.age();
        for chunk in old {
            if let Some(Order::Claimed(digest)) = state.orders.remove(&chunk) {
                drop(sources.chunks.ahead.leave(&digest));
            }
        }
    }

    fn note(&self, sources: &Sources, first: u64, last: u64) -> bool {
        let (mut is_named, mut read) = (false, Vec::new());
        let (mut used, mut late) = (0, 0);
        let mut state = self.state.lock();
        for chunk in first..=last {
            let Ok(chunk) = u32::try_from(chunk) else { break };
            let touch = state.window.read(chunk);
            is_named |= touch != Touch::Strange;
            used += u64::from(touch == Touch::Used);
            late += u64::from(touch == Touch::Late);
            read.extend(state.orders.remove(&chunk));
        }
        is_named &= state.window.is_led();
        drop(state);
        self.count(sources, AheadBytes::Used, used * self.chunk_bytes);
        self.count(sources, AheadBytes::Late, late * self.chunk_bytes);
        if self.is_hinted {
            sources.metrics.exchange.hints(HintFate::Used, used + late);
        }
        for order in read {
            match order {
                Order::Claimed(digest) => sources.chunks.note_ahead_read(&digest, true),
                // It may have come this moment.
                Order::UnderWay(digest, _) => sources.chunks.note_ahead_read(&digest, false),
                Order::Unknown | Order::Kept => {}
            }
        }
        self.wake.notify_one();
        is_named
    }

    pub(super) fn is_closed(&self) -> bool {
        self.is_closed.load(Ordering::Relaxed)
    }

    /// Returns whether nothing is left to order or to read.
    pub(super) fn is_over(&self) -> bool {
        self.state.lock().window.is_over()
    }

    fn balance(&self) -> AheadBalance {
        self.state.lock().window.balance()
    }

    /// The chunks to order now beside other opens, where there is room for so many bytes.
    pub(super) fn next(&self, others: AheadBalance, room: u64) -> Vec<u32> {
        let mut state = self.state.lock();
        let chunks = state.window.next_beside(others, room);
        state.orders.extend(chunks.iter().map(|chunk| (*chunk, Order::Unknown)));
        chunks
    }

    /// Notes that a chunk need not be ordered: it is zero, or here.
    pub(super) fn present(&self, chunk: u32) {
        let mut state = self.state.lock();
        state.orders.remove(&chunk);
        state.window.present(chunk);
    }

    /// Takes an order back that was not carried out.
    pub(super) fn put_back(&self, chunk: u32) {
        let mut state = self.state.lock();
        state.orders.remove(&chunk);
        state.window.put_back(chunk);
    }

    /// Claims a chunk that another open had brought; `false`: it is not in the memory. One that was read
    /// meanwhile need not be.
    pub(super) fn claim(&self, sources: &Sources, chunk: u32, digest: Digest) -> bool {
        let mut state = self.state.lock();
        let State { window, orders } = &mut *state;
        let Some(order) = orders.get_mut(&chunk) else { return true };
        let is_claimed = sources.chunks.ahead.claim(&digest);
        if is_claimed {
            *order = Order::Claimed(digest);
            window.fetched(chunk);
        }
        is_claimed
    }

    /// Notes that a chunk is on its way.
    pub(super) fn ordered(&self, chunk: u32, flight: &Arc<Flight>) {
        if let Some(order) = self.state.lock().orders.get_mut(&chunk) {
            *order = Order::UnderWay(flight.digest, Arc::downgrade(flight));
        }
    }

    /// Notes how the flight of a chunk ended.
    pub(super) fn landed(&self, sources: &Sources, chunk: u32, digest: Digest, outcome: &Outcome) {
        let mut state = self.state.lock();
        let State { window, orders } = &mut *state;
        if let Some(order) = orders.get_mut(&chunk) {
            let is_claimed = outcome.is_ok() && sources.chunks.ahead.claim(&digest);
            if is_claimed {
                *order = Order::Claimed(digest);
                window.fetched(chunk);
            } else if outcome.is_ok() && sources.chunks.is_here(&digest) {
                *order = Order::Kept;
                window.fetched(chunk);
            } else {
                orders.remove(&chunk);
                // What came and found no room was in vain.
                if outcome.is_ok() { window.gone(chunk) } else { window.failed(chunk) }
            }
        }
        drop(state);
        self.wake.notify_one();
    }

    /// Ends the read-ahead: what nobody waits for is not fetched, and what is here is left to others.
    /// Returns the bytes that were right and those that were in vain.
    pub(super) fn end(&self, sources: &Sources) -> (u64, u64) {
        let mut state = self.state.lock();
        for (chunk, order) in std::mem::take(&mut state.orders) {
            match order {
                Order::Claimed(digest) => drop(sources.chunks.ahead.leave(&digest)),
                Order::UnderWay(_, flight) => {
                    flight.upgrade().into_iter().for_each(|flight| flight.revoke());
                    state.window.failed(chunk);
                }
                Order::Unknown => state.window.failed(chunk),
                Order::Kept => {}
            }
        }
        state.window.ended();
        (state.window.right_bytes(), state.window.wasted_bytes())
    }
}
