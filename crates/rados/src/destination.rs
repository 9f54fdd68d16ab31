//! The buffers that a read fills, as memory for the pieces that it is cut into.

use std::ops::Range;

use bytes::BytesMut;

/// Buffers of ranges that follow each other.
///
/// Memory is lent for a piece, and given back with the piece's bytes. Where a piece is just what one
/// buffer is for, as that of a single chunk, the buffer itself is lent, and nothing is copied.
#[derive(Debug)]
pub(crate) struct Destination<'a> {
    buffers: Vec<&'a mut BytesMut>,
    /// Place of each buffer in the whole, bytes.
    ranges: Vec<Range<usize>>,
    len: usize,
}

impl<'a> Destination<'a> {
    pub(crate) fn new(buffers: impl IntoIterator<Item = &'a mut BytesMut>) -> Destination<'a> {
        let buffers: Vec<_> = buffers.into_iter().collect();
        let mut len = 0;
        let place = |buffer: &&'a mut BytesMut| {
            let start = len;
            len += buffer.len();
            start..len
        };
        let ranges = buffers.iter().map(place).collect();
        Destination { buffers, ranges, len }
    }

    /// Bytes of all buffers.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Lends memory for the bytes in `range`, as many as these are.
    pub(crate) fn lend(&mut self, range: &Range<usize>) -> BytesMut {
        match self.buffer_of(range) {
            Some(number) => std::mem::take(self.buffers[number]),
            None => BytesMut::zeroed(range.len()),
        }
    }

    /// Takes back what was lent for `range`.
    pub(crate) fn take_back(&mut self, range: &Range<usize>, memory: BytesMut) {
        match self.buffer_of(range) {
            Some(number) => *self.buffers[number] = memory,
            None => self.copy(range.start, &memory),
        }
    }

    /// Puts other memory in the place of buffers that were not given back.
    pub(crate) fn restore(&mut self) {
        for (buffer, range) in self.buffers.iter_mut().zip(&self.ranges) {
            if buffer.len() != range.len() {
                **buffer = BytesMut::zeroed(range.len());
            }
        }
    }

    /// Copies bytes that belong to `start` of the whole and behind.
    pub(crate) fn copy(&mut self, start: usize, bytes: &[u8]) {
        let end = start + bytes.len();
        for (buffer, range) in self.buffers.iter_mut().zip(&self.ranges) {
            let common = start.max(range.start)..end.min(range.end);
            if !common.is_empty() {
                let own = common.start - range.start..common.end - range.start;
                buffer[own].copy_from_slice(&bytes[common.start - start..common.end - start]);
            }
        }
    }

    /// The buffer whose bytes are those in `range`.
    fn buffer_of(&self, range: &Range<usize>) -> Option<usize> {
        if range.is_empty() {
            return None;
        }
        self.ranges.iter().position(|own| own == range)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn buffers(lens: &[usize]) -> Vec<BytesMut> {
        lens.iter().map(|len| BytesMut::zeroed(*len)).collect()
    }

    #[test]
    fn test_one_buffer_is_lent_itself() {
        let mut buffers = buffers(&[4, 0, 6]);
        let memory = buffers[2].as_ptr();
        let mut destination = Destination::new(&mut buffers);
        assert_eq!(destination.len(), 10);
        let mut lent = destination.lend(&(4..10));
        assert_eq!(lent.as_ptr(), memory);
        lent.copy_from_slice(b"456789");
        destination.take_back(&(4..10), lent);
        assert_eq!(buffers[2][..], b"456789"[..]);
        assert_eq!(buffers[2].as_ptr(), memory, "nothing was copied");
    }

    #[test]
    fn test_piece_of_several_buffers_or_of_a_part_is_copied() {
        let mut buffers = buffers(&[3, 0, 4, 3]);
        let mut destination = Destination::new(&mut buffers);
        for range in [0..5, 5..10] {
            let mut lent = destination.lend(&range);
            assert_eq!(lent.len(), range.len());
            lent.copy_from_slice(&b"0123456789"[range.clone()]);
            destination.take_back(&range, lent);
        }
        let joined: Vec<u8> = buffers.iter().flat_map(|buffer| buffer.to_vec()).collect();
        assert_eq!(joined, b"0123456789");
    }

    #[test]
    fn test_buffer_that_is_not_given_back_is_replaced() {
        let mut buffers = buffers(&[3, 4]);
        let mut destination = Destination::new(&mut buffers);
        drop(destination.lend(&(3..7)));
        destination.restore();
        destination.copy(2, b"abc");
        assert_eq!(buffers[0][..], *b"\0\0a");
        assert_eq!(buffers[1][..], *b"bc\0\0");
    }
}
