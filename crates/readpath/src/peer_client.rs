//! The peers over the network.

use acstor_peer::{ChunkRequest, PeerClient};
use tokio::time::Instant;

use crate::{PeerFuture, PeerSource};

impl PeerSource for PeerClient {
    fn fetch(&self, address: &str, request: ChunkRequest, deadline: Instant) -> PeerFuture {
        let (client, address) = (self.clone(), address.to_owned());
        Box::pin(async move { PeerClient::fetch(&client, &address, request, deadline).await })
    }
}
