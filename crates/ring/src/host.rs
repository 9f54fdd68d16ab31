//! The hosts of a ring.

use std::net::SocketAddr;

use crate::{RingError, Topology, limits};

/// Index of a host within one ring.
///
/// Not stable across generations: identify a host by its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct HostId(pub u16);

/// A compute host as the ring describes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Host {
    /// Stable name, unique within a ring: letters, digits and `-_.@`, at most 255 bytes.
    pub name: String,
    /// Address of its peer server: `ip:port`, an IPv6 address in brackets.
    pub address: String,
    /// Share of the circle relative to the other hosts' weights; 0 drains the host.
    pub weight: u32,
    /// Place in the network, for distances.
    pub topology: Topology,
}

impl Host {
    /// Describes a host of unknown topology.
    pub fn new(name: impl Into<String>, address: impl Into<String>, weight: u32) -> Host {
        Host { name: name.into(), address: address.into(), weight, topology: Topology::UNKNOWN }
    }

    /// The same host at another place.
    pub fn with_topology(mut self, topology: Topology) -> Host {
        self.topology = topology;
        self
    }

    /// Checks name and address.
    pub(crate) fn validate(&self) -> Result<(), RingError> {
        let refuse = |reason| Err(RingError::Host { name: self.name.clone(), reason });
        if self.name.is_empty() || self.name.len() > limits::HOST_NAME_LEN_MAX {
            return refuse("a name has 1 to 255 bytes");
        }
        if !self.name.bytes().all(is_name_byte) {
            return refuse("a name has only letters, digits and -_.@");
        }
        if self.address.len() > limits::HOST_ADDRESS_LEN_MAX {
            return refuse("an address has at most 64 bytes");
        }
        match self.address.parse::<SocketAddr>() {
            Ok(address) if address.port() != 0 => Ok(()),
            _ => refuse("an address is ip:port, such as 10.0.0.1:7800 or [fd00::1]:7800"),
        }
    }
}

/// Returns whether a name or a segment of a topology may contain this byte.
pub(crate) fn is_name_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.' | b'@')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn good_hosts_are_accepted() {
        for address in ["10.0.0.1:7800", "[fd00::1]:7800"] {
            assert_eq!(Host::new("compute-1.example", address, 0).validate(), Ok(()));
        }
    }

    #[test]
    fn bad_names_are_refused() {
        for name in ["", "a b", "a/b", "h\u{f6}st", "a\n", &"x".repeat(256)] {
            assert!(Host::new(name, "10.0.0.1:7800", 1).validate().is_err(), "{name:?}");
        }
    }

    #[test]
    fn bad_addresses_are_refused() {
        for address in ["", "10.0.0.1", "10.0.0.1:0", "host:7800", "10.0.0.1:65536", "::1:80"] {
            assert!(Host::new("h", address, 1).validate().is_err(), "{address:?}");
        }
    }
}
