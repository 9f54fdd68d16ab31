//! Letting go of what the page cache has of a file.
//!
//! After a write to the disk has failed the kernel keeps the pages, counts them as clean, and tells
//! the error once. From then on memory and disk differ, and nobody can see it: reads answer what
//! memory has, and the next sync finds nothing to write.
//!
//! Must never: report success while a read could be answered by memory that differs from the disk.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, OpenOptionsExt};

use memmap2::{MmapMut, MmapOptions};
use rustix::fs::{Advice, fadvise};

use crate::PAGE_BYTES;

/// Bytes compared at a time.
const STEP: usize = 1 << 20;

/// Lets go of all pages of a file that has none to be written. Those that somebody has mapped stay
/// in memory: they are compared with the disk.
///
/// # Errors
/// The kernel's error; `ResourceBusy` when pages that stay in memory differ from the disk.
pub fn forget_pages(file: &File) -> io::Result<()> {
    fadvise(file, 0, None, Advice::DontNeed)?;
    for (from, to) in resident_runs(file)? {
        compare(file, from, to)?;
    }
    Ok(())
}

/// Runs of bytes of a file that memory has.
fn resident_runs(file: &File) -> io::Result<Vec<(u64, u64)>> {
    let len = usize::try_from(file.metadata()?.len()).map_err(io::Error::other)?;
    let mut runs: Vec<(u64, u64)> = Vec::new();
    if len == 0 {
        return Ok(runs);
    }
    let mapping = MmapOptions::new().len(len).map_raw_read_only(file)?;
    let mut pages = vec![0_u8; len.div_ceil(PAGE_BYTES)];
    // SAFETY: the mapping is `len` bytes long and lives until the call returns; `pages` has a byte
    // for each page of it.
    let code = unsafe { libc::mincore(mapping.as_mut_ptr().cast(), len, pages.as_mut_ptr()) };
    if code != 0 {
        return Err(io::Error::last_os_error());
    }
    for (number, _) in pages.iter().enumerate().filter(|(_, flags)| **flags & 1 != 0) {
        let (from, to) = ((number * PAGE_BYTES) as u64, ((number + 1) * PAGE_BYTES) as u64);
        match runs.last_mut() {
            Some(last) if last.1 == from => last.1 = to,
            _ => runs.push((from, to)),
        }
    }
    Ok(runs)
}

/// Fills `buffer` with what the disk has of a file from `offset` on, whatever memory has.
///
/// # Errors
/// The kernel's error; `InvalidInput` where the file system keeps files in memory alone.
pub fn read_direct(file: &File, buffer: &mut [u8], offset: u64) -> io::Result<()> {
    let mut direct = open_direct(file)?;
    // Direct reads want whole pages, of memory as of the file.
    let skipped = (offset % PAGE_BYTES as u64) as usize;
    let mut pages = MmapMut::map_anon((skipped + buffer.len()).next_multiple_of(PAGE_BYTES))?;
    direct.seek(SeekFrom::Start(offset - skipped as u64))?;
    let read = read_full(&mut direct, &mut pages)?;
    let found = pages[..read].get(skipped..skipped + buffer.len());
    buffer.copy_from_slice(found.ok_or(io::ErrorKind::UnexpectedEof)?);
    Ok(())
}

fn open_direct(file: &File) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.read(true).custom_flags(libc::O_DIRECT);
    options.open(format!("/proc/self/fd/{}", file.as_raw_fd()))
}

/// Compares a range of a file in memory with the disk.
fn compare(file: &File, from: u64, to: u64) -> io::Result<()> {
    let mut direct = match open_direct(file) {
        Ok(direct) => direct,
        // A file system in memory: there is no disk to differ from.
        Err(error) if error.kind() == io::ErrorKind::InvalidInput => return Ok(()),
        Err(error) => return Err(error),
    };
    // Direct reads want whole pages of memory.
    let mut disk = MmapMut::map_anon(STEP)?;
    let mut memory = vec![0; STEP];
    let mut at = from;
    while at < to {
        let len = STEP.min((to - at) as usize);
        direct.seek(SeekFrom::Start(at))?;
        let read = read_full(&mut direct, &mut disk[..len])?;
        file.read_exact_at(&mut memory[..read], at)?;
        if disk[..read] != memory[..read] {
            let text = format!(
                "memory differs from the disk between bytes {at} and {}, after a write that \
                 failed, and is still being read; try again",
                at + read as u64
            );
            return Err(io::Error::new(io::ErrorKind::ResourceBusy, text));
        }
        if read < len {
            break; // the end of the file
        }
        at += len as u64;
    }
    Ok(())
}

/// Reads until the buffer is full or the file ends.
fn read_full(file: &mut File, buffer: &mut [u8]) -> io::Result<usize> {
    let mut done = 0;
    while done < buffer.len() {
        match file.read(&mut buffer[done..]) {
            Ok(0) => break,
            Ok(read) => done += read,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(done)
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    fn resident(file: &File) -> u64 {
        resident_runs(file).unwrap().iter().map(|(from, to)| to - from).sum()
    }

    #[test]
    fn pages_that_somebody_has_mapped_are_compared() {
        let mut file = tempfile::tempfile().unwrap();
        let content: Vec<u8> = (0..64 * PAGE_BYTES).map(|at| (at / 7) as u8).collect();
        file.write_all(&content).unwrap();
        file.sync_data().unwrap();
        assert_eq!(resident(&file), content.len() as u64);
        let mapping = MmapOptions::new().len(content.len()).map_raw_read_only(&file).unwrap();
        // SAFETY: in the mapping, of a file that nobody makes shorter.
        let byte = unsafe { mapping.as_ptr().add(5 * PAGE_BYTES).read_volatile() };
        assert_eq!(byte, content[5 * PAGE_BYTES]);
        forget_pages(&file).unwrap();
        assert!(resident(&file) > 0, "what is mapped stays");
        drop(mapping);
        forget_pages(&file).unwrap();
        assert_eq!(resident(&file), 0);
    }

    #[test]
    fn direct_reads_have_any_offset_and_length() {
        let mut file = tempfile::tempfile().unwrap();
        let content: Vec<u8> = (0..3 * PAGE_BYTES + 512).map(|at| (at / 7) as u8).collect();
        file.write_all(&content).unwrap();
        for (from, to) in [(0, 512), (64, 4160), (4095, 4097), (5000, content.len())] {
            let mut bytes = vec![0; to - from];
            read_direct(&file, &mut bytes, from as u64).unwrap();
            assert_eq!(bytes, content[from..to]);
        }
        let error = read_direct(&file, &mut [0; 2], content.len() as u64 - 1).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof);
    }

    #[test]
    fn empty_file_has_nothing_to_forget() {
        forget_pages(&tempfile::tempfile().unwrap()).unwrap();
    }
}
