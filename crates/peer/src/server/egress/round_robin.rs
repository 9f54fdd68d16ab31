//! Round-robin over hosts, and over the connections of each.

use std::collections::{HashMap, VecDeque};
use std::net::IpAddr;

use super::scheduler::PortId;

/// Ports that wait for a slot with answers of one class. Each host has its turn, however many connections
/// it made; so has each of its connections, whatever queues on the others.
#[derive(Debug, Default)]
pub(super) struct RoundRobin {
    hosts: VecDeque<IpAddr>,
    ports: HashMap<IpAddr, VecDeque<PortId>>,
}

impl RoundRobin {
    #[cfg(test)]
    pub(super) fn is_empty(&self) -> bool {
        self.hosts.is_empty()
    }

    /// Adds a port that does not wait yet, as the last of its host; a host that had none waiting is the
    /// last host.
    pub(super) fn push(&mut self, host: IpAddr, port: PortId) {
        let ports = self.ports.entry(host).or_default();
        if ports.is_empty() {
            self.hosts.push_back(host);
        }
        ports.push_back(port);
    }

    /// Takes the port whose turn it is.
    pub(super) fn pop(&mut self) -> Option<PortId> {
        let host = self.hosts.pop_front()?;
        let ports = self.ports.get_mut(&host)?;
        let port = ports.pop_front();
        if ports.is_empty() {
            self.ports.remove(&host);
        } else {
            self.hosts.push_back(host);
        }
        port
    }

    /// Takes out a port, if it waits here.
    pub(super) fn remove(&mut self, host: IpAddr, port: PortId) {
        let Some(ports) = self.ports.get_mut(&host) else { return };
        ports.retain(|each| *each != port);
        if ports.is_empty() {
            self.ports.remove(&host);
            self.hosts.retain(|each| *each != host);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn host(number: u8) -> IpAddr {
        IpAddr::from([10, 0, 0, number])
    }

    fn drain(waiting: &mut RoundRobin) -> Vec<PortId> {
        std::iter::from_fn(|| waiting.pop()).collect()
    }

    #[test]
    fn test_pop_a_host_with_many_connections_has_no_more_turns_than_others() {
        let mut waiting = RoundRobin::default();
        for (address, port) in [(1, 10), (1, 11), (1, 12), (2, 20), (3, 30)] {
            waiting.push(host(address), port);
        }
        assert_eq!(drain(&mut waiting), [10, 20, 30, 11, 12]);
        assert!(waiting.is_empty());
    }

    #[test]
    fn test_remove_keeps_the_turns_of_the_others() {
        let mut waiting = RoundRobin::default();
        for (address, port) in [(1, 10), (2, 20), (2, 21), (3, 30)] {
            waiting.push(host(address), port);
        }
        waiting.remove(host(2), 20);
        waiting.remove(host(3), 30);
        waiting.remove(host(3), 30);
        assert_eq!(drain(&mut waiting), [10, 21]);
        assert!(waiting.ports.is_empty());
    }
}
