//! Whether the mapped bytes of an answer are in memory, and bringing them there.
//!
//! The kernel copies mapped bytes to the socket on the thread that calls it. A page that must come from
//! the disk first would stop every connection of that thread, and one that cannot be had would be
//! found out in the middle of an answer. So an answer is given at once only when its pages are in the
//! page cache; else a blocking thread brings them in, where a failure is still an error to act on.

use std::io;

use acstor_overlay::Piece;
use acstor_readpath::Segment;
use bytes::Bytes;

const PAGE_BYTES: usize = 4096;
/// Pages looked at with one call.
const PAGES_PER_CALL: usize = 512;
const MADV_POPULATE_READ: libc::c_int = 22;

/// The mapped memory of a piece, if it has any.
pub(crate) fn mapped(piece: &Piece) -> Option<(*const u8, usize)> {
    match piece {
        Piece::Base(Segment::Mapped { chunk, start, len }) => {
            Some((chunk.mapped().wrapping_add(*start), *len))
        }
        Piece::Base(Segment::Zeros(_) | Segment::Bytes(_)) => None,
        Piece::Log(piece) => Some((piece.mapped(), piece.len())),
    }
}

/// Whether every mapped page of `pieces` is in the page cache.
pub(crate) fn is_resident(pieces: &[Piece]) -> bool {
    pieces.iter().filter_map(mapped).all(|(start, len)| is_range_resident(start, len))
}

fn is_range_resident(start: *const u8, len: usize) -> bool {
    let (mut page, end) = page_range(start, len);
    let mut residency = [0_u8; PAGES_PER_CALL];
    while page < end {
        let pages = ((end - page) / PAGE_BYTES).min(PAGES_PER_CALL);
        // SAFETY: the range is mapped while the piece lives, and the array has a byte for each page.
        let result = unsafe {
            libc::mincore(
                page as *mut libc::c_void,
                pages * PAGE_BYTES,
                residency.as_mut_ptr().cast(),
            )
        };
        if result != 0 || residency[..pages].iter().any(|state| state & 1 == 0) {
            return false;
        }
        page += pages * PAGE_BYTES;
    }
    true
}

/// Makes the kernel map every mapped page of `pieces` now; blocks while the disk is read.
pub(crate) fn populate(pieces: &[Piece]) -> io::Result<()> {
    for (start, len) in pieces.iter().filter_map(mapped) {
        let (first, end) = page_range(start, len);
        // SAFETY: populating neither changes nor frees memory; the piece keeps the mapping alive.
        let result =
            unsafe { libc::madvise(first as *mut libc::c_void, end - first, MADV_POPULATE_READ) };
        if result != 0 {
            let error = io::Error::last_os_error();
            // EINVAL: a kernel before 5.14, where the answer is simply tried.
            if error.raw_os_error() != Some(libc::EINVAL) {
                return Err(error);
            }
        }
    }
    Ok(())
}

/// Copies mapped pieces to memory by reading their files; blocks while the disk is read. All are
/// tried even when one fails, since a failed read makes the store drop the chunk.
pub(crate) fn copy(pieces: Vec<Piece>) -> io::Result<Vec<Piece>> {
    let mut result = Ok(());
    let copied = pieces
        .into_iter()
        .map(|piece| {
            let mut bytes = Vec::new();
            let outcome = match &piece {
                Piece::Base(Segment::Mapped { chunk, start, len }) => {
                    bytes.resize(*len, 0);
                    chunk.read_at(*start, &mut bytes)
                }
                Piece::Log(log) => {
                    bytes.resize(log.len(), 0);
                    log.read_at(0, &mut bytes)
                }
                Piece::Base(Segment::Zeros(_) | Segment::Bytes(_)) => return piece,
            };
            if result.is_ok() {
                result = outcome;
            }
            Piece::Base(Segment::Bytes(Bytes::from(bytes)))
        })
        .collect();
    result.map(|()| copied)
}

/// The pages of a range: the address of the first and the one behind the last.
fn page_range(start: *const u8, len: usize) -> (usize, usize) {
    let first = start as usize;
    (first & !(PAGE_BYTES - 1), (first + len).next_multiple_of(PAGE_BYTES))
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::os::fd::AsRawFd;

    use super::{PAGE_BYTES, is_range_resident};

    #[test]
    fn test_is_range_resident_tells_pages_in_memory_from_others() {
        let pages = 2048;
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(&vec![7; pages * PAGE_BYTES]).unwrap();
        file.sync_all().unwrap();
        // SAFETY: a fresh read-only mapping of a file that outlives it.
        let mapping = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                pages * PAGE_BYTES,
                libc::PROT_READ,
                libc::MAP_SHARED,
                file.as_raw_fd(),
                0,
            )
        };
        assert_ne!(mapping, libc::MAP_FAILED);
        let start = mapping.cast::<u8>().cast_const();
        assert!(is_range_resident(start, pages * PAGE_BYTES), "just written");
        assert!(is_range_resident(start.wrapping_add(100), 1));
        // SAFETY: advice for an open file.
        let advised =
            unsafe { libc::posix_fadvise(file.as_raw_fd(), 0, 0, libc::POSIX_FADV_DONTNEED) };
        assert_eq!(advised, 0);
        // A file system in memory has nowhere else to keep the pages.
        if !is_range_resident(start, pages * PAGE_BYTES) {
            let mut byte = [0];
            std::os::unix::fs::FileExt::read_exact_at(&file, &mut byte, 0).unwrap();
            assert!(is_range_resident(start, PAGE_BYTES), "just read");
        }
        // SAFETY: nothing refers to the mapping any more.
        assert_eq!(unsafe { libc::munmap(mapping, pages * PAGE_BYTES) }, 0);
    }
}
