//! Max-min fair rates of flows over links, by progressive filling.
//!
//! All rates grow together until a link is full; the flows over it stop there, the others go on; a
//! flow stops earlier at its own cap. The links wait in a heap by the share that they could still
//! give each of their flows. Fixing a flow at the lowest share never lowers the share of another
//! link, so an entry of the heap that is out of date is only ever too low and is put back when it
//! is met: the whole costs O(F P log L) for F flows over P links each.
//!
//! Source: Bertsekas and Gallager, *Data Networks*, 1992, section 6.5.2.

use crate::tree::Path;

/// A link in the course of a computation, and what came out of it.
#[derive(Clone, Debug)]
pub(crate) struct Link {
    /// Capacity that is left.
    pub(crate) left: f64,
    /// Share at which it became full; `None` where it has room.
    pub(crate) level: Option<f64>,
    /// Flows that stopped at that share.
    pub(crate) bottlenecked: u32,
    unfixed: u32,
    /// Start of its flows in the list of members.
    start: usize,
}

/// A flow that wants a rate.
#[derive(Clone, Debug)]
pub(crate) struct Flow {
    pub(crate) path: Path,
    /// Most that it takes; infinite: all it can have.
    pub(crate) cap: f64,
    /// Rate that it has.
    pub(crate) rate: f64,
    is_fixed: bool,
}

impl Flow {
    pub(crate) fn new(path: Path, cap: f64) -> Flow {
        Flow { path, cap, rate: 0.0, is_fixed: false }
    }
}

/// The links, and work space of the computation.
#[derive(Debug)]
pub(crate) struct Filling {
    pub(crate) links: Vec<Link>,
    /// Flows over each link, one link after the other.
    members: Vec<u32>,
    /// Least share first.
    heap: Vec<(f64, u32)>,
}

impl Filling {
    pub(crate) fn new(capacity: &[f64]) -> Filling {
        let link =
            |left: &f64| Link { left: *left, level: None, bottlenecked: 0, unfixed: 0, start: 0 };
        Filling {
            links: capacity.iter().map(link).collect(),
            members: Vec::new(),
            heap: Vec::new(),
        }
    }

    /// Computes the rate of each flow of `sharing`.
    ///
    /// `capped` are those of them that have a finite cap, by ascending cap. A flow over no link
    /// must be one of these, and gets its cap.
    pub(crate) fn fill(
        &mut self,
        flows: &mut [Flow],
        sharing: &[u32],
        capped: &[u32],
        capacity: &[f64],
    ) {
        self.list_members(flows, sharing, capacity);
        self.make_heap();
        let mut capped = capped.iter().copied().peekable();
        loop {
            while capped.next_if(|flow| flows[*flow as usize].is_fixed).is_some() {}
            self.settle();
            let first = self.heap.first().copied();
            if let Some(flow) = capped.peek().map(|flow| &mut flows[*flow as usize])
                && first.is_none_or(|(share, _)| flow.cap <= share)
            {
                let cap = flow.cap;
                self.fix(flow, cap);
                continue;
            }
            let Some((_, link)) = first else { break };
            self.fix_members(flows, link as usize);
        }
    }

    /// Stops the flows over the link of the lowest share.
    fn fix_members(&mut self, flows: &mut [Flow], number: usize) {
        let link = &mut self.links[number];
        let share = link.left / f64::from(link.unfixed);
        link.level = Some(share);
        let (start, end) = (link.start, self.end_of(number));
        for position in start..end {
            let flow = &mut flows[self.members[position] as usize];
            if !flow.is_fixed {
                self.links[number].bottlenecked += 1;
                self.fix(flow, share);
            }
        }
    }

    fn end_of(&self, link: usize) -> usize {
        self.links.get(link + 1).map_or(self.members.len(), |next| next.start)
    }

    fn fix(&mut self, flow: &mut Flow, rate: f64) {
        flow.is_fixed = true;
        flow.rate = rate;
        for number in flow.path.links() {
            let link = &mut self.links[*number as usize];
            link.left = (link.left - rate).max(0.0);
            link.unfixed -= 1;
        }
    }

    fn list_members(&mut self, flows: &mut [Flow], sharing: &[u32], capacity: &[f64]) {
        for (link, capacity) in self.links.iter_mut().zip(capacity) {
            *link = Link { left: *capacity, level: None, bottlenecked: 0, unfixed: 0, start: 0 };
        }
        for number in sharing {
            let flow = &mut flows[*number as usize];
            flow.is_fixed = false;
            for link in flow.path.links() {
                self.links[*link as usize].unfixed += 1;
            }
        }
        let mut total = 0;
        for link in &mut self.links {
            total += link.unfixed as usize;
            // Its end; each member that is put before it moves it to its start.
            link.start = total;
        }
        self.members.clear();
        self.members.resize(total, 0);
        for number in sharing.iter().rev() {
            for link in flows[*number as usize].path.links() {
                let link = &mut self.links[*link as usize];
                link.start -= 1;
                self.members[link.start] = *number;
            }
        }
    }

    fn make_heap(&mut self) {
        self.heap.clear();
        for (number, link) in self.links.iter().enumerate() {
            if link.unfixed > 0 {
                self.heap.push((link.left / f64::from(link.unfixed), number as u32));
            }
        }
        for at in (0..self.heap.len() / 2).rev() {
            self.sift_down(at);
        }
    }

    /// Brings the link of the lowest share to the front.
    fn settle(&mut self) {
        while let Some((known, number)) = self.heap.first().copied() {
            let link = &self.links[number as usize];
            if link.unfixed == 0 {
                self.heap.swap_remove(0);
            } else {
                let share = link.left / f64::from(link.unfixed);
                if share <= known {
                    break;
                }
                self.heap[0].0 = share;
            }
            self.sift_down(0);
        }
    }

    fn sift_down(&mut self, mut at: usize) {
        loop {
            let mut child = 2 * at + 1;
            if child >= self.heap.len() {
                return;
            }
            if child + 1 < self.heap.len() && self.heap[child + 1].0 < self.heap[child].0 {
                child += 1;
            }
            if self.heap[at].0 <= self.heap[child].0 {
                return;
            }
            self.heap.swap(at, child);
            at = child;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cmp::Ordering;

    use proptest::prelude::*;

    use super::*;

    /// Returns the rates of flows, given by their links and caps, and the levels of the links.
    fn filled(flows: &[(Vec<u32>, f64)], capacity: &[f64]) -> (Vec<f64>, Vec<Option<f64>>) {
        let mut filling = Filling::new(capacity);
        let mut rows: Vec<Flow> =
            flows.iter().map(|(links, cap)| Flow::new(links.as_slice().into(), *cap)).collect();
        let sharing: Vec<u32> = (0..rows.len() as u32).collect();
        let mut capped: Vec<u32> =
            sharing.iter().copied().filter(|at| rows[*at as usize].cap.is_finite()).collect();
        capped.sort_by(|a, b| rows[*a as usize].cap.total_cmp(&rows[*b as usize].cap));
        filling.fill(&mut rows, &sharing, &capped, capacity);
        let levels = filling.links.iter().map(|link| link.level).collect();
        (rows.iter().map(|flow| flow.rate).collect(), levels)
    }

    const FREE: f64 = f64::INFINITY;

    #[test]
    fn one_link_is_shared_alike() {
        assert_eq!(filled(&vec![(vec![0], FREE); 4], &[100.0]).0, [25.0; 4]);
    }

    #[test]
    fn what_one_flow_cannot_use_others_get() {
        let flows = [(vec![0], 10.0), (vec![0], FREE), (vec![0, 1], FREE)];
        let (rates, levels) = filled(&flows, &[100.0, 30.0]);
        assert_eq!(rates, [10.0, 60.0, 30.0]);
        assert_eq!(levels, [Some(60.0), Some(30.0)]);
    }

    #[test]
    fn flow_over_no_link_gets_its_cap() {
        assert_eq!(filled(&[(vec![], 7.0), (vec![0], FREE)], &[5.0]).0, [7.0, 5.0]);
    }

    #[test]
    fn large_tables_waste_nothing_and_exceed_nothing() {
        let mut random = crate::random::Random::new(1);
        let capacity: Vec<f64> = (0..300).map(|_| 1.0 + 99.0 * random.unit()).collect();
        let flows: Vec<(Vec<u32>, f64)> = (0..5000)
            .map(|_| {
                let mut links: Vec<u32> = (0..6).map(|_| (random.unit() * 299.9) as u32).collect();
                links.sort_unstable();
                links.dedup();
                (links, FREE)
            })
            .collect();
        let (rates, levels) = filled(&flows, &capacity);
        let mut used = vec![0.0; 300];
        for ((links, _), rate) in flows.iter().zip(&rates) {
            links.iter().for_each(|link| used[*link as usize] += rate);
            let has_bottleneck = links.iter().any(|link| {
                levels[*link as usize].is_some_and(|level| *rate >= level * (1.0 - 1e-9))
            });
            assert!(has_bottleneck, "a full link on which nobody has more");
        }
        assert!(used.iter().zip(&capacity).all(|(used, most)| *used <= most * (1.0 + 1e-9)));
    }

    /// A fraction of small numbers, exact.
    #[derive(Clone, Copy, Debug)]
    struct Fraction(i128, i128);

    impl Fraction {
        fn new(numerator: i128, denominator: i128) -> Fraction {
            let (mut a, mut b) = (numerator.abs(), denominator.abs());
            while b != 0 {
                (a, b) = (b, a % b);
            }
            Fraction(numerator / a.max(1), denominator / a.max(1))
        }

        fn plus(self, other: Fraction) -> Fraction {
            Fraction::new(self.0 * other.1 + other.0 * self.1, self.1 * other.1)
        }

        fn minus(self, other: Fraction) -> Fraction {
            self.plus(Fraction(-other.0, other.1))
        }

        fn over(self, count: usize) -> Fraction {
            Fraction::new(self.0, self.1 * count as i128)
        }

        fn compared(self, other: Fraction) -> Ordering {
            (self.0 * other.1).cmp(&(other.0 * self.1))
        }
    }

    /// The textbook's algorithm, slow and plainly right: all rates grow alike until a link or the
    /// flow's own cap stops them.
    fn textbook(flows: &[(Vec<u32>, Option<i128>)], capacity: &[i128]) -> Vec<f64> {
        let mut fixed: Vec<Option<Fraction>> = vec![None; flows.len()];
        while fixed.iter().any(Option::is_none) {
            // At which rate each link is full, were all that still grow to grow on.
            let full: Vec<Option<Fraction>> = (0..capacity.len())
                .map(|link| {
                    let over = |at: &usize| flows[*at].0.contains(&(link as u32));
                    let growing =
                        (0..flows.len()).filter(over).filter(|at| fixed[*at].is_none()).count();
                    let left = (0..flows.len())
                        .filter(over)
                        .filter_map(|at| fixed[at])
                        .fold(Fraction(capacity[link], 1), Fraction::minus);
                    (growing > 0).then(|| left.over(growing))
                })
                .collect();
            let growing = (0..flows.len()).filter(|at| fixed[*at].is_none());
            let caps = growing.filter_map(|at| flows[at].1).map(|cap| Fraction(cap, 1));
            let level = full
                .iter()
                .flatten()
                .copied()
                .chain(caps)
                .min_by(|a, b| a.compared(*b))
                .expect("each flow has a link");
            let stops = |at: Fraction| at.compared(level) == Ordering::Equal;
            for (at, (links, cap)) in flows.iter().enumerate() {
                let is_stopped = cap.is_some_and(|cap| stops(Fraction(cap, 1)))
                    || links.iter().any(|link| full[*link as usize].is_some_and(stops));
                if fixed[at].is_none() && is_stopped {
                    fixed[at] = Some(level);
                }
            }
        }
        fixed.iter().flatten().map(|rate| rate.0 as f64 / rate.1 as f64).collect()
    }

    const LINKS: u32 = 6;

    fn some_flows() -> impl Strategy<Value = Vec<(Vec<u32>, Option<i128>)>> {
        let links = prop::sample::subsequence((0..LINKS).collect::<Vec<_>>(), 1..=4);
        prop::collection::vec((links, prop::option::of(0_i128..60)), 1..14)
    }

    proptest! {
        #[test]
        fn rates_are_those_of_the_textbook(
            flows in some_flows(),
            capacity in prop::collection::vec(1_i128..100, LINKS as usize),
        ) {
            let exact = textbook(&flows, &capacity);
            let wanted: Vec<(Vec<u32>, f64)> = flows
                .iter()
                .map(|(links, cap)| (links.clone(), cap.map_or(FREE, |cap| cap as f64)))
                .collect();
            let capacity: Vec<f64> = capacity.iter().map(|rate| *rate as f64).collect();
            for (found, right) in filled(&wanted, &capacity).0.iter().zip(&exact) {
                prop_assert!((found - right).abs() <= 1e-9 * right.max(1.0), "{found}, {right}");
            }
        }
    }
}
