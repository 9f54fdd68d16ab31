//! Hosts that may connect at all: those of the ring, and for a while those that left it.
//!
//! A host is a member by its name in the ring or by its address, whichever its certificate holds: the same
//! that a client demands of a server. A host that drains is in the ring, with no share. One whose agent is
//! down leaves the ring though its guests go on to read; it is let in for [`GRACE`] more, and reads from the
//! origin after that. One that has just joined is let in once this host has the ring that it is in: until
//! then it is told so, reads elsewhere, and tries again within seconds.

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};

use parking_lot::RwLock;

use super::certificate::CertificateNames;

/// Time for which a host that left the ring is let in.
pub(crate) const GRACE: Duration = Duration::from_secs(3600);

/// The hosts that may connect. Until a ring is known everybody may who has a certificate.
#[derive(Debug, Default)]
pub struct Members(RwLock<Option<Known>>);

#[derive(Debug, Default)]
struct Known {
    by_name: HashMap<String, Presence>,
    by_address: HashMap<IpAddr, Presence>,
}

/// Since when a host has been out of the ring; `None`: it is in it.
type Presence = Option<Instant>;

impl Members {
    /// Takes the hosts of the ring in use, as name and `ip:port`.
    pub fn set<'a>(&self, hosts: impl IntoIterator<Item = (&'a str, &'a str)>, now: Instant) {
        let mut state = self.0.write();
        let known = state.get_or_insert_default();
        let absent = known.by_name.values_mut().chain(known.by_address.values_mut());
        for left_at in absent {
            left_at.get_or_insert(now);
        }
        for (name, address) in hosts {
            known.by_name.insert(name.to_ascii_lowercase(), None);
            if let Ok(address) = address.parse::<SocketAddr>() {
                known.by_address.insert(address.ip().to_canonical(), None);
            }
        }
        known.by_name.retain(|_, left_at| is_let_in(*left_at, now));
        known.by_address.retain(|_, left_at| is_let_in(*left_at, now));
    }

    /// Returns whether one of a certificate's names is a member's.
    pub fn admit(&self, names: &CertificateNames, now: Instant) -> bool {
        let state = self.0.read();
        let Some(known) = &*state else { return true };
        let is_member = |left_at: Option<&Presence>| left_at.is_some_and(|at| is_let_in(*at, now));
        names
            .addresses
            .iter()
            .any(|address| is_member(known.by_address.get(&address.to_canonical())))
            || names.dns.iter().any(|name| match name.strip_prefix("*.") {
                None => is_member(known.by_name.get(name)),
                Some(domain) => known.by_name.iter().any(|(host, left_at)| {
                    let of_host = host.split_once('.').map(|(_, domain)| domain);
                    of_host == Some(domain) && is_member(Some(left_at))
                }),
            })
    }
}

fn is_let_in(left_at: Presence, now: Instant) -> bool {
    left_at.is_none_or(|at| now.saturating_duration_since(at) < GRACE)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(dns: &[&str], addresses: &[&str]) -> CertificateNames {
        CertificateNames {
            dns: dns.iter().map(|name| (*name).to_owned()).collect(),
            addresses: addresses.iter().map(|address| address.parse().unwrap()).collect(),
        }
    }

    #[test]
    fn test_admit_knows_hosts_by_name_address_and_wildcard() {
        let (members, now) = (Members::default(), Instant::now());
        members.set([("Compute1.example.org", "10.0.0.1:7420"), ("c2", "[fd00::2]:7420")], now);
        for ours in [
            names(&["compute1.example.org"], &[]),
            names(&["other", "c2"], &[]),
            names(&["*.example.org"], &[]),
            names(&[], &["10.0.0.1"]),
            names(&[], &["::ffff:10.0.0.1"]),
            names(&["other"], &["fd00::2"]),
        ] {
            assert!(members.admit(&ours, now), "{ours}");
        }
        for other in [
            names(&[], &[]),
            names(&["compute1", "example.org", "*.org", "*.c2", "*."], &["10.0.0.2", "fd00::1"]),
        ] {
            assert!(!members.admit(&other, now), "{other}");
        }
    }

    #[test]
    fn test_admit_lets_everybody_in_until_a_ring_is_known() {
        let (members, now) = (Members::default(), Instant::now());
        assert!(members.admit(&names(&["any"], &[]), now));
        members.set([], now);
        assert!(!members.admit(&names(&["any"], &[]), now));
    }

    #[test]
    fn test_admit_lets_who_left_in_for_the_grace_and_who_came_back_for_good() {
        let (members, now) = (Members::default(), Instant::now());
        let both = [("stays", "10.0.0.1:1"), ("goes", "10.0.0.2:1")];
        let second = Duration::from_secs(1);
        members.set(both, now);
        members.set(both[..1].iter().copied(), now + second);
        members.set(both[..1].iter().copied(), now + GRACE); // no other hosts: nothing changes
        for gone in [names(&["goes"], &[]), names(&[], &["10.0.0.2"])] {
            assert!(members.admit(&gone, now + GRACE));
            assert!(!members.admit(&gone, now + GRACE + second));
        }
        assert!(members.admit(&names(&["stays"], &[]), now + 9 * GRACE));
        members.set(both, now + GRACE + second);
        assert!(members.admit(&names(&["goes"], &[]), now + 9 * GRACE));
        members.set(both[..1].iter().copied(), now + 9 * GRACE);
        members.set(both[..1].iter().copied(), now + 10 * GRACE);
        let known = members.0.read().as_ref().map(|known| known.by_name.len());
        assert_eq!(known, Some(1), "who is gone for good is forgotten");
    }
}
