//! Accounting of stored bytes: which of them who needs, alone or with others.

use std::collections::HashMap;
use std::ops::Range;

use acstor_types::PackId;
use parking_lot::Mutex;
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use rayon::prelude::*;

use super::manifest::Manifest;
use super::moved_pack::{MovedPack, py_runs};
use super::paged_manifest::PagedManifest;

/// Bytes of a pack that an owner needs.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Use {
    pack: u32,
    owner: u32,
    start: u32,
    end: u32,
}

#[derive(Default)]
struct Uses {
    numbers: HashMap<PackId, u32>,
    packs: Vec<PackId>,
    uses: Vec<Use>,
}

/// Runs of bytes of a pack.
pub(super) type PackRuns = (PackId, Vec<Range<u32>>);
/// A pack, and the bytes of it that anybody needs.
type PyLive<'py> = (Bound<'py, PyBytes>, u64);
/// A pack, and the runs of it that anybody needs.
type PyLiveRuns<'py> = (Bound<'py, PyBytes>, Vec<(u32, u32)>);

/// Account of who needs which stored bytes. Owners are numbers, from 0.
#[pyclass(frozen, module = "acstor._dataplane")]
pub(crate) struct SpaceAccount {
    uses: Mutex<Uses>,
}

#[pymethods]
impl SpaceAccount {
    #[new]
    fn new() -> SpaceAccount {
        SpaceAccount { uses: Mutex::default() }
    }

    /// Adds what a manifest of version 1 needs.
    fn add_whole(&self, py: Python<'_>, owner: u32, manifest: &Manifest) {
        py.detach(|| self.add(owner, manifest.runs()));
    }

    /// Adds what a manifest of version 2 needs, and its bases.
    fn add_paged(&self, py: Python<'_>, owner: u32, manifest: &PagedManifest) -> PyResult<()> {
        Ok(py.detach(|| manifest.runs().map(|runs| self.add(owner, runs)))?)
    }

    /// Notes that what is needed of a pack is needed of those that have its copies, as far as there
    /// are copies.
    fn move_pack(&self, py: Python<'_>, moved: &MovedPack) {
        py.detach(|| self.uses.lock().move_pack(&moved.moved));
    }

    /// Returns the runs of each pack that somebody needs, in order; those that touch are one.
    fn live_runs<'py>(&self, py: Python<'py>) -> Vec<PyLiveRuns<'py>> {
        let live = py.detach(|| self.uses.lock().live_runs());
        let of_pack = |(pack, runs): PackRuns| (PyBytes::new(py, pack.0.as_bytes()), py_runs(runs));
        live.into_iter().map(of_pack).collect()
    }

    /// Returns the bytes of each pack that somebody needs, and by owner those that it needs and
    /// those that it alone does.
    fn totals<'py>(&self, py: Python<'py>) -> (Vec<PyLive<'py>>, HashMap<u32, (u64, u64)>) {
        let (live, owners) = py.detach(|| self.uses.lock().totals());
        let live =
            live.into_iter().map(|(pack, bytes)| (PyBytes::new(py, pack.0.as_bytes()), bytes));
        (live.collect(), owners)
    }
}

impl SpaceAccount {
    fn add(&self, owner: u32, packs: Vec<PackRuns>) {
        let mut uses = self.uses.lock();
        packs.into_iter().for_each(|(pack, runs)| uses.add(pack, owner, runs));
    }
}

/// Sums of one owner: bytes that it needs, and those that nobody else does.
type Owners = HashMap<u32, (u64, u64)>;

impl Uses {
    fn add(&mut self, id: PackId, owner: u32, runs: Vec<Range<u32>>) {
        let pack = *self.numbers.entry(id).or_insert_with(|| {
            self.packs.push(id);
            self.packs.len() as u32 - 1
        });
        let of_run = |run: Range<u32>| Use { pack, owner, start: run.start, end: run.end };
        self.uses.extend(runs.into_iter().map(of_run));
    }

    fn move_pack(&mut self, moved: &acstor_pack::MovedPack) {
        let Some(number) = self.numbers.get(&moved.pack()).copied() else { return };
        let mut by_owner: HashMap<u32, Vec<Range<u32>>> = HashMap::new();
        self.uses.retain(|one| {
            if one.pack == number {
                by_owner.entry(one.owner).or_default().push(one.start..one.end);
            }
            one.pack != number
        });
        for (owner, runs) in by_owner {
            let (found, left) = moved.follow(&runs);
            found.into_iter().for_each(|(pack, runs)| self.add(pack, owner, runs));
            self.add(moved.pack(), owner, left);
        }
    }

    fn live_runs(&mut self) -> Vec<PackRuns> {
        self.uses.par_sort_unstable_by_key(|one| (one.pack, one.start));
        let of_pack = |uses: &[Use]| {
            let mut runs: Vec<Range<u32>> = Vec::new();
            for one in uses {
                match runs.last_mut() {
                    Some(last) if one.start <= last.end => last.end = last.end.max(one.end),
                    _ => runs.push(one.start..one.end),
                }
            }
            (self.packs[uses[0].pack as usize], runs)
        };
        self.uses.chunk_by(|one, other| one.pack == other.pack).map(of_pack).collect()
    }

    fn totals(&mut self) -> (Vec<(PackId, u64)>, Owners) {
        self.uses.par_sort_unstable();
        self.uses.dedup_by(|next, last| {
            let touches =
                (last.pack, last.owner) == (next.pack, next.owner) && next.start <= last.end;
            if touches {
                last.end = last.end.max(next.end);
            }
            touches
        });
        let mut owners = Owners::new();
        let of_pack = |uses: &[Use]| {
            let live = sweep(uses, &mut owners);
            (self.packs[uses[0].pack as usize], live)
        };
        let live = self.uses.chunk_by(|one, other| one.pack == other.pack).map(of_pack).collect();
        (live, owners)
    }
}

/// Adds up one pack, whose runs do not touch where they are of one owner; returns the bytes that
/// anybody needs.
fn sweep(uses: &[Use], owners: &mut Owners) -> u64 {
    let mut bounds: Vec<(u32, bool, u32)> = Vec::with_capacity(2 * uses.len());
    for one in uses {
        bounds.extend([(one.start, true, one.owner), (one.end, false, one.owner)]);
        owners.entry(one.owner).or_default().0 += u64::from(one.end - one.start);
    }
    bounds.sort_unstable();
    // The exclusive or of the owners at a place is the owner where there is only one.
    let (mut live, mut count, mut mix, mut last) = (0, 0_u32, 0, 0);
    for (place, begins, owner) in bounds {
        let bytes = u64::from(place - last);
        if count > 0 {
            live += bytes;
        }
        if count == 1 {
            owners.entry(mix).or_default().1 += bytes;
        }
        count = if begins { count + 1 } else { count - 1 };
        mix ^= owner;
        last = place;
    }
    live
}

#[cfg(test)]
#[allow(clippy::single_range_in_vec_init, reason = "runs are lists of ranges")]
mod tests {
    use super::*;

    fn account(uses: &[(u32, u32, u32, u32)]) -> (Vec<u64>, Owners) {
        let digest = |number: u32| acstor_types::Digest::of(&number.to_le_bytes());
        let uses = uses.iter().map(|(pack, owner, start, end)| Use {
            pack: *pack,
            owner: *owner,
            start: *start,
            end: *end,
        });
        let packs = (0..8).map(|number| PackId(digest(number))).collect();
        let mut all = Uses { numbers: HashMap::new(), packs, uses: uses.collect() };
        let (live, owners) = all.totals();
        (live.into_iter().map(|(_, bytes)| bytes).collect(), owners)
    }

    #[test]
    fn bytes_are_counted_once_however_often_they_are_named() {
        let uses = [(0, 7, 10, 20), (0, 7, 10, 20), (0, 7, 15, 30), (1, 7, 0, 1)];
        assert_eq!(account(&uses), (vec![20, 1], Owners::from([(7, (21, 21))])));
    }

    #[test]
    fn shared_bytes_are_nobodys_alone() {
        let uses = [(0, 0, 0, 30), (0, 1, 10, 20), (0, 2, 15, 40), (3, 1, 5, 6)];
        let expected = Owners::from([(0, (30, 10)), (1, (11, 1)), (2, (25, 10))]);
        assert_eq!(account(&uses), (vec![40, 1], expected));
    }

    fn pack(number: u32) -> PackId {
        PackId(acstor_types::Digest::of(&number.to_le_bytes()))
    }

    #[test]
    fn live_runs_are_those_of_all_owners() {
        let mut all = Uses::default();
        all.add(pack(1), 0, vec![4096..8192, 20_000..20_001]);
        all.add(pack(1), 1, vec![8192..9000, 5000..6000]);
        assert_eq!(all.live_runs(), vec![(pack(1), vec![4096..9000, 20_000..20_001])]);
    }

    #[test]
    fn moved_bytes_are_needed_where_they_are_now() {
        let chunk = |from| acstor_pack::MovedChunk {
            from,
            from_len: 4096,
            target: 0,
            offset: from,
            stored_len: 100,
            codec: acstor_types::Codec::Lz4,
            crc: 0,
        };
        let size = acstor_types::ChunkSize::new(4096).unwrap();
        let class = acstor_types::PackClass::Image;
        let chunks = vec![chunk(4096), chunk(8192)];
        let moved =
            acstor_pack::MovedPack::new(pack(1), class, size, vec![pack(2)], chunks).unwrap();
        let mut all = Uses::default();
        all.add(pack(1), 7, vec![4096..12_288]);
        all.add(pack(1), 8, vec![8192..16_384]);
        all.add(pack(3), 8, vec![4096..5000]);
        all.move_pack(&moved);
        let (mut live, owners) = all.totals();
        live.sort_unstable();
        let mut expected = vec![(pack(1), 4096), (pack(2), 200), (pack(3), 904)];
        expected.sort_unstable();
        assert_eq!(live, expected);
        assert_eq!(owners, Owners::from([(7, (200, 100)), (8, (5100, 5000))]));
    }

    #[test]
    fn account_without_uses_is_empty() {
        assert_eq!(account(&[]), (vec![], Owners::new()));
    }
}
