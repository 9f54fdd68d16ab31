//! Reads of a volume's first sectors that its owner answers while another host is its standby.
//!
//! QEMU reads the first sector of a disk when it starts, also where it starts for a live migration
//! whose guest runs on at the source. Were the volume handed over for that, the guest would wait
//! until all that it wrote had been pushed, and once more until the volume came back. So such a read
//! is answered by what the owner has, through whoever asks it, and the volume stays.
//!
//! A read is answered by content that was read at the owner after the read had come: it is as much of
//! one moment as any that the owner answers itself.

use bytes::Bytes;

/// Bytes at the beginning of a volume that are read this way.
pub const HEAD_BYTES: u64 = 4096;

/// A number of looks at the owner's content: of those that were begun, the later the higher.
pub type Look = u64;

/// Reads of the first sectors that wait, and what is known for them.
#[derive(Debug, Default)]
pub(super) struct HeadReads {
    /// The last look that was begun.
    begun: Look,
    /// The first look that answers every read that has come.
    wanted: Look,
    /// The last look that was answered, and what it found.
    found: Option<(Look, Bytes)>,
    /// Nobody answers: such reads wait for the volume itself, as all others.
    is_given_up: bool,
}

impl HeadReads {
    /// Returns whether a read lies in the sectors that are answered this way.
    pub(super) fn covers(&self, offset: u64, len: usize) -> bool {
        !self.is_given_up && len > 0 && offset.saturating_add(len as u64) <= HEAD_BYTES
    }

    /// A read has come: returns the first look that may answer it.
    pub(super) fn wait(&mut self) -> Look {
        self.wanted = self.begun + 1;
        self.wanted
    }

    /// Begins a look for the reads that wait; `None`: none does. One that is not answered is
    /// followed by another.
    pub(super) fn begin(&mut self) -> Option<Look> {
        if !self.is_wanted() {
            return None;
        }
        self.begun += 1;
        Some(self.begun)
    }

    /// Returns whether a read waits for an answer.
    pub(super) fn is_wanted(&self) -> bool {
        let last = self.found.as_ref().map_or(0, |(look, _)| *look);
        self.wanted > last && !self.is_given_up
    }

    /// Notes the result of `look`: the volume's content from its beginning on.
    pub(super) fn answer(&mut self, look: Look, content: Bytes) {
        if self.found.as_ref().is_none_or(|(last, _)| *last < look) && look <= self.begun {
            self.found = Some((look, content));
        }
    }

    /// From now on nobody answers.
    pub(super) fn give_up(&mut self) {
        *self = HeadReads { is_given_up: true, begun: self.begun, ..HeadReads::default() };
    }

    /// The answer to a read that waits for `first` or a later look.
    pub(super) fn found(&self, first: Look, offset: u64, len: usize) -> Option<Bytes> {
        let (look, content) = self.found.as_ref()?;
        let start = usize::try_from(offset).ok()?;
        let end = start.checked_add(len)?;
        (*look >= first && end <= content.len()).then(|| content.slice(start..end))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn test_only_a_look_begun_after_the_read_answers_it() {
        let mut head = HeadReads::default();
        assert!(head.begin().is_none(), "nobody waits");
        let first = head.wait();
        let look = head.begin().unwrap();
        let second = head.wait();
        head.answer(look, Bytes::from_static(&[1; 4096]));
        assert_eq!(head.found(first, 512, 2).unwrap(), Bytes::from_static(&[1; 2]));
        assert!(head.found(second, 0, 512).is_none(), "it came after the look had begun");
        assert!(head.is_wanted());
        head.begin().unwrap(); // which nobody answers
        let later = head.begin().unwrap();
        head.answer(later, Bytes::from_static(&[2; 4096]));
        head.answer(look, Bytes::from_static(&[1; 4096]));
        assert_eq!(
            head.found(second, 0, 1).unwrap(),
            Bytes::from_static(&[2]),
            "the later one counts"
        );
        assert!(!head.is_wanted());
    }

    #[test]
    fn test_only_the_first_sectors_are_covered_until_given_up() {
        let mut head = HeadReads::default();
        assert!(head.covers(0, 512) && head.covers(3584, 512));
        assert!(!head.covers(3584, 513) && !head.covers(u64::MAX, 2) && !head.covers(0, 0));
        head.wait();
        head.give_up();
        assert!(!head.covers(0, 512) && !head.is_wanted() && head.begin().is_none());
    }

    #[test]
    fn test_content_that_is_short_or_of_no_look_answers_nothing() {
        let mut head = HeadReads::default();
        let first = head.wait();
        head.answer(7, Bytes::from_static(&[1; 4096]));
        assert!(head.found(first, 0, 512).is_none(), "no such look was begun");
        let look = head.begin().unwrap();
        head.answer(look, Bytes::from_static(&[1; 512]));
        assert!(head.found(first, 512, 512).is_none());
        assert!(head.found(first, 0, 512).is_some());
    }
}
