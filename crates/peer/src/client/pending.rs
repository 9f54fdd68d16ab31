//! The requests of one connection that wait for an answer, by request id.

use std::sync::Arc;

use acstor_runclock::RunInstant;
use acstor_types::{Digest, RequestClass};
use tokio::sync::oneshot;

use crate::compression::WireChunk;
use crate::exchange::{HINTED_BODY_LEN, Hints, JOINED_BODY_LEN_MAX, Join};
use crate::frame::{FrameKind, GROUP_BODY_LEN, compressed_len_max, held_len};
use crate::{ChunkRequest, ClassWatch, FEATURE_GROUPS, FEATURE_HINTS, FEATURE_HOLDS, PeerStatus};

/// A peer's answer, the body of HELD or GROUPED as a plain one.
pub(super) type Answer = Result<WireChunk, PeerStatus>;

/// Request to a peer.
#[derive(Clone)]
pub(super) enum Ask {
    Chunk(ChunkRequest),
    /// Question which of these it keeps; 1 to [`crate::frame::HOLDS_MAX`].
    Holds(Arc<[Digest]>),
    /// Request to take part in an exchange.
    Join(Join),
    /// Hints, 1 to [`acstor_selection::exchange::bounds::FRAME_HINTS_MAX`].
    Hint(Arc<Hints>),
    /// Message of a multicast preload.
    Group(Box<[u8; GROUP_BODY_LEN]>),
}

impl Ask {
    /// The feature without which a peer does not know the request; 0: every peer does.
    pub(super) fn feature(&self) -> u64 {
        match self {
            Ask::Chunk(_) => 0,
            Ask::Holds(_) => FEATURE_HOLDS,
            Ask::Join(_) | Ask::Hint(_) => FEATURE_HINTS,
            Ask::Group(_) => FEATURE_GROUPS,
        }
    }

    /// Kind and length of the only answer that is right; of JOINED the greatest length.
    fn expected(&self) -> (FrameKind, u32) {
        match self {
            Ask::Chunk(request) => (FrameKind::Data, request.chunk_size.as_u32()),
            Ask::Holds(digests) => (FrameKind::Held, held_len(digests.len()) as u32),
            Ask::Join(_) => (FrameKind::Joined, JOINED_BODY_LEN_MAX as u32),
            Ask::Hint(_) => (FrameKind::Hinted, HINTED_BODY_LEN as u32),
            Ask::Group(_) => (FrameKind::Grouped, GROUP_BODY_LEN as u32),
        }
    }
}

/// A request on its way to a connection.
pub(super) struct Submission {
    pub(super) ask: Ask,
    pub(super) class: ClassWatch,
    pub(super) deadline: RunInstant,
    pub(super) submitted: RunInstant,
    pub(super) reply: oneshot::Sender<Answer>,
}

/// A request that was sent.
pub(super) struct Pending {
    /// Kind and length of the answer.
    pub(super) expected: (FrameKind, u32),
    /// True if the answer may be COMPRESSED instead.
    pub(super) accepts_compressed: bool,
    /// The fetches' number of it.
    pub(super) number: u64,
    /// The class that the peer was told.
    pub(super) class: RequestClass,
    /// Since when a guest waits; `None` while none does.
    pub(super) demanded: Option<RunInstant>,
    /// True if the peer was told that nobody waits any more.
    pub(super) is_cancelled: bool,
    pub(super) deadline: RunInstant,
    pub(super) reply: oneshot::Sender<Answer>,
}

impl Submission {
    /// Returns what is remembered of the request, and the request.
    pub(super) fn into_pending(self, number: u64) -> (Pending, Ask) {
        let Submission { ask, class, deadline, submitted, reply } = self;
        let class = class.current();
        let pending = Pending {
            expected: ask.expected(),
            accepts_compressed: matches!(&ask, Ask::Chunk(request) if request.accepts_compressed),
            number,
            class,
            demanded: class.is_demand().then_some(submitted),
            is_cancelled: false,
            deadline,
            reply,
        };
        (pending, ask)
    }
}

impl Pending {
    /// Returns whether an answer of `kind` may have a body of `len` bytes.
    pub(super) fn allows(&self, kind: FrameKind, len: u32) -> bool {
        let chunk_size = self.expected.1;
        match kind {
            FrameKind::Compressed => {
                self.accepts_compressed && len as usize <= compressed_len_max(chunk_size as usize)
            }
            FrameKind::Joined => self.expected.0 == kind && len <= chunk_size,
            _ => self.expected == (kind, len),
        }
    }
}

/// Requests by id. An id is a slot and the number of times that the slot was used, so that an answer
/// to an earlier request is never taken for one to a later.
#[derive(Default)]
pub(super) struct PendingTable {
    slots: Vec<Slot>,
    free: Vec<u32>,
}

#[derive(Default)]
struct Slot {
    uses: u32,
    pending: Option<Pending>,
}

impl PendingTable {
    pub(super) fn len(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns whether a request's deadline lies before `instant`.
    pub(super) fn any_due_before(&self, instant: RunInstant) -> bool {
        let mut waiting = self.slots.iter().filter_map(|slot| slot.pending.as_ref());
        waiting.any(|pending| pending.deadline < instant)
    }

    /// Adds a request and returns its id.
    pub(super) fn insert(&mut self, pending: Pending) -> u64 {
        let index = self.free.pop().unwrap_or_else(|| {
            self.slots.push(Slot::default());
            self.slots.len() as u32 - 1
        });
        let slot = &mut self.slots[index as usize];
        slot.uses = slot.uses.wrapping_add(1);
        slot.pending = Some(pending);
        u64::from(slot.uses) << 32 | u64::from(index)
    }

    /// Returns the request of `id`, or `None` when none waits under it.
    pub(super) fn get(&self, id: u64) -> Option<&Pending> {
        let slot = self.slots.get(id as u32 as usize)?;
        slot.pending.as_ref().filter(|_| u64::from(slot.uses) == id >> 32)
    }

    /// Returns the request that has a number, and its id. Looks at each: a few hundred at most, and few are
    /// promoted or cancelled.
    pub(super) fn find(&mut self, number: u64) -> Option<(u64, &mut Pending)> {
        self.slots.iter_mut().enumerate().find_map(|(index, slot)| {
            let pending = slot.pending.as_mut().filter(|pending| pending.number == number)?;
            Some((u64::from(slot.uses) << 32 | index as u64, pending))
        })
    }

    /// Removes the request of `id`, or returns `None` when none waits under it.
    pub(super) fn take(&mut self, id: u64) -> Option<Pending> {
        self.get(id)?;
        let index = id as u32;
        let pending = self.slots.get_mut(index as usize)?.pending.take()?;
        self.free.push(index);
        Some(pending)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use acstor_runclock::RunInstant;
    use proptest::prelude::*;
    use tokio::sync::oneshot;

    use super::{FrameKind, Pending, PendingTable, RequestClass};

    fn pending(chunk_size: u32) -> Pending {
        Pending {
            expected: (FrameKind::Data, chunk_size),
            accepts_compressed: false,
            number: chunk_size.into(),
            class: RequestClass::Demand,
            demanded: None,
            is_cancelled: false,
            deadline: RunInstant::unmeasured(),
            reply: oneshot::channel().0,
        }
    }

    proptest! {
        /// The table is a map from ids that never repeat.
        #[test]
        fn proptest_pending_table_is_a_map(steps in prop::collection::vec(any::<Option<u16>>(), 1..300)) {
            let mut table = PendingTable::default();
            let mut model = HashMap::new();
            let mut retired: Vec<u64> = Vec::new();
            for (number, step) in steps.into_iter().enumerate() {
                match step {
                    None => {
                        let id = table.insert(pending(number as u32));
                        prop_assert!(!retired.contains(&id));
                        prop_assert!(model.insert(id, number as u32).is_none());
                        let found = table.find(number as u64).map(|(found, _)| found);
                        prop_assert_eq!(found, Some(id));
                    }
                    Some(pick) if !model.is_empty() => {
                        let mut ids: Vec<u64> = model.keys().copied().collect();
                        ids.sort_unstable();
                        let id = ids[pick as usize % ids.len()];
                        prop_assert_eq!(table.take(id).map(|p| p.expected.1), model.remove(&id));
                        retired.push(id);
                    }
                    Some(pick) => prop_assert!(table.take(u64::from(pick)).is_none()),
                }
                prop_assert_eq!(table.len(), model.len());
                for id in &retired {
                    prop_assert!(table.get(*id).is_none());
                }
            }
        }
    }
}
