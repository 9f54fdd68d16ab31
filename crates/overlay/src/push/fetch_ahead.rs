//! Objects of a log, fetched several at a time and handed over in order.
//!
//! Whoever takes a volume over reads every log object over its manifest, and its guest waits for
//! that: with small objects the time is the origin's latency, times their number.

use std::collections::BTreeMap;

use bytes::Bytes;
use parking_lot::{Condvar, Mutex};

use crate::push::seal::object_at;
use crate::{OriginSink, OverlayError};

/// Objects that are fetched at a time.
const FETCHERS: usize = 8;
/// Objects that are here or under way and were not handed over, at most: each has some mebibytes.
const AHEAD: u64 = 16;
/// Fewest objects for which fetching ahead is worth it; fewer are fetched one after the other.
const WORTH: u64 = 32;

struct State {
    /// Number of the object to be fetched next.
    next: u64,
    /// Number of the object to be handed over next.
    wanted: u64,
    arrived: BTreeMap<u64, Result<Bytes, OverlayError>>,
    is_over: bool,
}

struct Ahead<'a> {
    sink: &'a dyn OriginSink,
    last: u64,
    key: &'a (dyn Fn(u64) -> String + Sync),
    state: Mutex<State>,
    changed: Condvar,
}

/// Calls `visit` with the objects `first..=last`, in order, until it fails.
pub(crate) fn visit_objects(
    sink: &dyn OriginSink,
    (first, last): (u64, u64),
    key: &(dyn Fn(u64) -> String + Sync),
    mut visit: impl FnMut(u64, Bytes) -> Result<(), OverlayError>,
) -> Result<(), OverlayError> {
    if last.saturating_sub(first) < WORTH {
        return (first..=last).try_for_each(|at| visit(at, object_at(sink, &key(at))?));
    }
    let state = State { next: first, wanted: first, arrived: BTreeMap::new(), is_over: false };
    let ahead = Ahead { sink, last, key, state: Mutex::new(state), changed: Condvar::new() };
    std::thread::scope(|scope| {
        let _over = Over(&ahead);
        for number in 0..FETCHERS {
            let builder = std::thread::Builder::new().name("overlay-replay".to_owned());
            if let Err(error) = builder.spawn_scoped(scope, || ahead.fetch())
                && number == 0
            {
                return Err(OverlayError::io("start the thread overlay-replay", error));
            }
        }
        (first..=last).try_for_each(|at| visit(at, ahead.take(at)?))
    })
}

/// Ends the fetchers, however the visit ends.
struct Over<'a>(&'a Ahead<'a>);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.state.lock().is_over = true;
        self.0.changed.notify_all();
    }
}

impl Ahead<'_> {
    fn fetch(&self) {
        loop {
            let at = {
                let mut state = self.state.lock();
                while !state.is_over
                    && state.next <= self.last
                    && state.next >= state.wanted + AHEAD
                {
                    self.changed.wait(&mut state);
                }
                if state.is_over || state.next > self.last {
                    return;
                }
                state.next += 1;
                state.next - 1
            };
            let object = object_at(self.sink, &(self.key)(at));
            self.state.lock().arrived.insert(at, object);
            self.changed.notify_all();
        }
    }

    fn take(&self, at: u64) -> Result<Bytes, OverlayError> {
        let mut state = self.state.lock();
        loop {
            if let Some(object) = state.arrived.remove(&at) {
                state.wanted = at + 1;
                self.changed.notify_all();
                return object;
            }
            self.changed.wait(&mut state);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Barrier;
    use std::sync::atomic::{AtomicU64, Ordering};

    use acstor_testkit::Fault;
    use proptest::prelude::*;

    use super::*;
    use crate::SinkError;
    use crate::scenarios::memory_origin::MemoryOrigin;

    fn key(at: u64) -> String {
        format!("log/{at:016x}")
    }

    fn origin(count: u64) -> MemoryOrigin {
        let origin = MemoryOrigin::default();
        for at in 0..count {
            assert!(
                origin.put_if_absent(&key(at), &[Bytes::from(at.to_le_bytes().to_vec())]).unwrap()
            );
        }
        origin
    }

    fn visit(sink: &dyn OriginSink, count: u64, stop: u64) -> (Vec<u64>, Result<(), OverlayError>) {
        let mut seen = Vec::new();
        let outcome = visit_objects(sink, (0, count - 1), &key, |at, object| {
            assert_eq!(object[..], at.to_le_bytes());
            seen.push(at);
            match at == stop {
                true => Err(OverlayError::Invalid("enough".to_owned())),
                false => Ok(()),
            }
        });
        (seen, outcome)
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 32, ..ProptestConfig::default() })]

        #[test]
        fn objects_come_in_order_until_one_fails(
            count in 1..200_u64, stop in 0..300_u64, missing in 0..300_u64,
        ) {
            let sink = Missing(origin(count), missing);
            let (seen, outcome) = visit(&sink, count, stop);
            let end = count.min(stop.saturating_add(1)).min(missing);
            prop_assert_eq!(seen, (0..end).collect::<Vec<_>>());
            prop_assert_eq!(outcome.is_ok(), stop >= count && missing >= count);
        }
    }

    /// An origin that has lost an object.
    struct Missing(MemoryOrigin, u64);

    impl OriginSink for Missing {
        fn put_if_absent(&self, key: &str, parts: &[Bytes]) -> Result<bool, SinkError> {
            self.0.put_if_absent(key, parts)
        }

        fn get(&self, name: &str, size_max: u64) -> Result<Option<Bytes>, SinkError> {
            if name == key(self.1) { Ok(None) } else { self.0.get(name, size_max) }
        }

        fn list(&self, prefix: &str) -> Result<Vec<String>, SinkError> {
            self.0.list(prefix)
        }
    }

    /// An origin that answers only when as many ask at a time.
    struct Together(MemoryOrigin, Barrier, AtomicU64);

    impl OriginSink for Together {
        fn put_if_absent(&self, key: &str, parts: &[Bytes]) -> Result<bool, SinkError> {
            self.0.put_if_absent(key, parts)
        }

        fn get(&self, key: &str, size_max: u64) -> Result<Option<Bytes>, SinkError> {
            if self.2.fetch_add(1, Ordering::Relaxed) < FETCHERS as u64 {
                self.1.wait();
            }
            self.0.get(key, size_max)
        }

        fn list(&self, prefix: &str) -> Result<Vec<String>, SinkError> {
            self.0.list(prefix)
        }
    }

    #[test]
    fn several_are_fetched_at_a_time() {
        let sink = Together(origin(64), Barrier::new(FETCHERS), AtomicU64::new(0));
        let (seen, outcome) = visit(&sink, 64, u64::MAX);
        outcome.unwrap();
        assert_eq!(seen.len(), 64);
    }

    #[test]
    fn no_more_is_fetched_than_there_is_room_for() {
        let sink = origin(200);
        let mut calls = Vec::new();
        visit_objects(&sink, (0, 199), &key, |at, _| {
            calls.push(sink.faults.calls("get").saturating_sub(at));
            Ok(())
        })
        .unwrap();
        assert!(calls.iter().all(|ahead| *ahead <= AHEAD + 1), "{calls:?}");
        sink.faults.fail_always("get", Fault::EIO);
        assert!(visit(&sink, 200, u64::MAX).1.is_err());
    }
}
