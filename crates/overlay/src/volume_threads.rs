//! The threads of an open volume, and what the one does that pushes. The other one is in `compaction`.

use std::sync::Arc;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rand::Rng;

use crate::core::Core;
use crate::push::cadence::PushRate;
use crate::push::{PushError, Wanted};
use crate::regions::durability::DurabilityClass;
use crate::{OverlayError, VolumeState};

/// Longest that the threads sleep without looking around.
pub(crate) const LOOK_AROUND: Duration = Duration::from_secs(1);
const LOOK_AROUND_LEAST: Duration = Duration::from_millis(20);
const RETRY_FIRST: Duration = Duration::from_millis(100);
const RETRY_LAST: Duration = Duration::from_secs(10);
/// Longest pause before a push is tried again when somebody waits who did not at the last attempt.
const RETRY_ASKED: Duration = Duration::from_secs(1);

/// The threads of an open volume.
#[derive(Default)]
pub(crate) struct Threads {
    pub(crate) push: Option<Thread>,
    pub(crate) compaction: Option<Thread>,
}

pub(crate) struct Thread {
    pub(crate) handle: JoinHandle<()>,
    /// Disconnected when the thread ends.
    end: mpsc::Receiver<()>,
}

impl Thread {
    /// Waits for its end; false: it goes on by itself.
    pub(crate) fn has_ended_within(self, patience: Duration) -> bool {
        let has_ended = self.end.recv_timeout(patience) != Err(RecvTimeoutError::Timeout);
        if has_ended {
            drop(self.handle.join());
        }
        has_ended
    }
}

pub(crate) fn spawn(
    name: &'static str,
    core: &Arc<Core>,
    run: fn(&Core),
) -> Result<Thread, OverlayError> {
    let core = Arc::clone(core);
    let (sender, end) = mpsc::channel();
    let builder = std::thread::Builder::new().name(name.to_owned());
    let handle = builder
        .spawn(move || {
            let _ended: mpsc::Sender<()> = sender;
            run(&core);
        })
        .map_err(|error| OverlayError::io(format!("start the thread {name}"), error))?;
    Ok(Thread { handle, end })
}

/// Pushes what is due, until the volume is closed.
pub(crate) fn push_until_closed(core: &Core) {
    let mut rate = PushRate::new(core.config.push_rate);
    let mut retry = RETRY_FIRST;
    while !core.is_closed() {
        let now = Instant::now();
        if core.are_partitions_unknown() {
            core.queue.wait_for_partitions(&core.life, &core.regions, now + LOOK_AROUND);
            continue;
        }
        let wanted = match next_push(core, &rate, now) {
            Ok(wanted) => wanted,
            Err(next) => {
                core.queue.wait_for_push(&core.life, next.min(now + look_around(core)));
                continue;
            }
        };
        if core.state() != VolumeState::Open && core.state() != VolumeState::Frozen {
            core.fail_waiters_with_log();
            core.queue.wait_for_close(&core.life, now + LOOK_AROUND);
            continue;
        }
        let arrivals = core.queue.arrivals();
        match core.push_one(wanted) {
            Ok(bytes) => {
                // What somebody waits for uses nothing of the rate up, or it would starve the rest.
                rate.note(bytes, Instant::now());
                retry = RETRY_FIRST;
                core.note_trouble(None);
            }
            Err(error) => {
                let is_retried = matches!(error, PushError::Retry(_));
                let error = core.push_failed(error);
                tracing::warn!(volume = %core.volume, %error, "push failed");
                if is_retried {
                    let (now, jitter) = (Instant::now(), rand::rng().random_range(0.5..1.0));
                    let earliest = now + retry.min(RETRY_ASKED).mul_f64(jitter);
                    let latest = now + retry.mul_f64(jitter);
                    core.queue.wait_for_retry(&core.life, arrivals, earliest, latest);
                    retry = (retry * 2).min(RETRY_LAST);
                }
            }
        }
    }
}

/// Returns the longest sleep of a push thread: nobody wakes it for the first write of a period.
fn look_around(core: &Core) -> Duration {
    let periods = Arc::clone(&core.log.map().regions);
    let periods = periods.groups().iter().filter(|group| group.class == DurabilityClass::WriteBack);
    let shortest = periods.map(|group| group.period).min().unwrap_or(LOOK_AROUND);
    (shortest / 8).clamp(LOOK_AROUND_LEAST, LOOK_AROUND)
}

/// Returns what is to be pushed now; else the time of the next check.
fn next_push(core: &Core, rate: &PushRate, now: Instant) -> Result<Wanted, Instant> {
    let (is_under_way, paced) = {
        let pusher = core.pusher.lock();
        // What is left is sent at once where writers are held back for it.
        let paced = pusher.paced(now).filter(|_| !core.load.hold_back.is_holding());
        (pusher.is_under_way(), paced)
    };
    let (mut wanted, next_due) = core.wanted(now);
    let latest = next_due.unwrap_or(now + LOOK_AROUND);
    let wait = rate.wait(now);
    wanted.is_held = !wait.is_zero();
    wanted.is_paced = paced.is_some();
    if wanted.asked != 0 {
        return Ok(wanted);
    }
    if wanted.is_held {
        return Err(now + wait);
    }
    match paced {
        Some((next, apart)) if wanted.due & apart == 0 => Err(next.min(latest)),
        _ if wanted.due != 0 || is_under_way => Ok(wanted),
        _ => Err(latest),
    }
}
