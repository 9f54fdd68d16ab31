//! The state of each slot and the guards on it, one atomic word per slot.

use std::sync::atomic::{AtomicU32, Ordering};

/// Phase of a slot.
///
/// ```text
///          take             publish             demote
///   Free ------> Filling -----------> Verified -------> Unverified <--- found at open
///    ^            |  ^                 |   ^                |    |
///    |  abandon   |  |    reclaim      |   |   first read   |    |
///    +------------+  +-----------------+   |  hashed equal  |    |
///    |                                 |   +----------------+    |
///    |   last guard dropped            | condemn                 | condemn
///    +------------------- Condemned <--+-------------------------+
/// ```
///
/// An unverified slot is reclaimed as a verified one is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    /// Holds nothing; waits to be taken.
    Free = 0,
    /// One insert owns it; waits for its data and record to be written.
    Filling = 1,
    /// Published; what memory or the disk has of it is not hashed, and the next read does that.
    Unverified = 2,
    /// Published, and what memory has of it is known to match the digest.
    Verified = 3,
    /// Out of the index because its content cannot be had; waits for its last guard.
    Condemned = 4,
}

impl Phase {
    /// Every phase, for the tests that walk the transitions.
    #[cfg(test)]
    const ALL: [Phase; 5] =
        [Phase::Free, Phase::Filling, Phase::Unverified, Phase::Verified, Phase::Condemned];

    const fn from_bits(bits: u32) -> Phase {
        match bits & PHASE_MASK {
            0 => Phase::Free,
            1 => Phase::Filling,
            2 => Phase::Unverified,
            3 => Phase::Verified,
            _ => Phase::Condemned,
        }
    }

    /// Returns whether readers may have the slot.
    pub(crate) const fn is_published(self) -> bool {
        matches!(self, Phase::Unverified | Phase::Verified)
    }

    fn may_become(self, next: Phase) -> bool {
        TRANSITIONS.contains(&(self, next))
    }
}

/// The transition table: every change of a phase is one of these.
/// `reference/state-machines/slot` says when.
const TRANSITIONS: [(Phase, Phase); 13] = [
    (Phase::Free, Phase::Filling),
    (Phase::Free, Phase::Unverified),
    (Phase::Filling, Phase::Verified),
    (Phase::Filling, Phase::Unverified),
    (Phase::Filling, Phase::Free),
    (Phase::Unverified, Phase::Verified),
    (Phase::Unverified, Phase::Filling),
    (Phase::Unverified, Phase::Condemned),
    (Phase::Unverified, Phase::Free),
    (Phase::Verified, Phase::Unverified),
    (Phase::Verified, Phase::Filling),
    (Phase::Verified, Phase::Condemned),
    (Phase::Condemned, Phase::Free),
];

const PHASE_MASK: u32 = 0b111;
/// The slot's digest is pinned.
const PINNED: u32 = 1 << 3;
/// The record of a condemned slot was blanked.
const BLANKED: u32 = 1 << 4;
/// The pages of a verified slot are in this process's page tables.
const MAPPED: u32 = 1 << 5;
/// Unit of the count of guards, which takes the bits from here up.
const GUARD: u32 = 1 << 8;
const GUARDS_MAX: u32 = u32::MAX / GUARD;

/// The states of all slots.
#[derive(Debug)]
pub(crate) struct SlotStates(Box<[AtomicU32]>);

impl SlotStates {
    pub(crate) fn new(slot_count: u32) -> SlotStates {
        SlotStates((0..slot_count).map(|_| AtomicU32::new(0)).collect())
    }

    pub(crate) fn phase(&self, slot: u32) -> Phase {
        Phase::from_bits(self.word(slot).load(Ordering::Acquire))
    }

    pub(crate) fn is_pinned(&self, slot: u32) -> bool {
        self.word(slot).load(Ordering::Acquire) & PINNED != 0
    }

    /// Free → Filling.
    pub(crate) fn take(&self, slot: u32) -> bool {
        self.change(slot, |word| (word == Phase::Free as u32).then_some(Phase::Filling as u32))
    }

    /// Filling → Free.
    pub(crate) fn abandon(&self, slot: u32) -> bool {
        self.change(slot, |word| (word == Phase::Filling as u32).then_some(Phase::Free as u32))
    }

    /// Filling → Verified or Unverified.
    pub(crate) fn publish(&self, slot: u32, phase: Phase, pinned: bool) -> bool {
        let pin = if pinned { PINNED } else { 0 };
        self.change(slot, |word| (word == Phase::Filling as u32).then_some(phase as u32 | pin))
    }

    /// Free → Unverified, for a slot found when the store is opened.
    pub(crate) fn recover(&self, slot: u32) -> bool {
        self.change(slot, |word| (word == Phase::Free as u32).then_some(Phase::Unverified as u32))
    }

    /// Unverified → Free, for an older copy found when the store is opened.
    pub(crate) fn forget_recovered(&self, slot: u32) {
        self.change(slot, |word| (word == Phase::Unverified as u32).then_some(Phase::Free as u32));
    }

    /// Published → Filling, when nobody reads it and it is not pinned.
    pub(crate) fn reclaim(&self, slot: u32) -> bool {
        self.change(slot, |word| {
            let idle = word & !(PHASE_MASK | MAPPED) == 0 && Phase::from_bits(word).is_published();
            idle.then_some(Phase::Filling as u32)
        })
    }

    /// Published → Filling, when nobody reads it, pinned or not.
    pub(crate) fn withdraw(&self, slot: u32) -> bool {
        self.change(slot, |word| {
            let unread = word & !(PHASE_MASK | MAPPED | PINNED) == 0;
            (unread && Phase::from_bits(word).is_published()).then_some(Phase::Filling as u32)
        })
    }

    /// Published → Condemned; returns whether this call did it.
    pub(crate) fn condemn(&self, slot: u32) -> bool {
        self.change(slot, |word| {
            let published = Phase::from_bits(word).is_published();
            published.then_some(word & !(PHASE_MASK | PINNED | MAPPED) | Phase::Condemned as u32)
        })
    }

    /// Notes that the record of a condemned slot is blank on disk.
    pub(crate) fn note_blanked(&self, slot: u32) {
        self.word(slot).fetch_or(BLANKED, Ordering::AcqRel);
    }

    /// Unverified → Verified.
    pub(crate) fn verify(&self, slot: u32) -> bool {
        self.change(slot, |word| {
            let unverified = Phase::from_bits(word) == Phase::Unverified;
            unverified.then_some(word & !PHASE_MASK | Phase::Verified as u32)
        })
    }

    /// Verified → Unverified.
    pub(crate) fn demote(&self, slot: u32) -> bool {
        self.change(slot, |word| {
            let verified = Phase::from_bits(word) == Phase::Verified;
            verified.then_some(word & !(PHASE_MASK | MAPPED) | Phase::Unverified as u32)
        })
    }

    /// Returns whether a slot is verified and its pages were mapped since.
    pub(crate) fn is_mapped(&self, slot: u32) -> bool {
        self.word(slot).load(Ordering::Acquire) & MAPPED != 0
    }

    /// Notes that the pages of a slot are mapped, if it is verified.
    pub(crate) fn note_mapped(&self, slot: u32) {
        self.change(slot, |word| {
            (Phase::from_bits(word) == Phase::Verified).then_some(word | MAPPED)
        });
    }

    /// Every Verified slot → Unverified.
    pub(crate) fn demote_all(&self) {
        for slot in 0..self.0.len() as u32 {
            self.demote(slot);
        }
    }

    /// Sets or clears the pin of a published slot; returns whether it is published.
    pub(crate) fn set_pinned(&self, slot: u32, pinned: bool) -> bool {
        self.change(slot, |word| {
            let changed = if pinned { word | PINNED } else { word & !PINNED };
            Phase::from_bits(word).is_published().then_some(changed)
        })
    }

    /// Adds a guard to a published slot; returns its phase, or `None` when it is not published.
    pub(crate) fn acquire(&self, slot: u32) -> Option<Phase> {
        let mut phase = Phase::Free;
        let acquired = self.change(slot, |word| {
            phase = Phase::from_bits(word);
            (phase.is_published() && word / GUARD < GUARDS_MAX).then(|| word + GUARD)
        });
        acquired.then_some(phase)
    }

    /// Adds a guard to a slot that the caller has a guard on.
    pub(crate) fn acquire_again(&self, slot: u32) {
        let word = self.word(slot).fetch_add(GUARD, Ordering::Relaxed);
        // Two guards per thread and outstanding read are nowhere near 16 million; running on
        // would let the count wrap and a slot be reused under a reader.
        assert!(word / GUARD < GUARDS_MAX - 1, "too many guards on one slot");
    }

    /// Drops a guard. When it was the last one of a condemned slot: Condemned → Free, and returns
    /// whether its record is blank.
    pub(crate) fn release(&self, slot: u32) -> Option<bool> {
        let mut freed = None;
        self.change(slot, |word| {
            debug_assert!(word >= GUARD, "a guard dropped twice");
            let last = word / GUARD == 1 && Phase::from_bits(word) == Phase::Condemned;
            freed = last.then_some(word & BLANKED != 0);
            Some(if last { Phase::Free as u32 } else { word - GUARD })
        });
        freed
    }

    fn word(&self, slot: u32) -> &AtomicU32 {
        &self.0[slot as usize]
    }

    /// The one place where a word changes; checks the transition.
    fn change(&self, slot: u32, mut next: impl FnMut(u32) -> Option<u32>) -> bool {
        let checked = |word: u32| {
            let changed = next(word)?;
            let (from, to) = (Phase::from_bits(word), Phase::from_bits(changed));
            debug_assert!(from == to || from.may_become(to), "slot {slot}: {from:?} to {to:?}");
            Some(changed)
        };
        self.word(slot).fetch_update(Ordering::AcqRel, Ordering::Acquire, checked).is_ok()
    }
}

#[cfg(test)]
mod tests {
    use acstor_testkit::pages::literal_rows;
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn guard_keeps_a_slot_from_being_reclaimed() {
        let states = SlotStates::new(1);
        assert!(states.take(0) && states.publish(0, Phase::Verified, false));
        assert_eq!(states.acquire(0), Some(Phase::Verified));
        assert!(!states.reclaim(0));
        assert_eq!(states.release(0), None);
        assert!(states.reclaim(0));
        assert_eq!(states.acquire(0), None);
    }

    #[test]
    fn condemned_slot_is_free_after_its_last_guard() {
        let states = SlotStates::new(1);
        assert!(states.take(0) && states.publish(0, Phase::Unverified, true));
        assert_eq!(states.acquire(0), Some(Phase::Unverified));
        states.acquire_again(0);
        assert!(states.condemn(0));
        assert!(!states.condemn(0));
        states.note_blanked(0);
        assert_eq!(states.acquire(0), None);
        assert_eq!(states.release(0), None);
        assert_eq!(states.release(0), Some(true));
        assert_eq!(states.phase(0), Phase::Free);
        assert!(!states.is_pinned(0));
    }

    #[test]
    fn pinned_slot_is_not_reclaimed() {
        let states = SlotStates::new(1);
        assert!(states.take(0) && states.publish(0, Phase::Verified, true));
        assert!(!states.reclaim(0));
        assert!(states.set_pinned(0, false) && states.reclaim(0));
    }

    #[test]
    fn pinned_slot_is_withdrawn_but_not_from_under_a_reader() {
        let states = SlotStates::new(1);
        assert!(states.take(0) && states.publish(0, Phase::Verified, true));
        assert_eq!(states.acquire(0), Some(Phase::Verified));
        assert!(!states.withdraw(0));
        assert_eq!(states.release(0), None);
        assert!(states.withdraw(0));
        assert!(!states.is_pinned(0));
        assert!(states.abandon(0));
    }

    proptest! {
        /// Any sequence of events stays inside the transition table, and guards never go missing.
        #[test]
        fn events_stay_in_the_table(events in prop::collection::vec(0u8..12, 1..200)) {
            let states = SlotStates::new(1);
            let mut guards = 0;
            for event in events {
                let before = states.phase(0);
                match event {
                    0 => { states.take(0); }
                    1 => { states.abandon(0); }
                    2 => { states.publish(0, Phase::Verified, false); }
                    3 => { states.publish(0, Phase::Unverified, true); }
                    4 => { states.reclaim(0); }
                    5 if guards > 0 => { states.condemn(0); } // a condemner holds a guard
                    6 => { states.verify(0); }
                    7 => { states.demote(0); }
                    8 => { states.set_pinned(0, false); }
                    11 => { states.withdraw(0); }
                    9 => guards += u32::from(states.acquire(0).is_some()),
                    10 if guards > 0 => {
                        guards -= 1;
                        let freed = states.release(0).is_some();
                        prop_assert_eq!(freed, guards == 0 && before == Phase::Condemned);
                    }
                    _ => {}
                }
                let after = states.phase(0);
                prop_assert!(after == before || before.may_become(after));
                prop_assert_eq!(states.word(0).load(Ordering::Relaxed) / GUARD, guards);
                if guards > 0 {
                    prop_assert!(after.is_published() || after == Phase::Condemned);
                }
            }
        }
    }

    #[test]
    fn table_is_the_one_of_the_page() {
        let page = concat!(
            env!("CARGO_MANIFEST_DIR"),
            "/../../doc/source/reference/state-machines/slot.rst"
        );
        let page = std::fs::read_to_string(page).unwrap();
        let mut listed: Vec<[String; 2]> = literal_rows(&page);
        let mut expected = TRANSITIONS.map(|(from, to)| [format!("{from:?}"), format!("{to:?}")]);
        listed.sort();
        expected.sort();
        assert_eq!(listed, expected);
    }

    #[test]
    fn phases_survive_their_bits() {
        for phase in Phase::ALL {
            assert_eq!(Phase::from_bits(phase as u32), phase);
        }
    }
}
