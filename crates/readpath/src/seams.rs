//! The outside of a read path: what it reads from.

use std::sync::Arc;

use acstor_ring::RingHandle;
use acstor_runclock::RunClock;

use crate::{LocalStore, OriginSource, PeerSource};

/// Sources and stores of a read path.
#[derive(Clone)]
pub struct Seams {
    /// This host's chunk store.
    pub store: Arc<dyn LocalStore>,
    /// The other hosts.
    pub peers: Arc<dyn PeerSource>,
    /// The origin.
    pub origin: Arc<dyn OriginSource>,
    /// The rings in use; shared with whoever sets them.
    pub rings: Arc<RingHandle>,
    /// The running time of the runtime, by which others are late; best the same as of `peers`.
    pub clock: RunClock,
}
