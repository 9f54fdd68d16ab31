//! The answer to a read: bytes as they are, runs of zeroes as holes where the client knows them.

use acstor_overlay::Piece;
use acstor_readpath::Segment;

use super::output::Output;
use crate::protocol::{ReplyShape, ReplyTo};

/// Shortest run of zeroes that is told as a hole, bytes: below, spelling it out is cheaper than the
/// client's handling of one more chunk.
const HOLE_MIN: usize = 4096;

/// A run of pieces that goes into one chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Run {
    is_hole: bool,
    len: usize,
    pieces: usize,
}

/// Pushes the answer to a read from `offset` on, whose bytes are `pieces`.
pub(super) fn push(
    output: &mut Output,
    to: ReplyTo,
    offset: u64,
    pieces: Vec<Piece>,
    is_whole: bool,
) {
    let len: usize = pieces.iter().map(Piece::len).sum();
    if to.shape == ReplyShape::Simple {
        output.push_head(to.simple(0));
        return pieces.into_iter().for_each(|piece| output.push_piece(piece));
    }
    if is_whole || !pieces.iter().any(is_zeros) {
        output.push_head(to.data(offset, len as u32, true));
        return pieces.into_iter().for_each(|piece| output.push_piece(piece));
    }
    let mut at = offset;
    let mut pieces = pieces.into_iter();
    let runs = runs_of(pieces.as_slice());
    for (number, run) in runs.iter().enumerate() {
        let is_last = number + 1 == runs.len();
        let of_run = pieces.by_ref().take(run.pieces);
        if run.is_hole {
            output.push_head(to.hole(at, run.len as u32, is_last));
            of_run.for_each(drop);
        } else {
            output.push_head(to.data(at, run.len as u32, is_last));
            of_run.for_each(|piece| output.push_piece(piece));
        }
        at += run.len as u64;
    }
}

fn is_zeros(piece: &Piece) -> bool {
    matches!(piece, Piece::Base(Segment::Zeros(_)))
}

/// Splits pieces into runs of zeroes of some length and of everything else.
fn runs_of(pieces: &[Piece]) -> Vec<Run> {
    let mut runs: Vec<Run> = Vec::new();
    let mut rest = pieces;
    while let Some(first) = rest.first() {
        let is_zero_run = is_zeros(first);
        let count = rest.iter().take_while(|piece| is_zeros(piece) == is_zero_run).count();
        let len = rest[..count].iter().map(Piece::len).sum();
        let is_hole = is_zero_run && len >= HOLE_MIN;
        match runs.last_mut() {
            Some(last) if !last.is_hole && !is_hole => {
                last.len += len;
                last.pieces += count;
            }
            _ if len > 0 => runs.push(Run { is_hole, len, pieces: count }),
            _ => {}
        }
        rest = &rest[count..];
    }
    runs
}

#[cfg(test)]
mod tests {
    use acstor_overlay::Piece;
    use acstor_readpath::Segment;
    use bytes::Bytes;

    use super::{Run, runs_of};

    fn zeros(len: usize) -> Piece {
        Piece::Base(Segment::Zeros(len))
    }

    fn data(len: usize) -> Piece {
        Piece::Base(Segment::Bytes(Bytes::from(vec![1; len])))
    }

    fn hole(len: usize, pieces: usize) -> Run {
        Run { is_hole: true, len, pieces }
    }

    fn bytes(len: usize, pieces: usize) -> Run {
        Run { is_hole: false, len, pieces }
    }

    #[test]
    fn test_runs_of_merges_neighbours_of_a_kind() {
        let pieces = [zeros(2048), zeros(2048), data(512), data(512), zeros(8192)];
        assert_eq!(runs_of(&pieces), [hole(4096, 2), bytes(1024, 2), hole(8192, 1)]);
    }

    #[test]
    fn test_runs_of_short_zeroes_are_data() {
        let pieces = [data(512), zeros(512), data(512), zeros(4096), zeros(512), data(512)];
        assert_eq!(runs_of(&pieces), [bytes(1536, 3), hole(4608, 2), bytes(512, 1)]);
        assert_eq!(runs_of(&[zeros(512)]), [bytes(512, 1)]);
    }
}
