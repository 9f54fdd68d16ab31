//! Configuration of the peer server and client, with the allowed range of every limit.

use std::time::Duration;

use acstor_net::TlsConfig;
use acstor_selection::limits;
use acstor_types::limits::CHUNK_SIZE_MAX;

use crate::PeerError;

/// Security of connections.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Security {
    /// TLS 1.3; both sides show a certificate of the cloud's CA.
    Tls(TlsConfig),
    /// No encryption and no authentication: for the demo and for networks that have their own.
    Plain,
}

/// Limits of a [`crate::PeerServer`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerLimits {
    /// Connections that said HELLO, at a time: beyond, the one that has been idle for longest makes room.
    pub connections_max: usize,
    /// Connections that have not said HELLO, at a time: beyond, the oldest of the address with most of them
    /// is closed.
    pub handshakes_max: usize,
    /// Connections of one address that have not said HELLO, at a time.
    pub address_handshakes_max: usize,
    /// Requests in flight, all connections.
    pub requests_in_flight_max: usize,
    /// Bytes of the chunks in flight, all connections: from the request to the last byte written.
    pub bytes_in_flight_max: u64,
    /// Requests in flight on one connection.
    pub connection_requests_max: usize,
    /// Bytes of the chunks in flight on one connection.
    pub connection_bytes_max: u64,
    /// Time for TLS and HELLO.
    pub handshake_timeout: Duration,
    /// A connection on which nothing is asked for this long is closed.
    pub idle_timeout: Duration,
    /// Time for the rest of a frame of which a part came.
    pub read_timeout: Duration,
    /// Time for the other side to take one frame.
    pub write_timeout: Duration,
    /// Longest deadline that a request may ask for; longer ones are cut.
    pub deadline_max: Duration,
    /// Chunks compressed at a time for peers that welcome it; 0: none.
    pub compressions_max: usize,
    /// Bytes of the chunks that are compressed or wait for it; what is beyond goes out as it is.
    pub compression_bytes_max: u64,
    /// Bytes of compressed chunks that are kept in memory for the next who ask for them; 0: none.
    pub compressed_forms_bytes_max: u64,
    /// Connections that write answers at a time, in the order of their classes; the others wait. Few: an
    /// urgent answer waits for one of them. More than one: while one connection waits for its receiver's
    /// acknowledgements others fill the link.
    pub send_slots_max: usize,
    /// Bytes of the answers that a connection writes in its turn; one answer may be more. One chunk of the
    /// default size: small ones share a turn and its cost.
    pub send_slot_bytes: usize,
    /// Time in its turn after which a connection no longer counts, and others write as well; a multiple of
    /// what is typical where that is longer. Well above a chunk's time on a link of 1 Gbit/s, 0.5 ms, and
    /// below what a guest notices.
    pub send_slot_time: Duration,
    /// Time after which one preload is sent though more urgent answers wait: it is bounded, not starved.
    pub preload_interval: Duration,
    /// Bytes that a connection's socket, and TLS above it, may each hold and not have sent: no order
    /// reaches them any more. Two TLS records, enough for the next write to come in time.
    pub unsent_bytes_max: usize,
}

impl Default for ServerLimits {
    fn default() -> ServerLimits {
        ServerLimits {
            connections_max: 4096,
            handshakes_max: 1024,
            address_handshakes_max: 64,
            requests_in_flight_max: 4096,
            bytes_in_flight_max: 256 << 20,
            connection_requests_max: 256,
            connection_bytes_max: 32 << 20,
            handshake_timeout: Duration::from_secs(5),
            idle_timeout: Duration::from_secs(120),
            read_timeout: Duration::from_secs(10),
            write_timeout: Duration::from_secs(10),
            deadline_max: Duration::from_secs(60),
            compressions_max: 2,
            compression_bytes_max: 4 << 20,
            compressed_forms_bytes_max: 32 << 20,
            send_slots_max: 4,
            send_slot_bytes: 64 << 10,
            send_slot_time: Duration::from_millis(5),
            preload_interval: Duration::from_secs(1),
            unsent_bytes_max: 32 << 10,
        }
    }
}

/// Limits that a [`crate::PeerClient`] keeps to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientLimits {
    /// Connections to one peer; more than one is opened only under load.
    pub connections_per_peer_max: usize,
    /// Fetches in flight to one peer; the next ones wait for a slot.
    pub requests_in_flight_max: usize,
    /// Fetches that wait for a slot of one peer; the next ones fail at once.
    pub waiting_max: usize,
    /// Time for TCP, TLS and HELLO.
    pub connect_timeout: Duration,
    /// A connection that is not used for this long is closed.
    pub idle_timeout: Duration,
    /// Silence after which a peer that owes answers is sent a PING.
    pub probe_after: Duration,
    /// Silence after the PING after which the connection is given up.
    pub probe_timeout: Duration,
    /// Time that a peer is down after its first failure; doubles with each further one.
    pub backoff_min: Duration,
    /// Longest time that a peer is down before it is tried again.
    pub backoff_max: Duration,
    /// Peers known at a time.
    pub peers_max: usize,
}

impl Default for ClientLimits {
    fn default() -> ClientLimits {
        ClientLimits {
            connections_per_peer_max: 4,
            requests_in_flight_max: 64,
            waiting_max: 4096,
            connect_timeout: Duration::from_secs(2),
            idle_timeout: Duration::from_secs(60),
            probe_after: Duration::from_secs(1),
            probe_timeout: Duration::from_secs(2),
            backoff_min: limits::CONNECTION_OPEN_MIN,
            backoff_max: limits::CONNECTION_OPEN_MAX,
            peers_max: 65_536,
        }
    }
}

/// Configuration of one host's server and client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PeerConfig {
    /// Security of connections: plain, or TLS.
    pub security: Security,
    /// True if the server lets in hosts of the ring only, by their certificates; see
    /// [`crate::PeerServer::set_members`].
    pub members_only: bool,
    /// Limits of the server.
    pub server: ServerLimits,
    /// Limits of the client.
    pub client: ClientLimits,
}

impl PeerConfig {
    /// Returns the default limits with `security`.
    pub fn new(security: Security) -> PeerConfig {
        PeerConfig {
            security,
            members_only: true,
            server: ServerLimits::default(),
            client: ClientLimits::default(),
        }
    }

    /// Checks every limit against its range.
    ///
    /// # Errors
    /// [`PeerError::Limit`] names the first limit outside its range.
    pub fn validate(&self) -> Result<(), PeerError> {
        self.server.validate()?;
        self.client.validate()
    }
}

/// Longest duration of any limit.
const DURATION_MAX: Duration = Duration::from_secs(24 * 3600);

impl ServerLimits {
    pub(crate) fn validate(&self) -> Result<(), PeerError> {
        let chunk = u64::from(CHUNK_SIZE_MAX);
        count("connections_max", self.connections_max as u64, 1, 1 << 20)?;
        count("handshakes_max", self.handshakes_max as u64, 1, 1 << 16)?;
        count("address_handshakes_max", self.address_handshakes_max as u64, 1, 1 << 16)?;
        count("requests_in_flight_max", self.requests_in_flight_max as u64, 1, 1 << 24)?;
        count("bytes_in_flight_max", self.bytes_in_flight_max, chunk, 1 << 40)?;
        count("connection_requests_max", self.connection_requests_max as u64, 1, 1 << 16)?;
        count("connection_bytes_max", self.connection_bytes_max, chunk, 1 << 40)?;
        duration("handshake_timeout", self.handshake_timeout)?;
        duration("idle_timeout", self.idle_timeout)?;
        duration("read_timeout", self.read_timeout)?;
        duration("write_timeout", self.write_timeout)?;
        duration("deadline_max", self.deadline_max)?;
        count("compressions_max", self.compressions_max as u64, 0, 64)?;
        count("compression_bytes_max", self.compression_bytes_max, chunk, 1 << 28)?;
        count("compressed_forms_bytes_max", self.compressed_forms_bytes_max, 0, 1 << 34)?;
        count("send_slots_max", self.send_slots_max as u64, 1, 1 << 16)?;
        count("send_slot_bytes", self.send_slot_bytes as u64, 1, 1 << 24)?;
        duration("send_slot_time", self.send_slot_time)?;
        duration("preload_interval", self.preload_interval)?;
        count("unsent_bytes_max", self.unsent_bytes_max as u64, 4096, 1 << 24)
    }
}

impl ClientLimits {
    pub(crate) fn validate(&self) -> Result<(), PeerError> {
        count("connections_per_peer_max", self.connections_per_peer_max as u64, 1, 64)?;
        count("requests_in_flight_max", self.requests_in_flight_max as u64, 1, 1 << 16)?;
        count("waiting_max", self.waiting_max as u64, 0, 1 << 24)?;
        duration("connect_timeout", self.connect_timeout)?;
        duration("idle_timeout", self.idle_timeout)?;
        duration("probe_after", self.probe_after)?;
        duration("probe_timeout", self.probe_timeout)?;
        duration("backoff_min", self.backoff_min)?;
        duration("backoff_max", self.backoff_max)?;
        if self.backoff_max < self.backoff_min {
            return Err(PeerError::Limit {
                name: "backoff_max",
                value: milliseconds(self.backoff_max),
                allowed: format!("{} ms (backoff_min) or more", milliseconds(self.backoff_min)),
            });
        }
        count("peers_max", self.peers_max as u64, 1, 1 << 20)
    }
}

fn count(name: &'static str, value: u64, min: u64, max: u64) -> Result<(), PeerError> {
    if (min..=max).contains(&value) {
        return Ok(());
    }
    Err(PeerError::Limit { name, value, allowed: format!("{min} to {max}") })
}

fn duration(name: &'static str, value: Duration) -> Result<(), PeerError> {
    if value >= Duration::from_millis(1) && value <= DURATION_MAX {
        return Ok(());
    }
    let allowed = format!("1 to {} ms", DURATION_MAX.as_millis());
    Err(PeerError::Limit { name, value: milliseconds(value), allowed })
}

fn milliseconds(value: Duration) -> u64 {
    u64::try_from(value.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{PeerConfig, Security};
    use crate::PeerError;

    #[test]
    fn test_validate_defaults_are_allowed() {
        PeerConfig::new(Security::Plain).validate().unwrap();
    }

    #[test]
    fn test_validate_bad_limit_is_named_with_its_range() {
        let mut config = PeerConfig::new(Security::Plain);
        config.server.connections_max = 0;
        let error = config.validate().unwrap_err();
        assert!(matches!(error, PeerError::Limit { name: "connections_max", value: 0, .. }));
        assert!(error.to_string().contains("1 to 1048576"), "{error}");

        let mut config = PeerConfig::new(Security::Plain);
        config.client.backoff_max = Duration::from_millis(1);
        let error = config.validate().unwrap_err();
        assert!(error.to_string().contains("100 ms (backoff_min) or more"), "{error}");
    }
}
