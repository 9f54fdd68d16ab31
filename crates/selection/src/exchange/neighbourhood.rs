//! Orders in which hints go from the rendezvous host to all members.

use super::bounds::FAN_OUT_MAX;

/// Order in which hints are passed on. The position of a member is its place among those that have joined.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Order {
    /// Each member passes them on to the next.
    Ring,
    /// Some chains beside each other: each member passes them on to the one that joined so many later.
    KRing,
    /// Each member passes them on to some of its own.
    Tree,
    /// A tree of the first member of each rack, and one in each rack below it: a hint crosses the uplink
    /// of a rack once.
    Topology,
}

impl Order {
    /// Every order.
    pub const ALL: [Order; 4] = [Order::Ring, Order::KRing, Order::Tree, Order::Topology];

    /// The name in the configuration.
    pub const fn as_str(self) -> &'static str {
        match self {
            Order::Ring => "ring",
            Order::KRing => "k-ring",
            Order::Tree => "tree",
            Order::Topology => "topology",
        }
    }

    /// Returns the order of a name.
    pub fn from_name(name: &str) -> Option<Order> {
        Order::ALL.into_iter().find(|order| order.as_str() == name)
    }
}

/// Order with its fan-out.
///
/// Source: Nicolae and Rafique, section 3, have the ring, and leave other neighbourhoods to the reader.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Neighbourhood {
    order: Order,
    fan_out: u32,
}

impl Neighbourhood {
    /// Returns the order where each passes on to `fan_out` others, 1 to [`FAN_OUT_MAX`]; what is beyond is
    /// cut. A ring has one.
    pub fn new(order: Order, fan_out: u32) -> Neighbourhood {
        let fan_out = if order == Order::Ring { 1 } else { fan_out.clamp(1, FAN_OUT_MAX) };
        Neighbourhood { order, fan_out }
    }

    /// The order.
    pub fn order(self) -> Order {
        self.order
    }

    /// Hosts to which each passes hints on.
    pub fn fan_out(self) -> u32 {
        self.fan_out
    }

    /// Returns the position of the member on which the one at `position` hangs; `None`: on the rendezvous.
    /// `racks`: of all members, by position; only of interest to [`Order::Topology`].
    pub fn parent(self, position: usize, racks: &[u64]) -> Option<usize> {
        let fan_out = self.fan_out as usize;
        match self.order {
            Order::Ring | Order::KRing => position.checked_sub(fan_out),
            Order::Tree => above(position, fan_out),
            Order::Topology => {
                let rack = *racks.get(position)?;
                let mut of_rack = (0..position).filter(|at| racks[*at] == rack);
                let rank = of_rack.clone().count();
                match rank.checked_sub(1) {
                    // The first of its rack has all others of the rack below it.
                    Some(among) => match above(among, fan_out) {
                        Some(above) => of_rack.nth(above + 1),
                        None => of_rack.next(),
                    },
                    None => {
                        let is_first = |at: &usize| !racks[..*at].contains(&racks[*at]);
                        let mut heads = (0..position).filter(is_first);
                        above(heads.clone().count(), fan_out).and_then(|above| heads.nth(above))
                    }
                }
            }
        }
    }

    /// Returns how many hosts a hint goes through to the member at `position`, itself included, where all
    /// are in one rack.
    pub fn hops(self, position: u32) -> u32 {
        match self.order {
            Order::Ring | Order::KRing => position / self.fan_out + 1,
            Order::Tree => depth(position, self.fan_out),
            Order::Topology => match position.checked_sub(1) {
                Some(below) => depth(below, self.fan_out) + 1,
                None => 1,
            },
        }
    }
}

/// Position above one in a tree of which the first `fan_out` positions hang on the root; `None`: the root.
fn above(position: usize, fan_out: usize) -> Option<usize> {
    (position / fan_out).checked_sub(1)
}

/// Depth of a position in such a tree.
fn depth(position: u32, fan_out: u32) -> u32 {
    let (mut depth, mut last, mut width) = (1, fan_out, fan_out);
    while position >= last {
        width = width.saturating_mul(fan_out);
        last = last.saturating_add(width);
        depth += 1;
    }
    depth
}

#[cfg(test)]
mod tests;
