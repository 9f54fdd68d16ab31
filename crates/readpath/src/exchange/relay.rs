//! Passing the order of an image on to those that hang on this host.

use std::sync::Arc;
use std::time::Duration;

use acstor_peer::exchange::{HintRole, Hints};
use acstor_selection::Moment;
use acstor_selection::exchange::{Batch, HintLog};
use acstor_types::DiskId;
use tokio::sync::Notify;
use tokio::time::sleep;

use crate::exchange::Exchange;

/// Time between two looks at who still takes part.
const TEND_INTERVAL: Duration = Duration::from_secs(1);
/// Least wait between two looks for a batch.
const WAIT_MIN: Duration = Duration::from_millis(1);

/// An order that is passed on.
pub(super) trait Relay: Send + Sync + 'static {
    /// The image.
    fn disk(&self) -> DiskId;

    /// The number of the learning, and what `with` makes of its order.
    fn with_log<R>(&self, with: impl FnOnce(&mut HintLog) -> R) -> (u64, R);

    /// Told of every hint and every hearer that comes.
    fn wake(&self) -> &Notify;

    /// Forgets who is gone; returns whether there is nothing to pass on any more.
    fn tend(&self, now: Moment) -> bool;
}

impl Exchange {
    /// Passes an order on until there is nothing to pass on any more.
    pub(super) async fn relay<R: Relay>(self: &Arc<Self>, relay: &Arc<R>) {
        loop {
            let woken = relay.wake().notified();
            tokio::pin!(woken);
            woken.as_mut().enable();
            let now = self.now();
            if relay.tend(now) {
                return;
            }
            let (epoch, batches) = relay.with_log(|log| log.due(now));
            for batch in batches {
                let (exchange, relay) = (self.clone(), relay.clone());
                let passed = async move { exchange.pass_on(&*relay, epoch, batch).await };
                self.runtime.spawn(passed);
            }
            let (_, due) = relay.with_log(|log| log.next_due(now));
            let wait = due.map_or(TEND_INTERVAL, |due| due.since(now).max(WAIT_MIN));
            tokio::select! {
                () = woken => {}
                () = sleep(wait) => {}
            }
        }
    }

    /// Sends one batch; who does not answer is told nothing any more, and joins anew when it comes back.
    async fn pass_on<R: Relay>(&self, relay: &R, epoch: u64, batch: Batch) {
        let Batch { to, first, hints } = batch;
        let told = match self.directory.host(to) {
            Some(target) => {
                let (disk_id, role, sender) = (relay.disk(), HintRole::Order, self.own);
                let hints = Hints { disk_id, epoch, sender, first, role, hints };
                self.tell(&target, hints).await.ok()
            }
            None => None,
        };
        let now = self.now();
        relay.with_log(|log| match told {
            Some(known) => log.heard(to, known, now),
            None => log.unsubscribe(to),
        });
        relay.wake().notify_one();
    }
}
