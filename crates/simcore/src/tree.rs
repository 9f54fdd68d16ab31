//! Trees of switches: their links and the links between two hosts.

/// Levels of a tree at most.
pub(crate) const DEPTH_MAX: usize = 4;
/// Links of a path at most: up, through the root, down, and the processors of both ends.
const PATH_MAX: usize = 2 * DEPTH_MAX + 3;

/// A tree of switches with the hosts as its leaves.
#[derive(Clone, Debug)]
pub struct Shape {
    /// From the root down, 1 to 4 levels.
    pub fanout: Vec<u32>,
    /// Of the links below the root first, each way; the last is the hosts'.
    pub rates: Vec<f64>,
    /// Rate that the root forwards; `None`: no bound.
    pub root_rate: Option<f64>,
    /// Of the origin's link, each way.
    pub origin_rate: f64,
    /// Of each host's link to a network of the origin's own; `None`: the origin is at the root.
    pub storage_rate: Option<f64>,
    /// Bytes per second of chunks that each host's processors send and receive together; `None`: no
    /// bound.
    pub processor_rate: Option<f64>,
}

/// Direction of a link, as the hosts below it see it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Direction {
    /// From hosts to the root, or through it.
    Up,
    /// From the root to hosts.
    Down,
}

/// A shape has another number of levels than 1 to 4, or of rates than of levels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ShapeError;

impl std::fmt::Display for ShapeError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("a tree has 1 to 4 levels, and as many rates")
    }
}

impl std::error::Error for ShapeError {}

/// The links from one host to another.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Path {
    links: [u32; PATH_MAX],
    len: u8,
}

impl Path {
    fn push(&mut self, link: u32) {
        self.links[usize::from(self.len)] = link;
        self.len += 1;
    }

    pub(crate) fn links(&self) -> &[u32] {
        &self.links[..usize::from(self.len)]
    }
}

#[cfg(test)]
impl From<&[u32]> for Path {
    fn from(links: &[u32]) -> Path {
        let mut path = Path::default();
        links.iter().for_each(|link| path.push(*link));
        path
    }
}

/// The links of a tree, numbered.
///
/// Links are directed and full duplex: each host and each switch has a link up and one down. The
/// root's capacity, where it is bounded, is one more link that everything through the root
/// crosses. The origin has a link each way, to the root; or it has a network of its own, to which
/// each host has a link each way as well (ACStor, section 5.8: "the bandwidth from any host to it
/// is 1 Gbps"). A host's processors, where they are bounded, are one more link that all chunks which
/// it sends or receives cross.
#[derive(Clone, Debug)]
pub struct Tree {
    hosts: u32,
    /// Edge level first.
    levels: Vec<Level>,
    root: Option<u32>,
    origin_up: u32,
    origin_down: u32,
    /// First storage link up and down.
    storage: Option<(u32, u32)>,
    /// The first host's processors.
    processors: Option<u32>,
    capacity: Vec<f64>,
}

#[derive(Clone, Copy, Debug)]
struct Level {
    first_up: u32,
    first_down: u32,
    /// Hosts below one end of the links of this level.
    below: u32,
    /// Hosts below one switch of this level.
    below_switch: u32,
}

impl Tree {
    /// Numbers the links of a tree.
    ///
    /// # Errors
    ///
    /// On another number of levels than 1 to 4, or of rates than of levels.
    pub fn new(shape: &Shape) -> Result<Tree, ShapeError> {
        let depth = shape.fanout.len();
        if !(1..=DEPTH_MAX).contains(&depth) || shape.rates.len() != depth {
            return Err(ShapeError);
        }
        let hosts: u32 = shape.fanout.iter().product();
        let mut capacity = Vec::new();
        let mut add = |rate: f64, count: u32| {
            let first = capacity.len() as u32;
            capacity.extend(std::iter::repeat_n(rate, count as usize));
            first
        };
        let mut below = 1;
        let mut levels = Vec::new();
        for (rate, fanout) in shape.rates.iter().zip(&shape.fanout).rev() {
            let ends = hosts / below;
            let (first_up, first_down) = (add(*rate, ends), add(*rate, ends));
            let below_switch = below * fanout;
            levels.push(Level { first_up, first_down, below, below_switch });
            below = below_switch;
        }
        let root = shape.root_rate.map(|rate| add(rate, 1));
        let (origin_up, origin_down) = (add(shape.origin_rate, 1), add(shape.origin_rate, 1));
        let storage = shape.storage_rate.map(|rate| (add(rate, hosts), add(rate, hosts)));
        let processors = shape.processor_rate.map(|rate| add(rate, hosts));
        Ok(Tree { hosts, levels, root, origin_up, origin_down, storage, processors, capacity })
    }

    /// Returns the number of hosts; also the number of the origin.
    pub fn host_count(&self) -> u32 {
        self.hosts
    }

    /// Returns the number of switches on the way from a host to beyond the root.
    pub(crate) fn depth(&self) -> usize {
        self.levels.len()
    }

    /// Of each link.
    pub fn capacity(&self) -> &[f64] {
        &self.capacity
    }

    /// The switch above a host; level 0 is the edge's.
    pub(crate) fn switch_of(&self, host: u32, level: usize) -> u32 {
        host / self.levels[level].below_switch
    }

    /// Returns the number of hosts below a switch of a level.
    pub(crate) fn hosts_below(&self, level: usize) -> u32 {
        self.levels[level].below_switch
    }

    /// The link of a host up to its switch.
    pub(crate) fn own_up(&self, host: u32) -> u32 {
        self.levels[0].first_up + host
    }

    /// The link of a host down from its switch.
    pub(crate) fn own_down(&self, host: u32) -> u32 {
        self.levels[0].first_down + host
    }

    /// The direction of a link.
    pub(crate) fn direction(&self, link: u32) -> Direction {
        let is_down = |level: &Level| {
            (level.first_down..level.first_down + self.hosts / level.below).contains(&link)
        };
        let is_storage = |(_, down): (u32, u32)| (down..down + self.hosts).contains(&link);
        if self.levels.iter().any(is_down) || self.storage.is_some_and(is_storage) {
            Direction::Down
        } else {
            Direction::Up
        }
    }

    fn up(&self, host: u32, level: usize) -> u32 {
        self.levels[level].first_up + host / self.levels[level].below
    }

    fn down(&self, host: u32, level: usize) -> u32 {
        self.levels[level].first_down + host / self.levels[level].below
    }

    /// The links from `source` to `target`, in order; none from a host to itself.
    pub fn links_between(&self, source: u32, target: u32) -> Vec<u32> {
        self.path(source, target).links().to_vec()
    }

    /// The links that a chunk crosses: those between its ends, and the processors of both.
    pub(crate) fn chunk_path(&self, source: u32, target: u32) -> Path {
        let mut path = self.path(source, target);
        if let Some(first) = self.processors.filter(|_| source != target) {
            let hosts = [source, target].into_iter().filter(|end| *end != self.hosts);
            hosts.for_each(|host| path.push(first + host));
        }
        path
    }

    pub(crate) fn path(&self, source: u32, target: u32) -> Path {
        let mut path = Path::default();
        if source == target {
            return path;
        }
        if source == self.hosts {
            path.push(self.origin_up);
            match self.storage {
                Some((_, down)) => path.push(down + target),
                None => (0..self.depth()).rev().for_each(|at| path.push(self.down(target, at))),
            }
            return path;
        }
        if target == self.hosts {
            match self.storage {
                Some((up, _)) => path.push(up + source),
                None => (0..self.depth()).for_each(|at| path.push(self.up(source, at))),
            }
            path.push(self.origin_down);
            return path;
        }
        let meet = (0..self.depth())
            .find(|level| self.switch_of(source, *level) == self.switch_of(target, *level))
            .unwrap_or(self.depth() - 1);
        (0..=meet).for_each(|level| path.push(self.up(source, level)));
        if let Some(root) = self.root.filter(|_| meet == self.depth() - 1) {
            path.push(root);
        }
        (0..=meet).rev().for_each(|level| path.push(self.down(target, level)));
        path
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn papers(storage_rate: Option<f64>) -> Tree {
        Tree::new(&Shape {
            fanout: vec![4, 8, 8],
            rates: vec![1.0; 3],
            root_rate: Some(10.0),
            origin_rate: 1.0,
            storage_rate,
            processor_rate: None,
        })
        .unwrap()
    }

    #[test]
    fn paths_of_the_papers_tree() {
        let tree = papers(None);
        let hops = |source, target| tree.links_between(source, target).len();
        assert_eq!([hops(0, 0), hops(0, 1), hops(0, 8)], [0, 2, 4]);
        assert_eq!(hops(0, 64), 7, "and the root's own capacity");
        assert_eq!([hops(256, 5), hops(5, 256)], [4, 4], "from the origin down, and up to it");
        assert_eq!(tree.capacity().len(), 2 * (256 + 32 + 4) + 1 + 2);
    }

    #[test]
    fn paths_of_two_hosts_share_what_is_above_both() {
        let tree = papers(None);
        let (one, two) = (tree.links_between(0, 64), tree.links_between(1, 65));
        assert_eq!(one[1..6], two[1..6]);
        assert!(one[0] != two[0] && one[6] != two[6]);
    }

    #[test]
    fn network_of_the_origins_own_is_not_the_trees() {
        let tree = papers(Some(1.0));
        let path = tree.links_between(256, 5);
        assert_eq!(path.len(), 2);
        assert!(tree.links_between(6, 5).iter().all(|link| !path.contains(link)));
    }

    #[test]
    fn links_up_and_down_are_told_apart() {
        let tree = papers(Some(1.0));
        let directions = |source, target| -> Vec<Direction> {
            tree.links_between(source, target)
                .into_iter()
                .map(|link| tree.direction(link))
                .collect()
        };
        assert_eq!(directions(0, 1), [Direction::Up, Direction::Down]);
        let far = directions(0, 64);
        assert_eq!((&far[..4], &far[4..]), (&[Direction::Up; 4][..], &[Direction::Down; 3][..]));
        assert_eq!(
            directions(256, 5),
            [Direction::Up, Direction::Down],
            "the origin's own, a host's"
        );
        assert_eq!(tree.direction(tree.own_down(7)), Direction::Down);
    }

    #[test]
    fn chunks_cross_the_processors_of_both_ends_and_nothing_else_does() {
        let shape = Shape {
            fanout: vec![4],
            rates: vec![1.0],
            root_rate: None,
            origin_rate: 1.0,
            storage_rate: None,
            processor_rate: Some(9.0),
        };
        let tree = Tree::new(&shape).unwrap();
        let rates = |path: Path| -> Vec<f64> {
            path.links().iter().map(|link| tree.capacity()[*link as usize]).collect()
        };
        assert_eq!(rates(tree.chunk_path(0, 1)), [1.0, 1.0, 9.0, 9.0]);
        assert_eq!(rates(tree.chunk_path(4, 1)), [1.0, 1.0, 9.0], "the origin has no bound");
        assert_eq!(rates(tree.path(0, 1)), [1.0, 1.0]);
    }
}
