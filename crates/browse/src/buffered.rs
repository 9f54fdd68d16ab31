//! Pieces of a disk that are kept: file systems are read by blocks, and each asked for is a way to another process.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::io;

use crate::disk::{Disk, fits};

/// Bytes that are read at once: the usual size of a chunk, so each is read whole.
const PIECE_LEN: u64 = 64 << 10;
/// Pieces that are kept; 16 MiB.
const PIECES_MAX: usize = 256;

/// A disk whose pieces are kept, those that were used last.
pub struct Buffered<D> {
    disk: D,
    pieces: RefCell<VecDeque<(u64, Vec<u8>)>>,
}

impl<D: Disk> Buffered<D> {
    /// Keeps nothing yet.
    pub const fn new(disk: D) -> Self {
        Self { disk, pieces: RefCell::new(VecDeque::new()) }
    }

    /// Calls `copy` with the piece of a number.
    fn with_piece(&self, number: u64, copy: impl FnOnce(&[u8])) -> io::Result<()> {
        let mut pieces = self.pieces.borrow_mut();
        let found = match pieces.iter().position(|(other, _)| *other == number) {
            Some(at) => pieces.remove(at),
            None => None,
        };
        let piece = match found {
            Some(piece) => piece,
            None => {
                let start = number * PIECE_LEN;
                let len = PIECE_LEN.min(self.disk.size_bytes() - start);
                let mut bytes = vec![0; len as usize];
                self.disk.read_at(start, &mut bytes)?;
                (number, bytes)
            }
        };
        copy(&piece.1);
        pieces.push_front(piece);
        pieces.truncate(PIECES_MAX);
        Ok(())
    }
}

impl<D: Disk> Disk for Buffered<D> {
    fn size_bytes(&self) -> u64 {
        self.disk.size_bytes()
    }

    fn read_at(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        if !fits(offset, out.len(), self.size_bytes()) {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let mut done = 0;
        while done < out.len() {
            let at = offset + done as u64;
            let within = (at % PIECE_LEN) as usize;
            self.with_piece(at / PIECE_LEN, |piece| {
                let len = (piece.len() - within).min(out.len() - done);
                out[done..done + len].copy_from_slice(&piece[within..within + len]);
                done += len;
            })?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    struct Counted(Vec<u8>, Cell<u32>);

    impl Disk for Counted {
        fn size_bytes(&self) -> u64 {
            self.0.size_bytes()
        }

        fn read_at(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
            self.1.set(self.1.get() + 1);
            self.0.read_at(offset, out)
        }
    }

    #[test]
    fn test_reading_over_borders_and_up_to_the_end_is_that_of_the_disk() {
        let bytes: Vec<u8> = (0..200_001_u32).map(|n| (n % 251) as u8).collect();
        let disk = Buffered::new(Counted(bytes.clone(), Cell::new(0)));
        for (offset, len) in [(0, 1), (65_530, 20), (1, 200_000), (200_000, 1), (131_072, 0)] {
            let mut out = vec![0; len];
            disk.read_at(offset as u64, &mut out).unwrap();
            assert_eq!(out, bytes[offset..offset + len]);
        }
        assert_eq!(disk.disk.1.get(), 4, "each piece was read once");
        assert!(disk.read_at(200_000, &mut [0; 2]).is_err());
    }

    #[test]
    fn test_pieces_that_are_kept_are_bounded() {
        let disk = Buffered::new(Counted(vec![0; 300 << 16], Cell::new(0)));
        for number in 0..300_u64 {
            disk.read_at(number << 16, &mut [0; 512]).unwrap();
        }
        assert_eq!(disk.pieces.borrow().len(), PIECES_MAX);
    }
}
