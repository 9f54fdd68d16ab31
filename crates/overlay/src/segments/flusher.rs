//! Group commit: whoever waits for the local disk waits for one sync that serves them all.

use std::sync::Arc;

use parking_lot::Mutex;
use tokio::runtime::Handle;
use tokio::sync::oneshot;

use crate::log::LocalLog;
use crate::{DeviceError, DeviceErrorKind, DeviceFuture};

type Waiter = oneshot::Sender<Result<(), DeviceError>>;

/// Those who wait for a sync.
pub(crate) struct Flusher {
    log: Arc<LocalLog>,
    runtime: Handle,
    queue: Mutex<Queue>,
}

#[derive(Default)]
struct Queue {
    waiters: Vec<(u64, Waiter)>,
    is_running: bool,
}

impl Flusher {
    pub(crate) fn new(log: Arc<LocalLog>, runtime: Handle) -> Arc<Flusher> {
        Arc::new(Flusher { log, runtime, queue: Mutex::default() })
    }

    /// Returns once everything up to `sequence` is durable here.
    pub(crate) fn sync(self: &Arc<Self>, sequence: u64) -> DeviceFuture<()> {
        let (sender, receiver) = oneshot::channel();
        let must_start = {
            let mut queue = self.queue.lock();
            queue.waiters.push((sequence, sender));
            !std::mem::replace(&mut queue.is_running, true)
        };
        if must_start {
            let flusher = Arc::clone(self);
            self.runtime.spawn_blocking(move || flusher.run());
        }
        Box::pin(async move { receiver.await.unwrap_or_else(|_| Err(closed())) })
    }

    fn run(&self) {
        loop {
            let waiters = {
                let mut queue = self.queue.lock();
                if queue.waiters.is_empty() {
                    queue.is_running = false;
                    return;
                }
                std::mem::take(&mut queue.waiters)
            };
            let sequence = waiters.iter().map(|(sequence, _)| *sequence).max().unwrap_or(0);
            let result = self
                .log
                .sync(sequence)
                .map_err(|error| DeviceError::new(DeviceErrorKind::Io, error.to_string()));
            for (_, waiter) in waiters {
                // One who does not wait any more needs no answer.
                drop(waiter.send(result.clone()));
            }
        }
    }
}

pub(crate) fn closed() -> DeviceError {
    DeviceError::new(DeviceErrorKind::Shutdown, "the volume is closed")
}
