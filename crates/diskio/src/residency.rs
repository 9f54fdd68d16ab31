//! Residency of a file's mapped bytes in memory, and mapping of the resident ones.
//!
//! The kernel copies mapped bytes on the thread that asks it to. A page that must come from the disk
//! first stops that thread, and brings bytes that nobody has hashed. So mapped bytes are used only
//! where they are in the page cache.

use std::io;

use crate::PAGE_BYTES;

const MADV_POPULATE_READ: libc::c_int = 22;
/// Pages looked at with one call.
const PAGES_PER_CALL: usize = 512;

/// Returns whether every page of a mapped range is in the page cache; does no I/O.
///
/// A range that is not mapped is not resident.
pub fn is_resident(start: *const u8, len: usize) -> bool {
    let (mut page, end) = page_range(start, len);
    let mut residency = [0_u8; PAGES_PER_CALL];
    while page < end {
        let pages = ((end - page) / PAGE_BYTES).min(PAGES_PER_CALL);
        // SAFETY: the array has a byte for each page; the kernel refuses a range that is not mapped.
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

/// Makes the kernel map every page of a range now; reads what is not in memory.
///
/// Where an answer is copied from pages that are not mapped, a SIGKILL ends the copy in its midst, and
/// the reader gets an error: with mapped ones it gets its answer, from this process or the next.
///
/// # Errors
/// The kernel's: the file ends before the range does, or the disk fails.
pub fn populate(start: *const u8, len: usize) -> io::Result<()> {
    let (first, end) = page_range(start, len);
    // SAFETY: populating neither changes nor frees memory; the kernel refuses what is not mapped.
    let result =
        unsafe { libc::madvise(first as *mut libc::c_void, end - first, MADV_POPULATE_READ) };
    let error = io::Error::last_os_error();
    // EINVAL: a kernel before 5.14, where pages are mapped when they are used.
    if result == 0 || error.raw_os_error() == Some(libc::EINVAL) { Ok(()) } else { Err(error) }
}

/// Returns the pages of a range: the address of the first and the one behind the last.
fn page_range(start: *const u8, len: usize) -> (usize, usize) {
    let first = start as usize;
    (first & !(PAGE_BYTES - 1), (first + len).next_multiple_of(PAGE_BYTES))
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::os::fd::AsRawFd;

    use super::is_resident;
    use crate::PAGE_BYTES;

    #[test]
    fn test_is_resident_tells_pages_in_memory_from_others() {
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
        assert!(is_resident(start, pages * PAGE_BYTES), "just written");
        assert!(is_resident(start.wrapping_add(100), 1));
        // SAFETY: advice for an open file.
        let advised =
            unsafe { libc::posix_fadvise(file.as_raw_fd(), 0, 0, libc::POSIX_FADV_DONTNEED) };
        assert_eq!(advised, 0);
        // A file system in memory has nowhere else to keep the pages.
        if !is_resident(start, pages * PAGE_BYTES) {
            let mut byte = [0];
            std::os::unix::fs::FileExt::read_exact_at(&file, &mut byte, 0).unwrap();
            assert!(is_resident(start, PAGE_BYTES), "just read");
        }
        // SAFETY: nothing refers to the mapping any more.
        assert_eq!(unsafe { libc::munmap(mapping, pages * PAGE_BYTES) }, 0);
    }
}
