//! The memory of the last long payload, for the next one: memory that the allocator has just got from the
//! kernel costs a page fault for every 4 KiB.

use bytes::{Bytes, BytesMut};

/// Shortest payload whose memory is kept, bytes. The allocator keeps shorter ones; longer ones are
/// rare.
const LEAST: usize = 32 << 10;
const MOST: usize = 1 << 20;

/// Memory for one payload, at most 1 MiB, or none.
#[derive(Debug, Default)]
pub(super) struct SparePayload(BytesMut);

impl SparePayload {
    /// Returns memory for `len` bytes.
    pub(super) fn take(&mut self, len: usize) -> BytesMut {
        // A short one that waits long is to hold little more than it is charged for.
        if is_kept(len) && (len..=2 * len).contains(&self.0.capacity()) {
            return std::mem::take(&mut self.0);
        }
        BytesMut::with_capacity(len)
    }

    /// Returns what [`SparePayload::put_back`] takes once nobody else has the payload; `None`: its
    /// memory is not worth keeping.
    pub(super) fn hold(payload: &Bytes) -> Option<Bytes> {
        is_kept(payload.len()).then(|| payload.clone())
    }

    /// Keeps the memory of a payload that is done with; one that somebody still reads stays his.
    pub(super) fn put_back(&mut self, held: Option<Bytes>) {
        if let Some(Ok(mut payload)) = held.map(Bytes::try_into_mut) {
            payload.clear();
            self.0 = payload;
        }
    }

    /// Gives the memory away: nothing is expected for now.
    pub(super) fn drop_it(&mut self) {
        if self.0.capacity() > 0 {
            self.0 = BytesMut::new();
        }
    }
}

fn is_kept(len: usize) -> bool {
    (LEAST..=MOST).contains(&len)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn payload(spare: &mut SparePayload, len: usize) -> Bytes {
        let mut memory = spare.take(len);
        memory.resize(len, 1);
        memory.freeze()
    }

    /// Returns whether the memory of a payload of `len` bytes serves the next one of `next` bytes.
    fn is_used_again(len: usize, next: usize) -> bool {
        let mut spare = SparePayload::default();
        let first = payload(&mut spare, len);
        let (held, at) = (SparePayload::hold(&first), first.as_ptr());
        drop(first);
        spare.put_back(held);
        let second = payload(&mut spare, next);
        assert_eq!(second.len(), next);
        second.as_ptr() == at
    }

    #[test]
    fn memory_of_a_long_payload_serves_the_next_one() {
        assert!(is_used_again(1 << 20, 1 << 20));
        assert!(is_used_again(64 << 10, 33 << 10));
        assert!(!is_used_again(1 << 20, 64 << 10));
        assert!(SparePayload::hold(&Bytes::from(vec![0; 4096])).is_none());
        assert!(SparePayload::hold(&Bytes::from(vec![0; MOST + 1])).is_none());
    }

    #[test]
    fn payload_that_somebody_has_keeps_its_memory() {
        let mut spare = SparePayload::default();
        let first = payload(&mut spare, LEAST);
        let (held, copy) = (SparePayload::hold(&first), first.clone());
        drop(first);
        spare.put_back(held);
        let second = payload(&mut spare, LEAST);
        assert_ne!(second.as_ptr(), copy.as_ptr());
        assert_eq!(&copy[..], &[1; LEAST]);
    }
}
