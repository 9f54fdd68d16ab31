//! The open connections of a server: counting them, telling them to go, waiting until they are gone.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::task::AbortHandle;

/// The open connections of a server.
#[derive(Debug)]
pub struct ConnectionRegistry {
    state: Mutex<State>,
    /// Connections of generations before this one are to go.
    requested: watch::Sender<u64>,
    /// Changes whenever a connection is gone.
    gone: watch::Sender<()>,
}

#[derive(Debug, Default)]
struct State {
    next: u64,
    open: HashMap<u64, AbortHandle>,
    /// Whether every connection was cut off and none may begin.
    is_closed: bool,
}

/// Tells a connection when it is to go.
pub struct DrainSignal {
    born: u64,
    requested: watch::Receiver<u64>,
}

impl DrainSignal {
    /// Waits until the connection is to go.
    ///
    /// # Cancel safety
    /// Nothing is lost when dropped.
    pub async fn requested(&mut self) {
        let born = self.born;
        let _ = self.requested.wait_for(|requested| *requested > born).await;
    }
}

/// An open connection; it leaves the registry when this is dropped.
pub struct OpenConnection {
    registry: Arc<ConnectionRegistry>,
    id: u64,
}

impl Drop for OpenConnection {
    fn drop(&mut self) {
        self.registry.state.lock().open.remove(&self.id);
        self.registry.gone.send_replace(());
    }
}

impl ConnectionRegistry {
    /// A registry without connections.
    pub fn new() -> Arc<ConnectionRegistry> {
        Arc::new(ConnectionRegistry {
            state: Mutex::new(State::default()),
            requested: watch::Sender::new(0),
            gone: watch::Sender::new(()),
        })
    }

    /// Number of open connections.
    pub fn count(&self) -> usize {
        self.state.lock().open.len()
    }

    /// Lets `start` begin a task for a new connection, unless all were cut off.
    pub fn open(self: &Arc<Self>, start: impl FnOnce(OpenConnection, DrainSignal) -> AbortHandle) {
        // The lock is held so that the task cannot leave the registry before it is in it, and so that
        // whoever tells connections to go sees this one or is seen by it.
        let mut state = self.state.lock();
        if state.is_closed {
            return;
        }
        let id = state.next;
        state.next += 1;
        let requested = self.requested.subscribe();
        let born = *requested.borrow();
        let signal = DrainSignal { born, requested };
        let task = start(OpenConnection { registry: Arc::clone(self), id }, signal);
        state.open.insert(id, task);
    }

    /// Tells every connection that is open now to go and waits until all are gone; those that are
    /// left after `timeout` are cut off. Returns whether none was.
    ///
    /// # Cancel safety
    /// Dropping the future leaves the connections draining.
    pub async fn dismiss(&self, timeout: Duration) -> bool {
        let mut gone = self.gone.subscribe();
        let dismissed: Vec<u64> = {
            let state = self.state.lock();
            self.requested.send_modify(|requested| *requested += 1);
            state.open.keys().copied().collect()
        };
        let all_gone = async {
            while self.is_any_open(&dismissed) {
                let _ = gone.changed().await; // the sender lives as long as this
            }
        };
        if tokio::time::timeout(timeout, all_gone).await.is_ok() {
            return true;
        }
        self.cut_off(&dismissed);
        while self.is_any_open(&dismissed) {
            let _ = gone.changed().await;
        }
        false
    }

    /// Ends every connection at once, and begins no other one.
    pub fn cut_off_all(&self) {
        let mut state = self.state.lock();
        state.is_closed = true;
        state.open.values().for_each(AbortHandle::abort);
    }

    fn cut_off(&self, ids: &[u64]) {
        let state = self.state.lock();
        ids.iter().filter_map(|id| state.open.get(id)).for_each(AbortHandle::abort);
    }

    fn is_any_open(&self, ids: &[u64]) -> bool {
        let state = self.state.lock();
        ids.iter().any(|id| state.open.contains_key(id))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SOON: Duration = Duration::from_secs(1);

    /// Opens a connection that goes when it is told to, or never.
    fn open(registry: &Arc<ConnectionRegistry>, is_willing: bool) {
        registry.open(|entry, mut drain| {
            let task = tokio::spawn(async move {
                drain.requested().await;
                if !is_willing {
                    std::future::pending::<()>().await;
                }
                drop(entry);
            });
            task.abort_handle()
        });
    }

    #[tokio::test(start_paused = true)]
    async fn test_dismiss_waits_for_those_that_go_and_cuts_off_the_others() {
        let registry = ConnectionRegistry::new();
        open(&registry, true);
        assert!(registry.dismiss(SOON).await);
        open(&registry, true);
        open(&registry, false);
        assert_eq!(registry.count(), 2);
        assert!(!registry.dismiss(SOON).await);
        assert_eq!(registry.count(), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn test_dismiss_leaves_those_that_are_opened_meanwhile() {
        let registry = ConnectionRegistry::new();
        open(&registry, false);
        let (dismissing, other) = (Arc::clone(&registry), Arc::clone(&registry));
        let dismissed = tokio::spawn(async move { dismissing.dismiss(SOON).await });
        tokio::task::yield_now().await;
        open(&other, true);
        assert!(!dismissed.await.unwrap());
        assert_eq!(registry.count(), 1, "born after the request");
    }

    #[tokio::test(start_paused = true)]
    async fn test_cut_off_all_ends_everything_for_good() {
        let registry = ConnectionRegistry::new();
        open(&registry, false);
        registry.cut_off_all();
        open(&registry, true);
        assert!(registry.dismiss(SOON).await);
        assert_eq!(registry.count(), 0);
    }
}
