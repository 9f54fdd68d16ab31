//! Requests under way whose connection has ended.
//!
//! A client whose connection broke connects again and repeats what was not answered. A write of the
//! old connection that is still under way must not take effect after a newer one of the new
//! connection, so the new one begins when no late response is due.

use std::sync::Arc;

use tokio::sync::watch;

/// The late responses of an export: of requests whose connection has ended.
#[derive(Debug)]
pub(crate) struct LateResponses(watch::Sender<usize>);

impl LateResponses {
    pub(crate) fn new() -> Arc<LateResponses> {
        Arc::new(LateResponses(watch::Sender::new(0)))
    }

    /// Counts an ended connection with requests under way, as long as the result lives.
    pub(crate) fn begin(self: &Arc<LateResponses>) -> LateConnection {
        self.0.send_modify(|count| *count += 1);
        LateConnection(Arc::clone(self))
    }

    /// Waits until there are none.
    pub(crate) async fn none_left(&self) {
        // The sender lives as long as this.
        let _ = self.0.subscribe().wait_for(|count| *count == 0).await;
    }
}

/// An ended connection with requests under way.
#[derive(Debug)]
pub(crate) struct LateConnection(Arc<LateResponses>);

impl Drop for LateConnection {
    fn drop(&mut self) {
        self.0.0.send_modify(|count| *count -= 1);
    }
}
