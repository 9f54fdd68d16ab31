//! The order in which chunks of an image were missed first, and how far each hearer has been told.

use std::collections::HashSet;

use super::bounds::{
    BATCH_HINTS, BATCH_WAIT, FRAME_HINTS_MAX, HEARERS_MAX, HINTS_MAX, MEMBER_AGE_MAX, REWINDS_MAX,
};
use crate::Moment;

/// Name of a host, as a number: a hash of its name in the ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct HostKey(pub u64);

/// A chunk of an image that a host missed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Hint {
    /// Index of the chunk.
    pub chunk: u32,
    /// A host that has it, or will have it in a moment.
    pub holder: HostKey,
}

/// Hints to send to a hearer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Batch {
    /// The hearer.
    pub to: HostKey,
    /// Place in the order of the first of them.
    pub first: u32,
    /// The hints, at least one, at most [`FRAME_HINTS_MAX`].
    pub hints: Vec<Hint>,
}

/// One that is told the order.
#[derive(Clone, Copy, Debug)]
struct Hearer {
    host: HostKey,
    /// Hints that it has been told.
    told: usize,
    /// True while a batch is on its way to it.
    is_busy: bool,
    /// Since when there is something to tell.
    waiting_since: Option<Moment>,
    renewed: Moment,
    /// Times that it was told something again.
    rewinds: u32,
}

/// The order of first misses of one image, as one host knows it.
#[derive(Clone, Debug, Default)]
pub struct HintLog {
    order: Vec<Hint>,
    known: HashSet<u32>,
    hearers: Vec<Hearer>,
}

impl HintLog {
    /// Hints so far.
    pub fn len(&self) -> u32 {
        self.order.len() as u32
    }

    /// Returns whether there is no hint.
    pub fn is_empty(&self) -> bool {
        self.order.is_empty()
    }

    /// Adds a hint at the end; `false`: the chunk is known, or as many hints are remembered as may be.
    pub fn push(&mut self, hint: Hint, now: Moment) -> bool {
        let is_new = self.order.len() < HINTS_MAX && self.known.insert(hint.chunk);
        if is_new {
            self.append(hint, now);
        }
        is_new
    }

    /// Adds a hint of another host's order, so that places are the same here as there, also where it names a
    /// chunk twice; `false`: as many hints are remembered as may be.
    pub fn follow(&mut self, hint: Hint, now: Moment) -> bool {
        let has_room = self.order.len() < HINTS_MAX;
        if has_room {
            self.known.insert(hint.chunk);
            self.append(hint, now);
        }
        has_room
    }

    fn append(&mut self, hint: Hint, now: Moment) {
        self.order.push(hint);
        for hearer in &mut self.hearers {
            hearer.waiting_since.get_or_insert(now);
        }
    }

    /// The hints from a place on, at most [`FRAME_HINTS_MAX`].
    pub fn since(&self, first: u32) -> &[Hint] {
        let from = (first as usize).min(self.order.len());
        let end = self.order.len().min(from + FRAME_HINTS_MAX);
        &self.order[from..end]
    }

    /// Has a host be told the order from a place on, from now on; `false`: too many are.
    pub fn subscribe(&mut self, host: HostKey, told: u32, now: Moment) -> bool {
        let told = (told as usize).min(self.order.len());
        let waiting_since = (told < self.order.len()).then_some(now);
        let hearer = Hearer { host, told, is_busy: false, waiting_since, renewed: now, rewinds: 0 };
        if let Some(known) = self.hearers.iter_mut().find(|known| known.host == host) {
            let Hearer { is_busy, rewinds, .. } = *known;
            *known = Hearer { is_busy, rewinds, ..hearer };
            return true;
        }
        if self.hearers.len() >= HEARERS_MAX {
            return false;
        }
        self.hearers.push(hearer);
        true
    }

    /// Tells a host nothing any more.
    pub fn unsubscribe(&mut self, host: HostKey) {
        self.hearers.retain(|hearer| hearer.host != host);
    }

    /// Number of those who are told.
    pub fn hearers(&self) -> usize {
        self.hearers.len()
    }

    /// Drops those that have not said for long that they still take part.
    pub fn expire(&mut self, now: Moment) {
        self.hearers.retain(|hearer| now.since(hearer.renewed) < MEMBER_AGE_MAX);
    }

    /// The batches to send now, one to a hearer at most; each is on its way until [`HintLog::heard`].
    pub fn due(&mut self, now: Moment) -> Vec<Batch> {
        let mut batches = Vec::new();
        for hearer in &mut self.hearers {
            let Some(due) = due_of(hearer, self.order.len()) else { continue };
            if due.is_some_and(|due| now < due) {
                continue;
            }
            let end = self.order.len().min(hearer.told + FRAME_HINTS_MAX);
            let hints = self.order[hearer.told..end].to_vec();
            batches.push(Batch { to: hearer.host, first: hearer.told as u32, hints });
            hearer.is_busy = true;
        }
        batches
    }

    /// Time at which the next batch is due; `None`: nothing waits.
    pub fn next_due(&self, now: Moment) -> Option<Moment> {
        let due = |hearer: &Hearer| due_of(hearer, self.order.len()).map(|due| due.unwrap_or(now));
        self.hearers.iter().filter_map(due).min()
    }

    /// Notes that a hearer has answered a batch: it knows the order up to `upto`. One that again and again
    /// knows no more than before is told nothing any more.
    pub fn heard(&mut self, host: HostKey, upto: u32, now: Moment) {
        let len = self.order.len();
        let Some(hearer) = self.hearers.iter_mut().find(|hearer| hearer.host == host) else {
            return;
        };
        let told = (upto as usize).min(len);
        hearer.rewinds += u32::from(told <= hearer.told);
        hearer.told = told;
        hearer.is_busy = false;
        hearer.waiting_since = (told < len).then_some(now);
        if hearer.rewinds > REWINDS_MAX {
            self.unsubscribe(host);
        }
    }
}

/// Time at which a hearer is to be told more, `Some(None)`: at once; `None`: it is not.
fn due_of(hearer: &Hearer, len: usize) -> Option<Option<Moment>> {
    let since = hearer.waiting_since.filter(|_| !hearer.is_busy && hearer.told < len)?;
    Some((len - hearer.told < BATCH_HINTS).then_some(since + BATCH_WAIT))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    const A: HostKey = HostKey(1);
    const B: HostKey = HostKey(2);

    fn at(millis: u64) -> Moment {
        Moment::at(Duration::from_millis(millis))
    }

    fn push(log: &mut HintLog, chunks: std::ops::Range<u32>, now: Moment) {
        for chunk in chunks {
            assert!(log.push(Hint { chunk, holder: B }, now));
        }
    }

    #[test]
    fn test_hints_wait_for_others_but_not_long() {
        let mut log = HintLog::default();
        assert!(log.subscribe(A, 0, at(0)));
        assert_eq!((log.due(at(0)), log.next_due(at(0))), (vec![], None));
        push(&mut log, 0..3, at(1));
        assert_eq!((log.due(at(5)), log.next_due(at(5))), (vec![], Some(at(6))));
        let sent = log.due(at(6));
        assert_eq!((sent.len(), sent[0].first, sent[0].hints.len()), (1, 0, 3));
        push(&mut log, 3..80, at(7));
        assert_eq!(log.due(at(50)), vec![], "one batch at a time");
        log.heard(A, 3, at(50));
        let sent = log.due(at(50));
        assert_eq!((sent[0].first, sent[0].hints.len()), (3, 77), "many do not wait");
        // What it had not heard is told again.
        log.heard(A, 5, at(51));
        assert_eq!(log.due(at(51))[0].first, 5);
        assert!(!log.push(Hint { chunk: 79, holder: A }, at(52)), "known");
    }

    #[test]
    fn test_hearers_are_bounded_and_leave_in_silence() {
        let mut log = HintLog::default();
        for host in 0..HEARERS_MAX as u64 {
            assert!(log.subscribe(HostKey(host), 7, at(host)));
        }
        assert!(!log.subscribe(HostKey(1000), 0, at(100)));
        let late = at(100) + MEMBER_AGE_MAX;
        assert!(log.subscribe(HostKey(5), 0, late), "it is one of them");
        log.expire(late);
        assert_eq!(log.hearers(), 1);
        log.unsubscribe(HostKey(5));
        assert_eq!(log.hearers(), 0);
    }

    #[test]
    fn test_hearer_that_never_hears_is_told_no_more() {
        let mut log = HintLog::default();
        assert!(log.subscribe(A, 0, at(0)));
        push(&mut log, 0..50, at(0));
        let mut batches = 0;
        while let Some(batch) = log.due(at(0)).pop() {
            assert_eq!(batch.first, 0);
            batches += 1;
            log.heard(A, 0, at(0));
        }
        assert_eq!((batches, log.hearers()), (REWINDS_MAX + 1, 0));
        // A chunk that is named twice has two places, as where it came from.
        assert!(log.follow(Hint { chunk: 7, holder: A }, at(0)));
        assert_eq!(log.len(), 51);
    }

    #[test]
    fn test_order_is_bounded() {
        let mut log = HintLog::default();
        push(&mut log, 0..HINTS_MAX as u32, at(0));
        assert!(!log.push(Hint { chunk: u32::MAX, holder: A }, at(0)));
        assert_eq!(log.since(10).len(), FRAME_HINTS_MAX);
        assert_eq!(log.since(u32::MAX).len(), 0);
        log.heard(A, 9, at(0));
        assert!(log.subscribe(A, u32::MAX, at(0)) && log.due(at(99)).is_empty());
    }
}
