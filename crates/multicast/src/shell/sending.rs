//! The loop of a sender.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until, timeout};

use super::group_socket::Datagrams;
use crate::limits::{LOAD_TIMEOUT, SEND_FAILURES_MAX};
use crate::sender::{Sender, SessionEnd, Step};

/// Chunks on their way to the sender, by index; those that cannot be had are left out.
pub type LoadFuture = Pin<Box<dyn Future<Output = Vec<(u64, Bytes)>> + Send>>;

/// Source of what a session sends.
pub trait ChunkSource: Send + Sync + 'static {
    /// Starts to bring chunks.
    fn load(&self, chunks: Vec<u64>) -> LoadFuture;

    /// Returns whether reads of this host's guests wait.
    fn reads_wait(&self) -> bool;
}

/// A sender that its loop and those who take its members' messages share.
#[derive(Debug)]
pub struct SharedSender {
    sender: Mutex<Sender>,
    zero: Instant,
    changed: Notify,
}

impl SharedSender {
    /// Shares a sender whose times count from `zero`.
    pub fn new(sender: Sender, zero: Instant) -> Arc<SharedSender> {
        Arc::new(SharedSender { sender: Mutex::new(sender), zero, changed: Notify::new() })
    }

    /// Returns what `change` makes of the sender; the loop looks at it at once.
    pub fn with<T>(&self, change: impl FnOnce(&mut Sender, Duration) -> T) -> T {
        let value = change(&mut self.sender.lock(), self.zero.elapsed());
        self.changed.notify_one();
        value
    }
}

/// Sends a session to its end; returns the reason of it.
pub async fn send<D: Datagrams, S: ChunkSource>(
    shared: Arc<SharedSender>,
    group: D,
    source: S,
) -> SessionEnd {
    let (mut loading, mut failures): (Option<(usize, LoadFuture)>, u32) = (None, 0);
    loop {
        let step = next_step(&shared, &source, &mut loading);
        match step {
            Step::Ended(end) => return end,
            Step::Send(datagram) => match group.send(&datagram).await {
                Ok(()) => failures = 0,
                Err(error) => {
                    failures += 1;
                    if failures == SEND_FAILURES_MAX {
                        tracing::warn!(%error, "a multicast session cannot send, and ends");
                        shared.with(|sender, _| sender.stop(SessionEnd::Stopped));
                    }
                }
            },
            Step::Wait(at) => {
                tokio::select! {
                    (asked, chunks) = loaded(&mut loading) => {
                        loading = None;
                        shared.sender.lock().load(asked, chunks);
                    }
                    () = sleep_until(shared.zero + at) => {}
                    () = shared.changed.notified() => {}
                }
            }
        }
    }
}

fn next_step(
    shared: &SharedSender,
    source: &impl ChunkSource,
    loading: &mut Option<(usize, LoadFuture)>,
) -> Step {
    let reads_wait = source.reads_wait();
    let mut sender = shared.sender.lock();
    sender.yield_to_reads(reads_wait);
    let wanted = sender.wanted();
    let step = sender.step(shared.zero.elapsed());
    drop(sender);
    if !wanted.is_empty() {
        *loading = Some((wanted.len(), source.load(wanted)));
    }
    step
}

/// Waits for the chunks that are on their way; for ever where none are.
///
/// # Cancel safety
/// The chunks stay on their way when dropped.
async fn loaded(loading: &mut Option<(usize, LoadFuture)>) -> (usize, Vec<(u64, Bytes)>) {
    match loading {
        Some((asked, chunks)) => {
            let chunks = timeout(LOAD_TIMEOUT, chunks).await;
            (*asked, chunks.unwrap_or_default())
        }
        None => std::future::pending().await,
    }
}
