//! A fetch under way, which ends with its task.

use std::sync::Arc;

use acstor_selection::Fetch;

use crate::steering::Steering;
use crate::steering::peer_table::Peer;

/// The source of a fetch.
pub(crate) enum FetchFrom {
    Peer(Arc<Peer>),
    Origin,
}

/// One fetch under way. Dropped without an answer it counts with the time so far, as a lower bound.
pub(crate) struct Underway {
    steering: Arc<Steering>,
    source: FetchFrom,
    fetch: Fetch,
    is_answered: bool,
}

impl Underway {
    pub(super) fn new(steering: Arc<Steering>, source: FetchFrom, fetch: Fetch) -> Underway {
        Underway { steering, source, fetch, is_answered: false }
    }

    /// Notes that the chunk came.
    pub(crate) fn answered(mut self) {
        self.is_answered = true;
    }
}

impl Drop for Underway {
    fn drop(&mut self) {
        let (fetch, is_answered, now) = (self.fetch, self.is_answered, self.steering.now());
        match &self.source {
            FetchFrom::Peer(peer) => peer.health().end(fetch, is_answered, now),
            FetchFrom::Origin => self.steering.selector.lock().end_origin(fetch, is_answered, now),
        }
    }
}
