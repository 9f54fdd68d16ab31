//! Limits that a server grants, each with its allowed range.

use std::sync::Arc;
use std::time::Duration;

use acstor_net::TlsConfig;

use crate::{ExportToken, MemoryBudget, NbdError};

/// Longest payload of a request or an answer, bytes: what clients assume unless told otherwise.
pub const PAYLOAD_MAX: u32 = 32 << 20;

/// Limits that a server grants.
#[derive(Clone, Debug)]
pub struct ServerConfig {
    /// Connections at a time; more are closed at once.
    pub connections_max: usize,
    /// Requests in flight on one connection; beyond, nothing more is read from it.
    pub connection_requests_max: usize,
    /// Bytes of requests and answers in flight on one connection; beyond, nothing more is read.
    pub connection_bytes_max: u64,
    /// Bytes of requests and answers in flight that this server has for itself, whatever others
    /// that share `memory` hold.
    pub export_bytes: u64,
    /// Bytes beyond that of all servers that share this budget; where both are used up, nothing
    /// more is read from the connections that want more.
    pub memory: Arc<MemoryBudget>,
    /// Time for the handshake, TLS included.
    pub handshake_timeout: Duration,
    /// Time for the rest of a request of which a part came.
    pub read_timeout: Duration,
    /// Time for the client to take some of what is sent to it.
    pub write_timeout: Duration,
    /// TLS with the certificates of this host, for TCP; clients show a certificate of the CA.
    pub tls: Option<TlsConfig>,
    /// By which clients call the export, instead of its name. It is not listed then, and clients
    /// that name another or none are refused.
    pub token: Option<ExportToken>,
}

impl ServerConfig {
    /// The defaults, with `memory` for the bytes in flight.
    pub fn new(memory: Arc<MemoryBudget>) -> ServerConfig {
        ServerConfig {
            connections_max: 64,
            connection_requests_max: 256,
            connection_bytes_max: 64 << 20,
            export_bytes: u64::from(PAYLOAD_MAX),
            memory,
            handshake_timeout: Duration::from_secs(15),
            read_timeout: Duration::from_secs(60),
            write_timeout: Duration::from_secs(60),
            tls: None,
            token: None,
        }
    }

    /// Checks every limit against its range.
    ///
    /// # Errors
    /// [`NbdError::Limit`] names the first limit outside its range.
    pub fn validate(&self) -> Result<(), NbdError> {
        let payload = u64::from(PAYLOAD_MAX);
        count("connections_max", self.connections_max as u64, 1, 1 << 16)?;
        count("connection_requests_max", self.connection_requests_max as u64, 1, 1 << 16)?;
        count("connection_bytes_max", self.connection_bytes_max, payload, 1 << 40)?;
        // A request that is larger than both would wait for ever, and one that fits into `memory`
        // alone would wait for others.
        count("export_bytes", self.export_bytes, payload, 1 << 40)?;
        count("memory", self.memory.bytes_max(), payload, 1 << 44)?;
        duration("handshake_timeout", self.handshake_timeout)?;
        duration("read_timeout", self.read_timeout)?;
        duration("write_timeout", self.write_timeout)
    }
}

/// Longest duration of any limit.
const DURATION_MAX: Duration = Duration::from_secs(24 * 3600);

fn count(name: &'static str, value: u64, min: u64, max: u64) -> Result<(), NbdError> {
    if (min..=max).contains(&value) {
        return Ok(());
    }
    Err(NbdError::Limit { name, value, allowed: format!("{min} to {max}") })
}

fn duration(name: &'static str, value: Duration) -> Result<(), NbdError> {
    if value >= Duration::from_millis(1) && value <= DURATION_MAX {
        return Ok(());
    }
    let allowed = format!("1 to {} ms", DURATION_MAX.as_millis());
    let value = u64::try_from(value.as_millis()).unwrap_or(u64::MAX);
    Err(NbdError::Limit { name, value, allowed })
}

#[cfg(test)]
mod tests {
    use super::ServerConfig;
    use crate::{MemoryBudget, NbdError};

    #[test]
    fn test_validate_defaults_are_allowed() {
        ServerConfig::new(MemoryBudget::new(64 << 20)).validate().unwrap();
    }

    #[test]
    fn test_validate_bad_limit_is_named_with_its_range() {
        let config = ServerConfig::new(MemoryBudget::new(1 << 20));
        let error = config.validate().unwrap_err();
        assert!(matches!(error, NbdError::Limit { name: "memory", value: 1_048_576, .. }));
        assert!(error.to_string().contains("33554432 to"), "{error}");

        let mut config = ServerConfig::new(MemoryBudget::new(64 << 20));
        config.connections_max = 0;
        let error = config.validate().unwrap_err();
        assert!(matches!(error, NbdError::Limit { name: "connections_max", .. }));
    }
}
