//! Residency of an answer's mapped bytes in memory, and population of missing pages.
//!
//! The kernel copies mapped bytes to the socket on the thread that calls it. A page that must come from
//! the disk first would stop every connection of that thread, and one that cannot be had would be
//! found out in the middle of an answer. So an answer is given at once only when its pages are in the
//! page cache; else a blocking thread brings them in, where a failure is still an error to act on.

use std::io;

use acstor_overlay::Piece;
use acstor_readpath::Segment;
use bytes::Bytes;

/// The mapped memory of a piece, if it has any.
pub(crate) fn mapped(piece: &Piece) -> Option<(*const u8, usize)> {
    match piece {
        Piece::Base(Segment::Mapped { chunk, start, len }) => {
            Some((chunk.mapped().wrapping_add(*start), *len))
        }
        Piece::Base(Segment::Zeros(_) | Segment::Bytes(_)) => None,
        Piece::Log(piece) => Some((piece.mapped()?, piece.len())),
    }
}

/// Returns whether bytes of a piece are in a file, and not in memory of this process.
pub(crate) fn is_in_file(piece: &Piece) -> bool {
    matches!(piece, Piece::Log(_) | Piece::Base(Segment::Mapped { .. }))
}

/// Returns whether `pieces` can be sent as they are: every mapped page is in the page cache, and
/// what it has there is what was written.
pub(crate) fn is_resident(pieces: &[Piece]) -> bool {
    pieces.iter().all(is_at_hand)
}

/// Returns whether a piece can be sent as it is.
pub(crate) fn is_at_hand(piece: &Piece) -> bool {
    match piece {
        Piece::Log(log) => log.is_at_hand(),
        Piece::Base(Segment::Mapped { chunk, start, len }) => chunk.is_at_hand(*start, *len),
        Piece::Base(Segment::Zeros(_) | Segment::Bytes(_)) => true,
    }
}

/// Tells the store of the mapped chunks among `pieces`, of which the kernel found one without a page, or
/// a piece of the log; the log compares what it reads.
pub(crate) fn note_fault<'a>(pieces: impl Iterator<Item = &'a Piece>) {
    for piece in pieces {
        if let Piece::Base(Segment::Mapped { chunk, .. }) = piece {
            chunk.note_fault();
        }
    }
}

/// Brings every mapped page of `pieces` to memory; blocks while the disk is read.
///
/// A chunk of the base is read whole and hashed, and so is a record of the log, since what the disk has
/// may not be what was written there.
pub(crate) fn populate(pieces: Vec<Piece>) -> io::Result<Vec<Piece>> {
    let mut result = Ok(());
    for piece in &pieces {
        if let Piece::Log(log) = piece {
            log.start_read();
        }
    }
    let brought = pieces
        .into_iter()
        .map(|piece| {
            if is_at_hand(&piece) || result.is_err() {
                return piece;
            }
            let (outcome, piece) = copy_one(piece);
            result = outcome;
            piece
        })
        .collect();
    result.map(|()| brought)
}

/// Copies mapped pieces to memory by reading their files; blocks while the disk is read. All are
/// tried even when one fails, since a failed read makes the store drop the chunk.
pub(crate) fn copy(pieces: Vec<Piece>) -> io::Result<Vec<Piece>> {
    let mut result = Ok(());
    let copied = pieces
        .into_iter()
        .map(|piece| {
            let (outcome, piece) = copy_one(piece);
            if result.is_ok() {
                result = outcome;
            }
            piece
        })
        .collect();
    result.map(|()| copied)
}

fn copy_one(piece: Piece) -> (io::Result<()>, Piece) {
    if !is_in_file(&piece) {
        return (Ok(()), piece);
    }
    let mut bytes = vec![0; piece.len()];
    let outcome = match &piece {
        Piece::Base(segment) => segment.read_to(&mut bytes),
        Piece::Log(log) => log.read_at(0, &mut bytes),
    };
    (outcome, Piece::Base(Segment::Bytes(Bytes::from(bytes))))
}
