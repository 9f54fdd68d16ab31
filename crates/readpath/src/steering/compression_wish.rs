//! When a compressed answer is welcome: where bytes are what this host waits for.
//!
//! Compression costs both ends some tenths of a millisecond for a chunk and halves what goes over the
//! wire. It pays where a chunk takes milliseconds: over this host's own link when all its sources are
//! slow, or from a peer that is slow beside the others. A link that nothing else fills is faster
//! without it, so nobody is asked there.

use crate::fetch::sources::Sources;
use crate::steering::peer_health::PeerHealth;

impl Sources {
    /// Whether the peer may compress its answer.
    pub(crate) fn welcomes_compressed(&self, peer: &PeerHealth) -> bool {
        let is_welcome = self.config.compress_slow
            && (self.sources_now(self.clock.now()).is_own_link_slow
                || self.is_peer_loaded(peer)
                || self.is_slow_beside_others(peer));
        if is_welcome {
            self.metrics.compression_welcomed();
        }
        is_welcome
    }
}
