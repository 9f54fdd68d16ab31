//! Giving up reads whose reader was killed.
//!
//! The kernel tells of a signal to a thread that waits for us by INTERRUPT. A disk read is not to
//! fail because of just any signal (QEMU and applications take EINTR from a regular file for an
//! error), so the answer is still awaited. Only when the reader has SIGKILL pending the read is
//! given up: else libvirt could not get rid of a guest whose origin is gone until the deadline.

use std::collections::HashMap;
use std::fs;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::Notify;

/// How often an interrupted reader is looked at.
const WATCH_INTERVAL: Duration = Duration::from_millis(100);

#[derive(Debug)]
struct Waiting {
    pid: u32,
    killed: Arc<Notify>,
}

/// The reads that wait, by the number of their request.
#[derive(Debug, Default)]
pub(crate) struct WaitingReads(Mutex<HashMap<u64, Waiting>>);

impl WaitingReads {
    /// Adds a read; the result is notified when its reader is killed.
    pub(crate) fn insert(&self, unique: u64, pid: u32) -> Arc<Notify> {
        let killed = Arc::new(Notify::new());
        self.0.lock().insert(unique, Waiting { pid, killed: killed.clone() });
        killed
    }

    pub(crate) fn remove(&self, unique: u64) {
        self.0.lock().remove(&unique);
    }

    /// Starts watching the reader of an interrupted request. Unknown requests are none that wait.
    pub(crate) fn interrupt(self: &Arc<Self>, runtime: &tokio::runtime::Handle, unique: u64) {
        if self.0.lock().contains_key(&unique) {
            runtime.spawn(self.clone().watch(unique));
        }
    }

    async fn watch(self: Arc<Self>, unique: u64) {
        loop {
            // The kernel sends one INTERRUPT per request, and a later SIGKILL sends none.
            let pid = match self.0.lock().get(&unique) {
                Some(waiting) => waiting.pid,
                None => return,
            };
            if is_killed(pid) {
                if let Some(waiting) = self.0.lock().get(&unique) {
                    waiting.killed.notify_one();
                }
                return;
            }
            tokio::time::sleep(WATCH_INTERVAL).await;
        }
    }
}

/// Returns whether a thread has SIGKILL pending.
fn is_killed(pid: u32) -> bool {
    fs::read_to_string(format!("/proc/{pid}/status")).is_ok_and(|text| has_pending_kill(&text))
}

fn has_pending_kill(status: &str) -> bool {
    let kill = 1 << (libc::SIGKILL - 1);
    status
        .lines()
        .filter_map(|line| line.strip_prefix("SigPnd:").or(line.strip_prefix("ShdPnd:")))
        .filter_map(|mask| u64::from_str_radix(mask.trim(), 16).ok())
        .any(|mask| mask & kill != 0)
}

#[cfg(test)]
mod tests {
    use super::has_pending_kill;

    #[test]
    fn only_sigkill_counts() {
        let text =
            |own: &str, shared: &str| format!("Name:\tx\nSigPnd:\t{own}\nShdPnd:\t{shared}\n");
        let (none, kill, term) = ("0000000000000000", "0000000000000100", "0000000000004000");
        assert!(!has_pending_kill(&text(none, none)));
        assert!(!has_pending_kill(&text(term, term)));
        assert!(has_pending_kill(&text(kill, none)));
        assert!(has_pending_kill(&text(none, kill)));
        assert!(!has_pending_kill("SigPnd:\tnonsense\n"));
    }
}
