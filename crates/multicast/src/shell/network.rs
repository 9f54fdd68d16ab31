//! Sockets of groups, as a host opens them.

use super::group_socket::{Datagrams, GroupConfig, GroupError, UdpGroup};

/// Way to open sockets of a group.
///
/// Real ([`UdpNetwork`]), and in tests in memory.
pub trait Network: Send + Sync + 'static {
    /// Its sockets.
    type Socket: Datagrams;

    /// Opens a socket that sends to a group.
    ///
    /// # Errors
    /// [`GroupError`].
    fn sender(&self, config: &GroupConfig) -> Result<Self::Socket, GroupError>;

    /// Opens a socket that hears a group.
    ///
    /// # Errors
    /// [`GroupError`].
    fn receiver(&self, config: &GroupConfig) -> Result<Self::Socket, GroupError>;
}

/// The network of this host.
#[derive(Clone, Copy, Debug)]
pub struct UdpNetwork;

impl Network for UdpNetwork {
    type Socket = UdpGroup;

    fn sender(&self, config: &GroupConfig) -> Result<UdpGroup, GroupError> {
        UdpGroup::sender(config)
    }

    fn receiver(&self, config: &GroupConfig) -> Result<UdpGroup, GroupError> {
        UdpGroup::receiver(config)
    }
}
