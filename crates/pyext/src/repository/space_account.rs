//! Accounting of stored bytes: which of them who needs, alone or with others.

use std::collections::HashMap;
use std::ops::Range;

use acstor_types::PackId;
use parking_lot::Mutex;
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use rayon::prelude::*;

use super::manifest::Manifest;
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
        let Uses { numbers, packs: known, uses } = &mut *uses;
        for (id, runs) in packs {
            let pack = *numbers.entry(id).or_insert_with(|| {
                known.push(id);
                known.len() as u32 - 1
            });
            let of_run = |run: Range<u32>| Use { pack, owner, start: run.start, end: run.end };
            uses.extend(runs.into_iter().map(of_run));
        }
    }
}

/// Sums of one owner: bytes that it needs, and those that nobody else does.
type Owners = HashMap<u32, (u64, u64)>;

impl Uses {
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

    #[test]
    fn account_without_uses_is_empty() {
        assert_eq!(account(&[]), (vec![], Owners::new()));
    }
}
