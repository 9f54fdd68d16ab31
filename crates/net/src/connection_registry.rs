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
    open: HashMap<u64, Task>,
    /// True if every connection was cut off and none may begin.
    is_closed: bool,
}

/// State of the task of an open connection.
#[derive(Debug)]
enum Task {
    /// It is about to begin.
    Beginning,
    /// It is to end as soon as it has begun.
    CutOff,
    Begun(AbortHandle),
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
        let Some((connection, signal)) = self.enter() else { return };
        let id = connection.id;
        // Without the lock: where the runtime goes down, the task is dropped at once, by this thread, and
        // its connection leaves the registry.
        let task = start(connection, signal);
        if let Some(cut_off) = self.begun(id, task) {
            cut_off.abort();
        }
    }

    /// Enters a connection before its task begins, so that it cannot leave before it is in, and so that
    /// whoever tells connections to go sees this one or is seen by it.
    fn enter(self: &Arc<Self>) -> Option<(OpenConnection, DrainSignal)> {
        let mut state = self.state.lock();
        if state.is_closed {
            return None;
        }
        let id = state.next;
        state.next += 1;
        state.open.insert(id, Task::Beginning);
        let requested = self.requested.subscribe();
        let born = *requested.borrow();
        drop(state);
        let connection = OpenConnection { registry: Arc::clone(self), id };
        Some((connection, DrainSignal { born, requested }))
    }

    /// Notes that a task has begun; returns it where it was cut off meanwhile.
    fn begun(&self, id: u64, task: AbortHandle) -> Option<AbortHandle> {
        let mut state = self.state.lock();
        // A task that has ended already is not there any more.
        let known = state.open.get_mut(&id)?;
        match std::mem::replace(known, Task::Begun(task.clone())) {
            Task::CutOff => Some(task),
            Task::Beginning | Task::Begun(_) => None,
        }
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
        let tasks = state.open.values_mut().filter_map(Task::cut_off).collect();
        drop(state);
        abort(tasks);
    }

    fn cut_off(&self, ids: &[u64]) {
        let mut state = self.state.lock();
        let tasks = ids.iter().filter_map(|id| state.open.get_mut(id)?.cut_off()).collect();
        drop(state);
        abort(tasks);
    }

    fn is_any_open(&self, ids: &[u64]) -> bool {
        let state = self.state.lock();
        ids.iter().any(|id| state.open.contains_key(id))
    }
}

impl Task {
    /// Returns what is to be aborted; a task that has not begun is, once it has.
    fn cut_off(&mut self) -> Option<AbortHandle> {
        match self {
            Task::Begun(task) => Some(task.clone()),
            Task::Beginning | Task::CutOff => {
                *self = Task::CutOff;
                None
            }
        }
    }
}

/// Ends tasks, for who does not hold the registry's lock: what a task drops may want it.
fn abort(tasks: Vec<AbortHandle>) {
    tasks.iter().for_each(AbortHandle::abort);
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

    /// A task that a runtime refuses since it goes down is dropped by whoever starts it.
    #[test]
    fn test_open_amid_the_end_of_the_runtime_leaves_no_connection() {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let handle = runtime.handle().clone();
        drop(runtime);
        let (tell, told) = std::sync::mpsc::channel();
        std::thread::spawn(move || {
            let registry = ConnectionRegistry::new();
            registry
                .open(|connection, _| handle.spawn(async move { drop(connection) }).abort_handle());
            tell.send(registry.count())
        });
        let count = told.recv_timeout(Duration::from_secs(10)).expect("it waits for itself");
        assert_eq!(count, 0);
    }

    #[tokio::test(start_paused = true)]
    async fn test_cut_off_reaches_a_connection_whose_task_is_about_to_begin() {
        let registry = ConnectionRegistry::new();
        registry.open(|connection, _| {
            registry.cut_off_all();
            let task = tokio::spawn(async move {
                std::future::pending::<()>().await;
                drop(connection);
            });
            task.abort_handle()
        });
        assert!(registry.dismiss(SOON).await, "it is gone without a time-out");
        assert_eq!(registry.count(), 0);
    }
}
