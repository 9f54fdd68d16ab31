//! Compressed forms of the chunks that peers have asked for lately, in bounded memory.
//!
//! In a boot storm a chunk is sent to some twenty hosts within seconds. Compressed once, it costs a look-up from
//! then on. What compression does not make smaller is remembered as well.
//!
//! Source: CLOCK (Corbató, MIT Project MAC, 1968). Differs: a queue takes the place of the circle.

use std::collections::{HashMap, VecDeque};

use acstor_types::Digest;
use bytes::Bytes;
use parking_lot::Mutex;

/// Bytes that each form counts for beside its own: what the tables take for it.
const FORM_OVERHEAD: u64 = 128;

/// The kept forms.
#[derive(Debug)]
pub(super) struct CompressedForms {
    bytes_max: u64,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    forms: HashMap<Digest, Form>,
    /// The digests of `forms`, each once, the first to leave first.
    queue: VecDeque<Digest>,
    bytes: u64,
}

#[derive(Debug)]
struct Form {
    /// `None`: compression does not make it smaller.
    body: Option<Bytes>,
    /// True if it was asked for since it came, or since it was spared.
    is_used: bool,
}

impl Form {
    fn bytes(&self) -> u64 {
        FORM_OVERHEAD + self.body.as_ref().map_or(0, |body| body.len() as u64)
    }
}

impl CompressedForms {
    /// Keeps forms of at most `bytes_max` bytes; none for 0.
    pub(super) fn new(bytes_max: u64) -> CompressedForms {
        CompressedForms { bytes_max, state: Mutex::default() }
    }

    /// Returns the body of a COMPRESSED frame for a chunk; `Some(None)`: the chunk is not made smaller, `None`:
    /// that is not known.
    pub(super) fn get(&self, digest: &Digest) -> Option<Option<Bytes>> {
        let mut state = self.state.lock();
        let form = state.forms.get_mut(digest)?;
        form.is_used = true;
        Some(form.body.clone())
    }

    /// Keeps the form of a chunk; those that were not asked for the longest leave.
    pub(super) fn insert(&self, digest: Digest, body: Option<Bytes>) {
        let form = Form { body, is_used: false };
        if form.bytes() > self.bytes_max {
            return;
        }
        let mut state = self.state.lock();
        if state.forms.contains_key(&digest) {
            return;
        }
        state.bytes += form.bytes();
        state.forms.insert(digest, form);
        state.queue.push_back(digest);
        while state.bytes > self.bytes_max {
            state.evict();
        }
    }

    /// Forgets the forms of some chunks.
    pub(super) fn forget(&self, digests: &[Digest]) {
        let mut state = self.state.lock();
        for digest in digests {
            if let Some(form) = state.forms.remove(digest) {
                state.bytes -= form.bytes();
            }
        }
        let State { forms, queue, .. } = &mut *state;
        queue.retain(|digest| forms.contains_key(digest));
    }

    /// Bytes in use.
    pub(super) fn bytes(&self) -> u64 {
        self.state.lock().bytes
    }
}

impl State {
    /// Drops the first form in the queue, or spares it once where it was asked for.
    fn evict(&mut self) {
        let Some(digest) = self.queue.pop_front() else { return };
        let Some(form) = self.forms.get_mut(&digest) else { return };
        if std::mem::take(&mut form.is_used) {
            self.queue.push_back(digest);
        } else if let Some(form) = self.forms.remove(&digest) {
            self.bytes -= form.bytes();
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn digest(number: u64) -> Digest {
        Digest::of(&number.to_le_bytes())
    }

    fn body(len: usize) -> Option<Bytes> {
        Some(Bytes::from(vec![7; len]))
    }

    #[test]
    fn test_forms_that_are_asked_for_stay_and_others_leave() {
        let forms = CompressedForms::new(4 * (FORM_OVERHEAD + 1000));
        (0..4).for_each(|number| forms.insert(digest(number), body(1000)));
        for number in 4..40 {
            assert_eq!(forms.get(&digest(0)), Some(body(1000)), "before form {number}");
            forms.insert(digest(number), body(1000));
            assert!(forms.bytes() <= 4 * (FORM_OVERHEAD + 1000));
        }
        assert_eq!(forms.get(&digest(1)), None);
        assert_eq!(forms.get(&digest(39)), Some(body(1000)));
    }

    #[test]
    fn test_what_is_not_made_smaller_is_remembered_and_all_can_be_forgotten() {
        let forms = CompressedForms::new(1 << 20);
        forms.insert(digest(1), None);
        forms.insert(digest(2), body(10));
        assert_eq!(forms.get(&digest(1)), Some(None));
        forms.forget(&[digest(1), digest(2), digest(3)]);
        assert_eq!((forms.get(&digest(1)), forms.get(&digest(2)), forms.bytes()), (None, None, 0));
    }

    #[test]
    fn test_nothing_is_kept_without_room() {
        for bytes_max in [0, 1000] {
            let forms = CompressedForms::new(bytes_max);
            forms.insert(digest(1), body(1000));
            assert_eq!((forms.get(&digest(1)), forms.bytes()), (None, 0));
        }
    }

    proptest! {
        /// Whatever is kept, asked for and forgotten: within the bound, and no byte is lost count of.
        #[test]
        fn proptest_forms_stay_within_their_bound(
            steps in prop::collection::vec((0_u64..30, 0_usize..3000, 0_u8..4), 0..300),
        ) {
            let forms = CompressedForms::new(10_000);
            for (number, len, step) in steps {
                match step {
                    0 => drop(forms.get(&digest(number))),
                    1 => forms.forget(&[digest(number)]),
                    _ => forms.insert(digest(number), (len > 0).then(|| vec![1; len].into())),
                }
                prop_assert!(forms.bytes() <= 10_000);
                let state = forms.state.lock();
                prop_assert_eq!(state.forms.values().map(Form::bytes).sum::<u64>(), state.bytes);
                prop_assert_eq!(state.queue.len(), state.forms.len());
            }
        }
    }
}
