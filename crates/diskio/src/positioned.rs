//! Reads and writes at offsets, by many threads at once.

use std::fs::File;
use std::io::{self, IoSlice, IoSliceMut};

use rustix::io::{Errno, ReadWriteFlags, preadv2, pwritev};

/// Writes `parts`, one after the other, from `offset` on; consumes the slices.
///
/// # Errors
/// The kernel's error; any part of the range may have been written.
pub fn write_all_at(file: &File, parts: &mut [IoSlice<'_>], offset: u64) -> io::Result<()> {
    let mut parts = parts;
    let mut offset = offset;
    while !parts.is_empty() {
        match pwritev(file, parts, offset) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(written) => {
                offset += written as u64;
                IoSlice::advance_slices(&mut parts, written);
            }
            Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

/// Fills `buffer` from `offset` on if memory has all of it; `false` where it has not, or where that
/// cannot be told, and nobody knows which part of the buffer was filled. Never waits for the disk, but
/// may have it begin to read.
pub fn read_cached(file: &File, buffer: &mut [u8], offset: u64) -> bool {
    let len = buffer.len();
    let mut parts = [IoSliceMut::new(buffer)];
    // A file system without it (EOPNOTSUPP) is one that cannot tell.
    preadv2(file, &mut parts, offset, ReadWriteFlags::NOWAIT) == Ok(len)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn test_write_all_at_writes_every_part_where_it_belongs() {
        let file = tempfile::tempfile().unwrap();
        let parts: Vec<Vec<u8>> = (0..5).map(|n| vec![n + 1; 1000 * usize::from(n)]).collect();
        let mut slices: Vec<_> = parts.iter().map(|part| IoSlice::new(part)).collect();
        write_all_at(&file, &mut slices, 512).unwrap();
        let mut content = vec![0; 10_000];
        std::os::unix::fs::FileExt::read_exact_at(&file, &mut content, 512).unwrap();
        assert_eq!(content, parts.concat());
    }

    #[test]
    fn test_read_cached_beyond_the_end_is_no_answer() {
        let file = tempfile::tempfile().unwrap();
        file.set_len(4096).unwrap();
        assert!(!read_cached(&file, &mut [0; 8192], 0));
    }
}
