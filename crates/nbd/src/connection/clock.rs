//! The instants that a connection's timeouts count from.

use std::task::{Context, Poll};

use tokio::time::Instant;

use super::Timer;
use crate::{CloseReason, ServerConfig};

pub(super) struct Clock {
    timer: Option<Timer>,
    /// Since when a part of a request waits for its rest.
    pub(super) partial: Option<Instant>,
    /// Since when nothing of the output can be sent.
    pub(super) blocked: Option<Instant>,
    /// Earliest begin of the request at hand, by the export's rates.
    pub(super) throttled: Option<Instant>,
}

impl Clock {
    pub(super) fn new() -> Clock {
        Clock { timer: None, partial: None, blocked: None, throttled: None }
    }

    /// Waits for what is due first: `Ready` with a reason when a timeout expired, `Ready(None)` when
    /// a throttled request may begin.
    pub(super) fn poll(
        &mut self,
        cx: &mut Context<'_>,
        config: &ServerConfig,
    ) -> Poll<Option<CloseReason>> {
        loop {
            let Some((due, reason)) = self.next_due(config) else { return Poll::Pending };
            // An earlier alarm stays: finding nothing due then costs less than setting it each time.
            match &mut self.timer {
                Some(timer) if timer.deadline() <= due && !timer.is_elapsed() => {}
                Some(timer) => timer.as_mut().reset(due),
                none => *none = Some(Box::pin(tokio::time::sleep_until(due))),
            }
            if let Some(timer) = &mut self.timer
                && timer.as_mut().poll(cx).is_pending()
            {
                return Poll::Pending;
            }
            if Instant::now() < due {
                continue;
            }
            if reason.is_none() {
                self.throttled = None;
            }
            return Poll::Ready(reason);
        }
    }

    fn next_due(&self, config: &ServerConfig) -> Option<(Instant, Option<CloseReason>)> {
        let partial =
            self.partial.map(|at| (at + config.read_timeout, Some(CloseReason::ReadStalled)));
        let blocked =
            self.blocked.map(|at| (at + config.write_timeout, Some(CloseReason::WriteStalled)));
        let throttled = self.throttled.map(|at| (at, None));
        [partial, blocked, throttled].into_iter().flatten().min_by_key(|(due, _)| *due)
    }
}
