//! The open connections of a server: which, telling them to go, waiting until they are gone.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::task::AbortHandle;

/// The open connections of a server.
#[derive(Debug)]
pub(crate) struct Roster {
    state: Mutex<State>,
    /// Connections of generations before this one are to go.
    wanted: watch::Sender<u64>,
    /// Changes whenever a connection is gone.
    gone: watch::Sender<()>,
}

#[derive(Debug, Default)]
struct State {
    next: u64,
    open: HashMap<u64, AbortHandle>,
}

/// Tells a connection when it is to go.
pub(crate) struct DrainSignal {
    born: u64,
    wanted: watch::Receiver<u64>,
}

impl DrainSignal {
    /// Waits until the connection is to go.
    pub(crate) async fn requested(&mut self) {
        let born = self.born;
        let _ = self.wanted.wait_for(|wanted| *wanted > born).await;
    }
}

/// Entry of an open connection, which is removed when this is dropped.
pub(crate) struct Entry {
    roster: Arc<Roster>,
    id: u64,
}

impl Drop for Entry {
    fn drop(&mut self) {
        self.roster.state.lock().open.remove(&self.id);
        self.roster.gone.send_replace(());
    }
}

impl Roster {
    pub(crate) fn new() -> Arc<Roster> {
        Arc::new(Roster {
            state: Mutex::new(State::default()),
            wanted: watch::Sender::new(0),
            gone: watch::Sender::new(()),
        })
    }

    pub(crate) fn len(&self) -> usize {
        self.state.lock().open.len()
    }

    /// Lets `start` begin a task for a new connection.
    pub(crate) fn open(self: &Arc<Roster>, start: impl FnOnce(Entry, DrainSignal) -> AbortHandle) {
        // The lock is held so that the task cannot leave the roster before it is on it, and so that
        // whoever tells connections to go sees this one or is seen by it.
        let mut state = self.state.lock();
        let id = state.next;
        state.next += 1;
        let wanted = self.wanted.subscribe();
        let born = *wanted.borrow();
        let signal = DrainSignal { born, wanted };
        let task = start(Entry { roster: Arc::clone(self), id }, signal);
        state.open.insert(id, task);
    }

    /// Tells every connection that is open now to go and waits until all are gone; those that are
    /// left after `timeout` are cut off. Returns whether none was.
    pub(crate) async fn dismiss(&self, timeout: Duration) -> bool {
        let mut gone = self.gone.subscribe();
        let dismissed: Vec<u64> = {
            let state = self.state.lock();
            self.wanted.send_modify(|wanted| *wanted += 1);
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

    /// Ends every connection at once.
    pub(crate) fn cut_off_all(&self) {
        let state = self.state.lock();
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
