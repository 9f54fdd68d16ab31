//! The origin of volumes' logs: new log objects past Python where that is possible, all else through it.

use std::sync::atomic::{AtomicBool, Ordering};

use acstor_overlay::{OriginSink, SinkError};
use acstor_rados::{RadosError, RadosLogWriter};
use bytes::Bytes;

/// Way past Python.
pub(crate) trait DirectPut: Send + Sync + 'static {
    /// Stores a new object; `false`: it cannot be stored in this way, and nothing was done.
    ///
    /// # Errors
    /// [`RadosError`]: it may be there.
    fn put(&self, key: &str, parts: &[Bytes]) -> Result<bool, RadosError>;
}

impl DirectPut for RadosLogWriter {
    fn put(&self, key: &str, parts: &[Bytes]) -> Result<bool, RadosError> {
        RadosLogWriter::put(self, key, parts)
    }
}

/// An origin, and a way past it.
///
/// Python's origin looks, when it is opened, whether this is the repository; it repeats what fails,
/// within a deadline, and resolves what others have left. So it has the first call, and the one after
/// each that has failed on the direct way: an outage costs one deadline more, once.
pub(crate) struct LogSink<S> {
    origin: S,
    direct: Option<Box<dyn DirectPut>>,
    has_answered: AtomicBool,
}

impl<S: OriginSink> LogSink<S> {
    pub(crate) fn new(origin: S, direct: Option<Box<dyn DirectPut>>) -> LogSink<S> {
        LogSink { origin, direct, has_answered: AtomicBool::new(false) }
    }

    /// Returns whether the object was stored on the direct way.
    fn put_directly(&self, key: &str, parts: &[Bytes]) -> bool {
        let Some(direct) = &self.direct else { return false };
        if !self.has_answered.load(Ordering::Relaxed) {
            return false;
        }
        direct.put(key, parts).unwrap_or_else(|error| {
            tracing::debug!(key, %error, "not stored past Python, which now has its turn");
            self.has_answered.store(false, Ordering::Relaxed);
            false
        })
    }
}

impl<S: OriginSink> OriginSink for LogSink<S> {
    fn put_if_absent(&self, key: &str, parts: &[Bytes]) -> Result<bool, SinkError> {
        if self.put_directly(key, parts) {
            return Ok(true);
        }
        // Where an answer was lost on the direct way, the object is found there: to the caller a key that is
        // taken, whose content it compares.
        let is_new = self.origin.put_if_absent(key, parts)?;
        self.has_answered.store(true, Ordering::Relaxed);
        Ok(is_new)
    }

    fn get(&self, key: &str, size_max: u64) -> Result<Option<Bytes>, SinkError> {
        self.origin.get(key, size_max)
    }

    fn list(&self, prefix: &str) -> Result<Vec<String>, SinkError> {
        self.origin.list(prefix)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use parking_lot::Mutex;

    use super::*;

    #[derive(Clone, Default)]
    struct Calls(Arc<Mutex<Vec<&'static str>>>);

    impl Calls {
        fn note(&self, call: &'static str) {
            self.0.lock().push(call);
        }

        fn take(&self) -> Vec<&'static str> {
            std::mem::take(&mut self.0.lock())
        }
    }

    struct Origin(Calls, Arc<Mutex<Result<bool, SinkError>>>);

    impl OriginSink for Origin {
        fn put_if_absent(&self, _key: &str, _parts: &[Bytes]) -> Result<bool, SinkError> {
            self.0.note("origin");
            self.1.lock().clone()
        }

        fn get(&self, _key: &str, _size_max: u64) -> Result<Option<Bytes>, SinkError> {
            self.0.note("get");
            Ok(None)
        }

        fn list(&self, _prefix: &str) -> Result<Vec<String>, SinkError> {
            self.0.note("list");
            Ok(Vec::new())
        }
    }

    struct Direct(Calls, Arc<Mutex<Result<bool, RadosError>>>);

    impl DirectPut for Direct {
        fn put(&self, _key: &str, _parts: &[Bytes]) -> Result<bool, RadosError> {
            self.0.note("direct");
            self.1.lock().clone()
        }
    }

    struct Ways {
        calls: Calls,
        origin: Arc<Mutex<Result<bool, SinkError>>>,
        direct: Arc<Mutex<Result<bool, RadosError>>>,
        sink: LogSink<Origin>,
    }

    fn ways() -> Ways {
        let calls = Calls::default();
        let origin = Arc::new(Mutex::new(Ok(true)));
        let direct = Arc::new(Mutex::new(Ok(true)));
        let way = Direct(calls.clone(), direct.clone());
        let sink = LogSink::new(Origin(calls.clone(), origin.clone()), Some(Box::new(way)));
        Ways { calls, origin, direct, sink }
    }

    #[test]
    fn test_origin_has_the_first_call_and_the_direct_way_those_after_it() {
        let ways = ways();
        for _ in 0..3 {
            assert_eq!(ways.sink.put_if_absent("a", &[]), Ok(true));
        }
        assert_eq!(ways.calls.take(), ["origin", "direct", "direct"]);
        ways.sink.get("a", 1).unwrap();
        ways.sink.list("a/").unwrap();
        assert_eq!(ways.calls.take(), ["get", "list"]);
    }

    #[test]
    fn test_origin_that_has_never_answered_is_not_passed_by() {
        let ways = ways();
        let away = SinkError::Unavailable { key: "a".into(), cause: "away".into() };
        *ways.origin.lock() = Err(away.clone());
        for _ in 0..2 {
            assert_eq!(ways.sink.put_if_absent("a", &[]), Err(away.clone()));
        }
        assert_eq!(ways.calls.take(), ["origin", "origin"]);
    }

    #[test]
    fn test_lost_answer_is_a_key_that_is_taken() {
        let ways = ways();
        ways.sink.put_if_absent("a", &[]).unwrap();
        *ways.direct.lock() = Err(RadosError::Closed);
        *ways.origin.lock() = Ok(false);
        assert_eq!(ways.sink.put_if_absent("b", &[]), Ok(false));
        assert_eq!(ways.calls.take(), ["origin", "direct", "origin"]);
    }

    #[test]
    fn test_failure_gives_the_next_call_to_the_origin_once() {
        let ways = ways();
        ways.sink.put_if_absent("a", &[]).unwrap();
        *ways.direct.lock() = Err(RadosError::Closed);
        let away = SinkError::Unavailable { key: "b".into(), cause: "away".into() };
        *ways.origin.lock() = Err(away.clone());
        ways.sink.put_if_absent("b", &[]).unwrap_err();
        ways.sink.put_if_absent("b", &[]).unwrap_err();
        assert_eq!(ways.calls.take(), ["origin", "direct", "origin", "origin"]);
        (*ways.direct.lock(), *ways.origin.lock()) = (Ok(true), Ok(true));
        ways.sink.put_if_absent("b", &[]).unwrap();
        ways.sink.put_if_absent("c", &[]).unwrap();
        assert_eq!(ways.calls.take(), ["origin", "direct"]);
    }

    #[test]
    fn test_what_the_direct_way_does_not_take_goes_to_the_origin() {
        let ways = ways();
        ways.sink.put_if_absent("a", &[]).unwrap();
        *ways.direct.lock() = Ok(false);
        assert_eq!(ways.sink.put_if_absent("b", &[]), Ok(true));
        assert_eq!(ways.sink.put_if_absent("c", &[]), Ok(true));
        assert_eq!(ways.calls.take(), ["origin", "direct", "origin", "direct", "origin"]);
    }
}
