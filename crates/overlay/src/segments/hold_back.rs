//! Writers that are faster than the origin, held back so that the recovery point is what it says.
//!
//! A batch of write-back counts when it is whole, so with writers faster than the origin each batch
//! would take longer than the one before, without end. What is to be pushed is therefore compared
//! with what the origin takes in the time that is left until the period of the oldest of it is over:
//! the *load*. From a part of it on each write is answered late, in proportion to its length, like
//! what runs out of a leaky bucket; the delay grows smoothly with the load, and where it is as long
//! as the origin needs for the write the load stays where it is. The write itself is in the log at
//! once, and what is there is pushed without waiting for the second half of its period.
//!
//! No answer is late by a time that was fixed when its write came, since an estimate may be wrong, and
//! there is no longest delay, since writers would then be as fast as what they have under way is long.
//! The bucket runs out as fast as the origin is said to be at each moment, and everybody is let go once
//! little is left to push or the origin is away, however much is in the bucket.
//!
//! An origin that is away takes nothing however slowly guests write, and the age of the oldest write
//! grows with time alone. Nobody is held back then.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use crate::limits;

/// Load from which writes are delayed.
const LOAD_FREE: f64 = 0.6;
/// Load that is never to be reached: a rest is left for what is not foreseen.
const LOAD_FULL: f64 = 0.9;
/// Most that a write is delayed, in units of the time that the origin needs for it: whatever the
/// backlog, guests keep a quarter of what the origin takes.
const SHARE_MAX: f64 = 4.0;
/// Least that a write is delayed while a hand-over waits for the backlog to become small, in units
/// of the time that the origin needs for it.
const SHARE_CONVERGING: f64 = 2.0;
/// Delays below this are saved up: timers are no finer.
const DELAY_MIN: Duration = Duration::from_millis(1);
/// Bytes written between two looks at the load, at most.
const LOOK_BYTES: u64 = 1 << 20;
/// An operation on the origin that takes longer is one of an origin that is away.
const AWAY_AFTER: Duration = Duration::from_secs(10);
const MIB: f64 = (1 << 20) as f64;
/// Weight that a sample leaves to those before it.
const FADE: f64 = 0.8;
/// Objects from this size on tell how fast the origin is, bytes; smaller ones tell how long it takes
/// to answer at all, however little it is sent.
const SAMPLE_BYTES: u64 = 256 << 10;
/// Small objects of which the one that was answered first counts.
const LATENCIES: usize = 16;
/// Least share of an object's time that its bytes have taken.
const TRANSFER_LEAST: f64 = 0.25;

/// Something that is to be on the origin at some time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Backlog {
    /// Bytes up to its end, those before it included.
    pub bytes: u64,
    pub deadline: Instant,
}

/// A write in the bucket: answered when as many bytes have run out of it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Held(f64);

/// Holds writers back.
#[derive(Debug, Default)]
pub(crate) struct HoldBack {
    /// Delay of each MiB written, nanoseconds; 0: none.
    nanos_per_mib: AtomicU64,
    since_look: AtomicU64,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// Bytes that the origin took lately, and seconds that it needed for them, without latency.
    taken: (f64, f64),
    /// Seconds in which the origin took small objects lately.
    latencies: VecDeque<f64>,
    /// Since when an operation on the origin is under way.
    begun: Option<Instant>,
    has_failed: bool,
    /// Bytes that have come into the bucket.
    poured: f64,
    /// Bytes that had run out of it at some moment, and that moment.
    drained: f64,
    drained_at: Option<Instant>,
    /// Until when a hand-over waits for the backlog to become small.
    converging_until: Option<Instant>,
}

impl State {
    /// Takes over in how many seconds the origin took an object. A small one would look like a slow
    /// origin, and so would large ones with the time that each of them waits for its answer.
    fn sample(&mut self, bytes: u64, seconds: f64) {
        if bytes < SAMPLE_BYTES {
            self.latencies.truncate(LATENCIES - 1);
            self.latencies.push_front(seconds);
            return;
        }
        let transfer = (seconds - self.latency()).max(seconds * TRANSFER_LEAST);
        let (all, before) = self.taken;
        self.taken = (all * FADE + bytes as f64, before * FADE + transfer);
    }

    fn latency(&self) -> f64 {
        self.latencies.iter().copied().reduce(f64::min).unwrap_or(0.0)
    }

    fn rate(&self) -> Option<f64> {
        let (bytes, seconds) = self.taken;
        let object = limits::LOG_OBJECT_BYTES_MAX as f64;
        (bytes > 0.0).then(|| object / (self.latency() + object * seconds / bytes).max(1e-9))
    }

    /// Lets run out of the bucket what has, up to `now`, at so many nanoseconds for each MiB.
    fn drain(&mut self, now: Instant, nanos_per_mib: u64) {
        let before = self.drained_at.unwrap_or(now);
        // Who comes with an earlier moment has waited for the lock.
        self.drained_at = Some(now.max(before));
        let nanos = now.saturating_duration_since(before).as_nanos() as f64;
        self.drained = match nanos_per_mib {
            0 => self.poured,
            cost => (self.drained + nanos / cost as f64 * MIB).min(self.poured),
        };
    }
}

impl HoldBack {
    /// Notes that something is being sent to the origin.
    pub(crate) fn begin(&self, now: Instant) {
        self.state.lock().begun = Some(now);
    }

    /// Notes how many bytes the origin has taken since [`HoldBack::begin`], or that it failed.
    pub(crate) fn end(&self, now: Instant, taken: Option<u64>) {
        let mut state = self.state.lock();
        let time = state.begun.take().map_or(Duration::ZERO, |begun| now.duration_since(begun));
        let Some(bytes) = taken else {
            state.has_failed = true;
            return;
        };
        state.has_failed = false;
        if bytes > 0 {
            state.sample(bytes, time.as_secs_f64());
        }
    }

    /// Bytes of content per second that the origin takes in large objects, if that is known.
    #[cfg(test)]
    pub(crate) fn rate(&self) -> Option<f64> {
        self.state.lock().rate()
    }

    /// Holds back whoever writes more than half of what the origin takes, until then.
    pub(crate) fn converge(&self, until: Option<Instant>) {
        self.state.lock().converging_until = until;
    }

    /// Counts bytes that were written; returns whether it is time to look at the load.
    pub(crate) fn is_look_due(&self, bytes: u64) -> bool {
        let before = self.since_look.fetch_add(bytes, Ordering::Relaxed);
        if before + bytes < LOOK_BYTES {
            return false;
        }
        self.since_look.store(0, Ordering::Relaxed);
        true
    }

    /// Takes over what there is to push; `rate_max`: no more per second is sent. Returns whether
    /// writers are held back from now on: what is there is then to be pushed without delay.
    pub(crate) fn look(&self, now: Instant, backlogs: &[Backlog], rate_max: Option<u64>) -> bool {
        let (rate, is_away, is_converging) = {
            let state = self.state.lock();
            let is_converging = state.converging_until.is_some_and(|until| now < until);
            let is_hung = state.begun.is_some_and(|begun| now.duration_since(begun) > AWAY_AFTER);
            (state.rate(), state.has_failed || is_hung, is_converging)
        };
        let rate = rate.map(|rate| rate_max.map_or(rate, |most| rate.min(most as f64)).max(1.0));
        let nanos = match rate.filter(|_| !is_away) {
            None => 0.0,
            Some(rate) => {
                let loads = backlogs.iter().map(|backlog| load(backlog, rate, now));
                let mut share = share(loads.fold(0.0, f64::max));
                if is_converging {
                    share = share.max(SHARE_CONVERGING);
                }
                share / rate * MIB * 1e9
            }
        };
        let mut state = self.state.lock();
        let before = self.nanos_per_mib.load(Ordering::Relaxed);
        // What has run out so far did so at the speed of before.
        state.drain(now, before);
        self.nanos_per_mib.store(nanos as u64, Ordering::Relaxed);
        before == 0 && nanos as u64 > 0
    }

    /// Delay of each MiB that is written now.
    pub(crate) fn per_mib(&self) -> Duration {
        Duration::from_nanos(self.nanos_per_mib.load(Ordering::Relaxed))
    }

    /// Returns whether writes are delayed now.
    pub(crate) fn is_holding(&self) -> bool {
        self.nanos_per_mib.load(Ordering::Relaxed) != 0
    }

    /// Takes a write of so many bytes in; `None`: it may be answered now.
    pub(crate) fn hold(&self, now: Instant, bytes: u64) -> Option<Held> {
        if !self.is_holding() {
            return None;
        }
        let held = {
            let mut state = self.state.lock();
            state.drain(now, self.nanos_per_mib.load(Ordering::Relaxed));
            state.poured += bytes as f64;
            Held(state.poured)
        };
        (self.left(now, held) >= DELAY_MIN).then_some(held)
    }

    /// For how long a write is to wait yet, as far as can be said now.
    pub(crate) fn left(&self, now: Instant, held: Held) -> Duration {
        let mut state = self.state.lock();
        let nanos = self.nanos_per_mib.load(Ordering::Relaxed);
        state.drain(now, nanos);
        let bytes = (held.0 - state.drained).max(0.0);
        Duration::from_nanos((bytes / MIB * nanos as f64) as u64)
    }
}

/// Returns the part of what the origin takes until the deadline that is needed; above 1 it cannot
/// be kept.
fn load(backlog: &Backlog, bytes_per_s: f64, now: Instant) -> f64 {
    if backlog.bytes == 0 {
        return 0.0;
    }
    let left = backlog.deadline.saturating_duration_since(now).as_secs_f64();
    backlog.bytes as f64 / bytes_per_s / left.max(1e-3)
}

/// Delay of a write in units of the time that the origin needs for it.
fn share(load: f64) -> f64 {
    if load <= LOAD_FREE {
        return 0.0;
    }
    if load >= LOAD_FULL {
        return SHARE_MAX;
    }
    ((load - LOAD_FREE) / (LOAD_FULL - load)).min(SHARE_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const RATE: f64 = 100e6;
    const MIB: u64 = 1 << 20;

    fn with_rate(now: Instant, rate: f64) -> HoldBack {
        let hold_back = HoldBack::default();
        hold_back.begin(now);
        hold_back.end(now + Duration::from_secs(1), Some(rate as u64));
        hold_back
    }

    fn delay(hold_back: &HoldBack, now: Instant, bytes: u64) -> Option<Duration> {
        hold_back.hold(now, bytes).map(|held| hold_back.left(now, held))
    }

    #[test]
    fn delay_grows_without_a_step() {
        let mut before = 0.0;
        for load in (0..=2000).map(|n| f64::from(n) / 1000.0) {
            let share = share(load);
            assert!(share >= before && share - before < 0.15, "at {load}: {before} to {share}");
            before = share;
        }
        assert_eq!(share(LOAD_FREE), 0.0);
        assert!((share(0.75) - 1.0).abs() < 1e-9, "where writers are as fast as the origin");
        assert_eq!(before, SHARE_MAX);
    }

    #[test]
    fn origin_that_is_away_holds_nobody_back() {
        let now = Instant::now();
        let hold_back = with_rate(now, RATE);
        let late = [Backlog { bytes: 100 * MIB, deadline: now }];
        let later = now + Duration::from_secs(2);
        hold_back.look(later, &late, None);
        assert!(delay(&hold_back, later, MIB).is_some());
        // It hangs.
        hold_back.begin(later);
        hold_back.look(later + AWAY_AFTER + DELAY_MIN, &late, None);
        assert_eq!(delay(&hold_back, later, MIB), None);
        // It says that it is not there.
        hold_back.end(later, None);
        hold_back.look(later, &late, None);
        assert_eq!(delay(&hold_back, later, MIB), None);
        // It is back.
        hold_back.begin(later);
        hold_back.end(later, Some(0));
        hold_back.look(later, &late, None);
        assert!(delay(&hold_back, later, MIB).is_some());
    }

    #[test]
    fn nothing_is_held_before_the_origins_speed_is_known() {
        let (hold_back, now) = (HoldBack::default(), Instant::now());
        hold_back.look(now, &[Backlog { bytes: 1 << 40, deadline: now }], Some(1));
        assert_eq!(delay(&hold_back, now, 1 << 30), None);
    }

    #[test]
    fn looks_are_as_frequent_as_bytes() {
        let hold_back = HoldBack::default();
        let looks = (0..4096).filter(|_| hold_back.is_look_due(4096)).count();
        assert_eq!(looks as u64, 4096 * 4096 / LOOK_BYTES);
    }

    /// A `HoldBack` that has seen objects of so many bytes, each taking a latency, and what an origin
    /// of `bytes_per_s` needs for it.
    fn with_objects(sizes: &[u64], latency: Duration, bytes_per_s: f64) -> HoldBack {
        let (hold_back, mut now) = (HoldBack::default(), Instant::now());
        for size in sizes {
            hold_back.begin(now);
            now += latency + Duration::from_secs_f64(*size as f64 / bytes_per_s);
            hold_back.end(now, Some(*size));
        }
        hold_back
    }

    #[test]
    fn small_objects_of_a_distant_origin_hold_nobody_back() {
        let latency = Duration::from_millis(120);
        let hold_back = with_objects(&[4096; 100], latency, RATE);
        assert_eq!(hold_back.rate(), None, "34 KB/s is no speed of that origin");
        let now = Instant::now();
        hold_back.look(now, &[Backlog { bytes: 100 * MIB, deadline: now }], None);
        assert_eq!(delay(&hold_back, now, MIB), None);
    }

    #[test]
    fn latency_is_not_taken_for_a_slow_origin() {
        let latency = Duration::from_millis(120);
        // What objects of 8 MiB have: 8 MiB in 0.12 s + 0.08 s.
        let object = limits::LOG_OBJECT_BYTES_MAX as f64;
        let truth = object / (0.12 + object / RATE);
        for size in [MIB, 2 * MIB, 8 * MIB] {
            let rate = with_objects(&[4096, size, size, 512, size], latency, RATE).rate().unwrap();
            assert!((truth / 4.0..truth * 1.1).contains(&rate), "{size}: {rate} of {truth}");
        }
        // Large objects end the doubt.
        let sizes = [[256 << 10; 6], [8 * MIB; 6]].concat();
        let rate = with_objects(&sizes, latency, RATE).rate().unwrap();
        assert!((truth * 0.7..truth * 1.1).contains(&rate), "{rate} of {truth}");
    }

    #[test]
    fn slow_origin_is_known_as_slow() {
        for sizes in [vec![256 << 10; 3], vec![512, 256 << 10, 4096, 256 << 10]] {
            let rate = with_objects(&sizes, Duration::from_millis(5), 1e6).rate().unwrap();
            assert!((0.9e6..1.1e6).contains(&rate), "{rate}");
        }
    }

    /// A guest that writes as fast as it is let, 16 writes of so many bytes at a time, over an origin of
    /// `rate`, in virtual time, with the cadence of the push: returns the greatest age of a write that the
    /// origin did not have, and the bytes per second that the guest wrote in the second half.
    fn simulate(rate: f64, period: Duration, demand: f64, write: u64) -> (Duration, f64) {
        let begun = Instant::now();
        let hold_back = with_rate(begun, rate);
        let (mut now, step) = (begun, Duration::from_millis(1));
        // The guest's requests, and when it may send the next one.
        let mut requests = vec![None; 16];
        let mut next_at = begun;
        let (mut dirty, mut oldest) = (0_u64, None::<Instant>);
        let mut batch: Option<(f64, Instant)> = None;
        let (mut worst, mut written) = (Duration::ZERO, 0_u64);
        let rounds = (period.as_millis() * 40) as u64;
        for round in 0..rounds {
            now += step;
            for request in &mut requests {
                let is_answered = |held| hold_back.left(now, held).is_zero();
                while request.is_none_or(is_answered) && next_at <= now {
                    next_at += Duration::from_secs_f64(write as f64 / demand);
                    dirty += write;
                    oldest.get_or_insert(now);
                    written += if round > rounds / 2 { write } else { 0 };
                    if hold_back.is_look_due(write) {
                        let left = batch.map_or(0, |(left, _)| left as u64);
                        let mut backlogs = Vec::new();
                        if let Some((left, oldest)) = batch {
                            let deadline = oldest + period;
                            backlogs.push(Backlog { bytes: left as u64, deadline });
                        }
                        if let Some(oldest) = oldest {
                            let deadline = oldest + period;
                            backlogs.push(Backlog { bytes: left + dirty, deadline });
                        }
                        hold_back.look(now, &backlogs, None);
                    }
                    *request = hold_back.hold(now, write);
                }
            }
            next_at = next_at.max(now);
            if let Some((left, since)) = &mut batch {
                *left -= rate * step.as_secs_f64();
                worst = worst.max(now.duration_since(*since));
                if *left <= 0.0 {
                    batch = None;
                }
            }
            if batch.is_none()
                && let Some(since) = oldest
                && (now.duration_since(since) >= period.mul_f64(0.45) || hold_back.is_holding())
            {
                batch = Some((dirty as f64, since));
                (dirty, oldest) = (0, None);
            }
            worst = worst.max(oldest.map_or(Duration::ZERO, |since| now.duration_since(since)));
        }
        (worst, written as f64 / (step * (rounds / 2) as u32).as_secs_f64())
    }

    fn check_recovery_point(rate: f64, period: Duration, write: u64) {
        for demand in [rate / 2.0, rate, rate * 4.0, rate * 20.0] {
            let (worst, speed) = simulate(rate, period, demand, write);
            // What was under way at a time was written before anybody could be held back for it.
            let at_once = Duration::from_secs_f64(16.0 * write as f64 / rate);
            let most = period.mul_f64(1.05) + at_once;
            assert!(worst <= most, "{worst:?} of {period:?} at {demand} of {rate}");
            let fair = demand.min(rate) * 0.8;
            assert!(speed >= fair, "{speed} of {fair} at {demand} of {rate}, {period:?}");
        }
    }

    #[test]
    fn recovery_point_is_kept_whatever_a_guest_writes() {
        for period in [Duration::from_secs(1), Duration::from_secs(10)] {
            check_recovery_point(RATE, period, 256 << 10);
        }
    }

    /// Writes that a guest has under way at a time, 16 MiB, are a quarter of a minute of that
    /// origin.
    #[test]
    fn recovery_point_is_kept_over_an_origin_that_is_slow() {
        check_recovery_point(1e6, Duration::from_secs(30), 256 << 10);
        check_recovery_point(1e6, Duration::from_secs(60), 1 << 20);
    }

    #[test]
    fn estimate_that_was_wrong_holds_nobody_once_it_is_known() {
        let now = Instant::now();
        let hold_back = HoldBack::default();
        hold_back.begin(now);
        hold_back.end(now + Duration::from_secs(8), Some(MIB));
        let late = [Backlog { bytes: 100 * MIB, deadline: now }];
        hold_back.look(now, &late, None);
        let held = hold_back.hold(now, 16 * MIB).unwrap();
        let left = |at| hold_back.left(at, held).as_secs_f64().round();
        assert_eq!(left(now), 4.0 * 8.0 * 16.0);
        // As fast as it is said to be, until it is found to be another one.
        let later = now + Duration::from_secs(32);
        assert_eq!(left(later), 4.0 * 8.0 * 15.0);
        for _ in 0..100 {
            hold_back.begin(later);
            hold_back.end(later + Duration::from_secs(1), Some(64 * MIB));
        }
        hold_back.look(later, &late, None);
        assert!(left(later) <= 2.0, "{}", left(later));
        // What there was to push has left, or the origin is away.
        hold_back.look(later, &[], None);
        assert_eq!(hold_back.left(later, held), Duration::ZERO);
        hold_back.look(later, &late, None);
        assert_eq!(hold_back.left(later, held), Duration::ZERO, "it was let go");
    }

    #[test]
    fn guest_that_writes_little_is_never_held() {
        let (now, period) = (Instant::now(), Duration::from_secs(30));
        let hold_back = with_rate(now, RATE);
        let backlog = Backlog { bytes: (RATE * 15.0 * 0.5) as u64, deadline: now + period / 2 };
        hold_back.look(now, &[backlog], None);
        assert_eq!(delay(&hold_back, now, MIB), None);
        // But for a hand-over that is to come to an end.
        hold_back.converge(Some(now + period));
        hold_back.look(now, &[backlog], None);
        let seconds = delay(&hold_back, now, 64 * MIB).unwrap().as_secs_f64();
        assert!((seconds - 2.0 * 64.0 * MIB as f64 / RATE).abs() < 1e-3);
    }
}
