//! The peers over the network.

use acstor_peer::exchange::{HintedFuture, Hints, Join, JoinFuture};
use acstor_peer::{ChunkRequest, ClassWatch, PeerClient, Told};
use acstor_types::Digest;
use tokio::time::Instant;

use crate::{HoldsFuture, PeerFuture, PeerSource};

impl PeerSource for PeerClient {
    fn fetch(
        &self,
        address: &str,
        request: ChunkRequest,
        class: ClassWatch,
        deadline: Instant,
    ) -> PeerFuture {
        let (client, address) = (self.clone(), address.to_owned());
        Box::pin(
            async move { PeerClient::fetch(&client, &address, request, class, deadline).await },
        )
    }

    fn holds(&self, address: &str, digests: Vec<Digest>, deadline: Instant) -> HoldsFuture {
        let (client, address) = (self.clone(), address.to_owned());
        Box::pin(async move { PeerClient::holds(&client, &address, &digests, deadline).await })
    }

    fn told(&self, address: &str) -> Option<Told> {
        PeerClient::told(self, address)
    }

    fn join(&self, address: &str, join: Join, deadline: Instant) -> JoinFuture {
        let (client, address) = (self.clone(), address.to_owned());
        Box::pin(async move { PeerClient::join(&client, &address, join, deadline).await })
    }

    fn hint(&self, address: &str, hints: Hints, deadline: Instant) -> HintedFuture {
        let (client, address) = (self.clone(), address.to_owned());
        Box::pin(async move { PeerClient::hint(&client, &address, hints, deadline).await })
    }
}
