//! Requests that wait for the origin: for how long, and how many there are.
//!
//! An origin that is away makes a request wait, as any networked block device does: the guest goes
//! on where it was once the origin is back. A volume type may say after which time a request fails
//! instead; that time counts from the last object that the origin took, whoever it was for.

use std::collections::BTreeMap;
use std::time::Duration;

use parking_lot::Mutex;
use rand::Rng;
use tokio::sync::{oneshot, watch};
use tokio::time::Instant;

use crate::segments::flusher::closed;
use crate::{DeviceError, DeviceErrorKind};

/// Shortest pause before a read that found no source is tried again.
const PAUSE_FIRST: Duration = Duration::from_millis(50);
/// Longest pause before a read that found no source is tried again: what it waits in vain once the
/// origin is back.
const PAUSE_LAST: Duration = Duration::from_secs(1);
/// Age of the oldest waiting request from which the log tells of it.
const TOLD_AFTER: Duration = Duration::from_secs(30);
/// Time between two lines of the log about the same outage.
const TOLD_AGAIN: Duration = Duration::from_secs(600);

/// State that the requests of one volume which wait for the origin share.
#[derive(Debug)]
pub(crate) struct OriginWait {
    /// `None`: without limit.
    timeout: watch::Sender<Option<Duration>>,
    /// Time at which the origin last stored an object.
    stored_at: Mutex<Instant>,
    requests: Mutex<Requests>,
    told: Mutex<Option<Instant>>,
}

#[derive(Debug, Default)]
struct Requests {
    next: u64,
    /// Since when each of them waits; they come in the order of time.
    since: BTreeMap<u64, Instant>,
}

/// Requests that wait at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Waiting {
    pub count: u64,
    /// For how long the oldest of them has waited.
    pub oldest: Option<Duration>,
}

/// One request that waits, until it is dropped.
pub(crate) struct Waiter<'a> {
    wait: &'a OriginWait,
    number: u64,
    since: Instant,
    pause: Duration,
}

/// Log message about an outage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Told {
    /// Requests have waited for long.
    Begun(Waiting),
    /// None does any more.
    Over,
}

impl OriginWait {
    pub(crate) fn new(timeout: Option<Duration>) -> OriginWait {
        OriginWait {
            timeout: watch::Sender::new(timeout),
            stored_at: Mutex::new(Instant::now()),
            requests: Mutex::default(),
            told: Mutex::new(None),
        }
    }

    /// Changes the limit, for requests that wait already, too.
    pub(crate) fn set_timeout(&self, timeout: Option<Duration>) {
        self.timeout.send_replace(timeout);
    }

    pub(crate) fn timeout(&self) -> Option<Duration> {
        *self.timeout.borrow()
    }

    /// Notes that the origin has stored an object.
    pub(crate) fn stored(&self) {
        *self.stored_at.lock() = Instant::now();
    }

    /// Counts a request as waiting as long as the result lives.
    pub(crate) fn begin(&self) -> Waiter<'_> {
        let since = Instant::now();
        let mut requests = self.requests.lock();
        let number = requests.next;
        requests.next += 1;
        requests.since.insert(number, since);
        Waiter { wait: self, number, since, pause: PAUSE_FIRST }
    }

    pub(crate) fn waiting(&self) -> Waiting {
        let requests = self.requests.lock();
        let oldest = requests.since.first_key_value().map(|(_, since)| since.elapsed());
        Waiting { count: requests.since.len() as u64, oldest }
    }

    /// Returns the answer of the origin, or the error of a request that has waited too long.
    pub(crate) async fn answer(
        &self,
        mut answer: oneshot::Receiver<Result<(), DeviceError>>,
    ) -> Result<(), DeviceError> {
        let waiter = self.begin();
        let mut timeout = self.timeout.subscribe();
        loop {
            let limit = *timeout.borrow_and_update();
            let expired = async {
                match limit {
                    Some(limit) => tokio::time::sleep_until(waiter.progress() + limit).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                biased;
                answer = &mut answer => return answer.unwrap_or_else(|_| Err(closed())),
                () = expired => {
                    let limit = limit.unwrap_or_default();
                    // An origin that is slow is not one that fails.
                    if waiter.progress() + limit <= Instant::now() {
                        return Err(late(limit));
                    }
                }
                // The sender lives as long as this.
                _ = timeout.changed() => {}
            }
        }
    }

    /// Returns what is to be told of waiting requests now.
    pub(crate) fn told(&self) -> Option<Told> {
        let waiting = self.waiting();
        let mut told = self.told.lock();
        let is_long = waiting.oldest.is_some_and(|oldest| oldest >= TOLD_AFTER);
        match (is_long, *told) {
            (true, Some(at)) if at.elapsed() < TOLD_AGAIN => None,
            (true, _) => {
                *told = Some(Instant::now());
                Some(Told::Begun(waiting))
            }
            (false, Some(_)) => {
                *told = None;
                Some(Told::Over)
            }
            (false, None) => None,
        }
    }
}

impl Waiter<'_> {
    /// Since when nothing has happened for this request.
    fn progress(&self) -> Instant {
        self.since.max(*self.wait.stored_at.lock())
    }

    /// Waits before a read is tried again.
    ///
    /// # Errors
    /// The request has waited too long.
    pub(crate) async fn pause(&mut self) -> Result<(), DeviceError> {
        if let Some(limit) = self.wait.timeout()
            && self.since.elapsed() >= limit
        {
            return Err(late(limit));
        }
        let pause = self.pause.mul_f64(rand::rng().random_range(0.5..1.0));
        self.pause = (self.pause * 2).min(PAUSE_LAST);
        tokio::time::sleep(pause).await;
        Ok(())
    }
}

impl Drop for Waiter<'_> {
    fn drop(&mut self) {
        self.wait.requests.lock().since.remove(&self.number);
    }
}

fn late(limit: Duration) -> DeviceError {
    let text = format!(
        "the origin has done nothing for this request for {limit:?}, the limit that the volume's \
         type or [volumes] io_timeout sets"
    );
    DeviceError::new(DeviceErrorKind::Io, text)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    const DAY: Duration = Duration::from_secs(86_400);

    type Answer = Result<(), DeviceError>;

    fn pair() -> (oneshot::Sender<Answer>, oneshot::Receiver<Answer>) {
        oneshot::channel()
    }

    #[tokio::test(start_paused = true)]
    async fn request_waits_for_an_origin_that_is_away_for_a_day() {
        let wait = Arc::new(OriginWait::new(None));
        let (sender, receiver) = pair();
        let waiting = Arc::clone(&wait);
        let request = tokio::spawn(async move { waiting.answer(receiver).await });
        tokio::time::sleep(DAY).await;
        assert!(!request.is_finished());
        assert_eq!(wait.waiting(), Waiting { count: 1, oldest: Some(DAY) });
        assert!(matches!(wait.told(), Some(Told::Begun(_))));
        assert_eq!(wait.told(), None, "told once");
        sender.send(Ok(())).unwrap();
        assert_eq!(request.await.unwrap(), Ok(()));
        assert_eq!(wait.waiting(), Waiting::default());
        assert_eq!(wait.told(), Some(Told::Over));
        assert_eq!(wait.told(), None);
    }

    #[tokio::test(start_paused = true)]
    async fn limit_counts_from_the_last_object_that_was_stored() {
        let limit = Duration::from_secs(30);
        let wait = Arc::new(OriginWait::new(Some(limit)));
        let (_sender, receiver) = pair();
        let waiting = Arc::clone(&wait);
        let request = tokio::spawn(async move { waiting.answer(receiver).await });
        for _ in 0..100 {
            tokio::time::sleep(limit / 2).await;
            wait.stored();
        }
        assert!(!request.is_finished(), "a slow origin is not one that fails");
        let stored_at = Instant::now();
        let error = request.await.unwrap().unwrap_err();
        assert_eq!(error.kind, DeviceErrorKind::Io);
        assert_eq!(stored_at.elapsed().as_secs(), limit.as_secs());
    }

    #[tokio::test(start_paused = true)]
    async fn limit_that_is_lifted_counts_for_requests_that_wait() {
        let wait = Arc::new(OriginWait::new(Some(Duration::from_secs(30))));
        let (sender, receiver) = pair();
        let waiting = Arc::clone(&wait);
        let request = tokio::spawn(async move { waiting.answer(receiver).await });
        tokio::time::sleep(Duration::from_secs(10)).await;
        wait.set_timeout(None);
        tokio::time::sleep(DAY).await;
        assert!(!request.is_finished());
        sender.send(Ok(())).unwrap();
        assert_eq!(request.await.unwrap(), Ok(()));
    }

    #[tokio::test(start_paused = true)]
    async fn read_is_tried_again_soon_and_fails_only_by_the_types_choice() {
        let wait = OriginWait::new(None);
        let mut waiter = wait.begin();
        let begun = Instant::now();
        for _ in 0..1000 {
            let before = Instant::now();
            waiter.pause().await.unwrap();
            assert!(before.elapsed() <= PAUSE_LAST + Duration::from_millis(1));
        }
        assert!(begun.elapsed() > Duration::from_secs(300));
        wait.set_timeout(Some(Duration::from_secs(300)));
        assert_eq!(waiter.pause().await.unwrap_err().kind, DeviceErrorKind::Io);
    }
}
