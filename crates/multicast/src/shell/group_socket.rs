//! The socket of a group.

use std::future::Future;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use socket2::{Domain, Protocol, Socket, Type};
use tokio::net::UdpSocket;

use crate::wire::is_local_group;

/// Bytes of the receiving socket's buffer: what comes in 8 ms on 10 Gbit/s. The system may grant less.
const RECEIVE_BUFFER_BYTES: usize = 8 << 20;

/// A group, and the way to it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupConfig {
    /// The group and its port.
    pub group: SocketAddr,
    /// Address of this host on the network of the group (IPv4).
    pub interface: Ipv4Addr,
    /// Index of the interface on the network of the group (IPv6); 0: the system's choice.
    pub interface_index: u32,
}

impl GroupConfig {
    /// Returns whether the group stays in the network segment.
    pub fn is_local(&self) -> bool {
        is_local_group(self.group.ip())
    }
}

/// A group that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum GroupError {
    /// Not a group that stays in this network segment.
    #[error(
        "{group} is no multicast address that stays in the network segment; set [preload] \
         multicast_group to one of 239.0.0.0/8 or ff02::/16"
    )]
    Scope {
        /// The address.
        group: IpAddr,
    },
    /// The system refuses.
    #[error("joining the multicast group {group}: {source}; check [preload] multicast_interface")]
    Io {
        /// The group.
        group: SocketAddr,
        /// The reason.
        source: io::Error,
    },
}

/// Datagrams to and from a group.
///
/// Real ([`UdpGroup`]), and in tests in memory with loss, disorder and doubles.
pub trait Datagrams: Send + Sync + 'static {
    /// Sends a datagram to the group.
    ///
    /// # Errors
    /// The system's.
    fn send(&self, datagram: &[u8]) -> impl Future<Output = io::Result<()>> + Send;

    /// Receives one; returns its length. What is longer than the buffer is cut.
    ///
    /// # Errors
    /// The system's.
    ///
    /// # Cancel safety
    /// Nothing is lost when dropped.
    fn receive(&self, buffer: &mut [u8]) -> impl Future<Output = io::Result<usize>> + Send;
}

/// A socket of a group. Datagrams go no further than the network segment: their TTL is 1.
#[derive(Debug)]
pub struct UdpGroup {
    socket: UdpSocket,
    group: SocketAddr,
}

impl UdpGroup {
    /// Opens a socket that sends to the group.
    ///
    /// # Errors
    /// [`GroupError`].
    pub fn sender(config: &GroupConfig) -> Result<UdpGroup, GroupError> {
        UdpGroup::open(config, |socket| match config.group.ip() {
            IpAddr::V4(_) => socket.bind(&SocketAddr::new(config.interface.into(), 0).into()),
            IpAddr::V6(_) => socket.bind(&SocketAddr::new(Ipv6Addr::UNSPECIFIED.into(), 0).into()),
        })
    }

    /// Opens a socket that hears the group; several of a host may.
    ///
    /// # Errors
    /// [`GroupError`].
    pub fn receiver(config: &GroupConfig) -> Result<UdpGroup, GroupError> {
        UdpGroup::open(config, |socket| {
            socket.set_reuse_address(true)?;
            // The system may grant less; what it drops is repaired by the ring.
            let _ = socket.set_recv_buffer_size(RECEIVE_BUFFER_BYTES);
            // Bound to the group, so that nothing else on this port is heard.
            socket.bind(&config.group.into())?;
            match config.group.ip() {
                IpAddr::V4(group) => socket.join_multicast_v4(&group, &config.interface),
                IpAddr::V6(group) => socket.join_multicast_v6(&group, config.interface_index),
            }
        })
    }

    fn open(
        config: &GroupConfig,
        bind: impl FnOnce(&Socket) -> io::Result<()>,
    ) -> Result<UdpGroup, GroupError> {
        let group = config.group;
        if !is_local_group(group.ip()) {
            return Err(GroupError::Scope { group: group.ip() });
        }
        let opened = (|| {
            let domain = Domain::for_address(group);
            let socket = Socket::new(domain, Type::DGRAM, Some(Protocol::UDP))?;
            socket.set_nonblocking(true)?;
            match group {
                SocketAddr::V4(_) => {
                    socket.set_multicast_if_v4(&config.interface)?;
                    socket.set_multicast_ttl_v4(1)?;
                    // Hosts of one machine hear each other, as in tests.
                    socket.set_multicast_loop_v4(true)?;
                }
                SocketAddr::V6(_) => {
                    socket.set_multicast_if_v6(config.interface_index)?;
                    socket.set_multicast_hops_v6(1)?;
                    socket.set_multicast_loop_v6(true)?;
                }
            }
            bind(&socket)?;
            UdpSocket::from_std(socket.into())
        })();
        let socket = opened.map_err(|source| GroupError::Io { group, source })?;
        Ok(UdpGroup { socket, group })
    }
}

impl Datagrams for UdpGroup {
    async fn send(&self, datagram: &[u8]) -> io::Result<()> {
        self.socket.send_to(datagram, self.group).await.map(|_| ())
    }

    async fn receive(&self, buffer: &mut [u8]) -> io::Result<usize> {
        self.socket.recv(buffer).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(group: &str) -> GroupConfig {
        let group = group.parse().unwrap();
        GroupConfig { group, interface: Ipv4Addr::LOCALHOST, interface_index: 0 }
    }

    #[tokio::test]
    async fn test_sender_a_group_that_routers_forward_is_refused() {
        for group in ["224.0.1.1:7070", "10.0.0.1:7070", "[ff0e::1]:7070"] {
            let error = UdpGroup::sender(&config(group)).unwrap_err();
            assert!(matches!(error, GroupError::Scope { .. }), "{error}");
        }
    }

    #[tokio::test]
    async fn test_receive_a_datagram_of_the_group_over_the_loopback() {
        let config = config("239.255.70.99:17071");
        let (Ok(receiver), Ok(sender)) = (UdpGroup::receiver(&config), UdpGroup::sender(&config))
        else {
            return; // a machine without multicast on its loopback
        };
        if sender.send(b"here").await.is_err() {
            return; // as above
        }
        let mut buffer = [0; 64];
        let limit = std::time::Duration::from_secs(30);
        let len =
            tokio::time::timeout(limit, receiver.receive(&mut buffer)).await.unwrap().unwrap();
        assert_eq!(&buffer[..len], b"here");
    }
}
