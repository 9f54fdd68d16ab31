//! Disks as `mkfs`, `sfdisk` and others write them, and such as nobody should.
#![expect(clippy::unwrap_used, reason = "a test ends at the first surprise")]

use std::fs;
use std::io::{Read, Write};
use std::os::unix::fs::symlink;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Command, Stdio};
use std::rc::Rc;
use std::thread;

use acstor_browse::{
    ArchiveLimits, BrowseError, Disk, EntryKind, ExtTree, FileSystem, FileTree, Part, file_system,
    partitions, serve, write_archive,
};

const MIB: usize = 1 << 20;
const LIMITS: ArchiveLimits =
    ArchiveLimits { entries_max: 1000, bytes_max: 1 << 30, depth_max: 64 };

fn run(command: &mut Command) {
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

/// A file system of 16 MiB with a few files.
fn ext4(directory: &Path) -> Vec<u8> {
    let tree = directory.join("tree");
    fs::create_dir_all(tree.join("etc/deep/er")).unwrap();
    fs::write(tree.join("etc/hostname"), "web-1\n").unwrap();
    fs::write(tree.join("etc/deep/er/large"), large()).unwrap();
    fs::write(tree.join("etc/empty"), "").unwrap();
    symlink("hostname", tree.join("etc/link")).unwrap();
    symlink("/etc", tree.join("to-etc")).unwrap();
    let image = directory.join("image");
    let mut mkfs = Command::new("/sbin/mkfs.ext4");
    run(mkfs.args(["-q", "-L", "system", "-d"]).arg(&tree).arg(&image).arg("16M"));
    fs::read(image).unwrap()
}

fn large() -> Vec<u8> {
    (0..700_000_u32).flat_map(|n| n.to_le_bytes()).collect()
}

fn opened(image: Vec<u8>) -> ExtTree {
    ExtTree::open(Part::whole(Rc::new(image))).unwrap()
}

fn content(tree: &dyn FileTree, path: &[u8], offset: u64) -> Vec<u8> {
    let mut bytes = Vec::new();
    tree.open(path, offset).unwrap().read_to_end(&mut bytes).unwrap();
    bytes
}

#[test]
fn test_files_are_those_that_were_put_there() {
    let directory = tempfile::tempdir().unwrap();
    let tree = opened(ext4(directory.path()));
    assert_eq!(tree.label(), "system");
    let names: Vec<_> = tree.list(b"/etc").unwrap().into_iter().map(|one| one.name).collect();
    assert_eq!(names, [&b"deep"[..], b"empty", b"hostname", b"link"]);
    assert_eq!(content(&tree, b"/etc/hostname", 0), b"web-1\n");
    assert_eq!(content(&tree, b"/to-etc/hostname", 4), b"1\n", "links within a path are followed");
    assert_eq!(content(&tree, b"/etc/deep/er/large", 0), large());
    assert_eq!(content(&tree, b"/etc/deep/er/large", 65_537), large()[65_537..]);
    let link = tree.entry(b"/etc/link").unwrap();
    assert_eq!((link.kind, link.target.as_deref()), (EntryKind::Link, Some(&b"hostname"[..])));
    assert!(matches!(tree.open(b"/etc/link", 0), Err(BrowseError::Invalid(_))));
    assert!(matches!(tree.open(b"/etc", 0), Err(BrowseError::Invalid(_))));
    assert!(matches!(tree.entry(b"/etc/none"), Err(BrowseError::NotFound(_))));
    assert!(matches!(tree.list(b"/etc/hostname"), Err(BrowseError::Invalid(_))));
    assert!(matches!(tree.entry(b"etc"), Err(BrowseError::Invalid(_))), "paths are absolute");
}

#[test]
fn test_archive_is_what_tar_unpacks() {
    let directory = tempfile::tempdir().unwrap();
    let tree = opened(ext4(directory.path()));
    let mut archive = Vec::new();
    write_archive(&tree, b"/etc", LIMITS, &mut archive).unwrap();
    let out = directory.path().join("out");
    fs::create_dir(&out).unwrap();
    let mut tar =
        Command::new("tar").args(["-x", "-C"]).arg(&out).stdin(Stdio::piped()).spawn().unwrap();
    tar.stdin.take().unwrap().write_all(&archive).unwrap();
    assert!(tar.wait().unwrap().success());
    assert_eq!(fs::read(out.join("etc/deep/er/large")).unwrap(), large());
    assert_eq!(fs::read_link(out.join("etc/link")).unwrap(), Path::new("hostname"));
    let mut nothing = Vec::new();
    assert!(write_archive(&tree, b"/none", LIMITS, &mut nothing).is_err());
    assert!(nothing.is_empty());
    for limits in [
        ArchiveLimits { entries_max: 3, ..LIMITS },
        ArchiveLimits { bytes_max: 100, ..LIMITS },
        ArchiveLimits { depth_max: 2, ..LIMITS },
    ] {
        let mut archive = Vec::new();
        let result = write_archive(&tree, b"/etc", limits, &mut archive);
        assert!(matches!(result, Err(BrowseError::TooLarge(_))), "{limits:?}");
        assert!(!archive.ends_with(&[0; 1024]), "it has no end");
    }
}

/// A disk of 40 MiB with partitions as `sfdisk` makes them, one of which has the file system.
fn partitioned(directory: &Path, script: &str, at: usize) -> Rc<dyn Disk> {
    let path = directory.join("disk");
    fs::write(&path, vec![0; 40 * MIB]).unwrap();
    let mut sfdisk = Command::new("/sbin/sfdisk")
        .args(["-q", "--no-reread", "--no-tell-kernel"])
        .arg(&path)
        .stdin(Stdio::piped())
        .spawn()
        .unwrap();
    sfdisk.stdin.take().unwrap().write_all(script.as_bytes()).unwrap();
    assert!(sfdisk.wait().unwrap().success());
    let mut disk = fs::read(path).unwrap();
    let image = ext4(directory);
    disk[at..at + image.len()].copy_from_slice(&image);
    Rc::new(disk)
}

#[test]
fn test_partitions_of_gpt() {
    let directory = tempfile::tempdir().unwrap();
    let script =
        "label: gpt\nstart=2048,size=4096,name=\"boot\"\nstart=8192,size=32768,name=\"root\"\n";
    let disk = partitioned(directory.path(), script, 8192 * 512);
    let found = partitions(&disk).unwrap();
    assert_eq!(found.iter().map(|one| one.number).collect::<Vec<_>>(), [1, 2]);
    assert_eq!((found[1].name.as_str(), found[1].size_bytes), ("root", 32768 * 512));
    assert_eq!(file_system(&found[0].open(&disk)).unwrap(), FileSystem::Unknown);
    let tree = ExtTree::open(found[1].open(&disk)).unwrap();
    assert_eq!(content(&tree, b"/etc/hostname", 0), b"web-1\n");
}

#[test]
fn test_table_at_the_end_serves_where_the_first_is_damaged() {
    let directory = tempfile::tempdir().unwrap();
    let script = "label: gpt\nstart=8192,size=32768\n";
    let disk = partitioned(directory.path(), script, 8192 * 512);
    let mut bytes = vec![0; 40 * MIB];
    disk.read_at(0, &mut bytes).unwrap();
    bytes[512 + 60] ^= 1;
    let found = partitions(&(Rc::new(bytes.clone()) as Rc<dyn Disk>)).unwrap();
    assert_eq!(found.len(), 1);
    let last = bytes.len() - 512;
    bytes[last + 60] ^= 1;
    let damaged = partitions(&(Rc::new(bytes) as Rc<dyn Disk>));
    assert!(matches!(damaged, Err(BrowseError::Damaged(_))));
}

#[test]
fn test_partitions_of_mbr_with_logical_ones() {
    let directory = tempfile::tempdir().unwrap();
    let script = "label: dos\nstart=2048,size=2048,type=83\nstart=4096,size=70000,type=5\n\
                  start=6144,size=2048,type=83\nstart=12288,size=32768,type=83\n";
    let disk = partitioned(directory.path(), script, 12288 * 512);
    let found = partitions(&disk).unwrap();
    assert_eq!(found.iter().map(|one| one.number).collect::<Vec<_>>(), [1, 5, 6]);
    assert_eq!((found[2].start, found[2].size_bytes), (12288 * 512, 32768 * 512));
    assert_eq!(file_system(&found[2].open(&disk)).unwrap(), FileSystem::Ext);
}

#[test]
fn test_chain_of_logical_partitions_that_leads_back_ends() {
    let mut disk = vec![0; MIB];
    for at in [0, 512] {
        disk[at + 510..at + 512].copy_from_slice(&[0x55, 0xaa]);
    }
    let entry = |kind: u8, start: u32, sectors: u32| {
        let mut bytes = [0; 16];
        bytes[4] = kind;
        bytes[8..12].copy_from_slice(&start.to_le_bytes());
        bytes[12..].copy_from_slice(&sectors.to_le_bytes());
        bytes
    };
    disk[446..462].copy_from_slice(&entry(5, 1, 100));
    disk[512 + 446..512 + 462].copy_from_slice(&entry(0x83, 4, 8));
    disk[512 + 462..512 + 478].copy_from_slice(&entry(5, 0, 8));
    let found = partitions(&(Rc::new(disk) as Rc<dyn Disk>)).unwrap();
    assert_eq!(found.len(), 128);
}

#[test]
fn test_disk_without_a_table_is_one_partition() {
    let directory = tempfile::tempdir().unwrap();
    let disk: Rc<dyn Disk> = Rc::new(ext4(directory.path()));
    let found = partitions(&disk).unwrap();
    assert_eq!((found.len(), found[0].number), (1, 0));
    let empty: Rc<dyn Disk> = Rc::new(Vec::new());
    assert_eq!(partitions(&empty).unwrap()[0].size_bytes, 0);
}

/// Damage at many places: an answer or an error, and an end in any case.
#[test]
fn test_damaged_file_system_is_an_error_or_other_content() {
    let directory = tempfile::tempdir().unwrap();
    let image = ext4(directory.path());
    let mut seed = 1_u64;
    for _ in 0..200 {
        let mut damaged = image.clone();
        for _ in 0..30 {
            seed = seed
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            // Where the structures are: the first blocks of this small file system.
            damaged[(seed >> 33) as usize % (2 * MIB)] ^= (seed >> 20) as u8;
        }
        let Ok(tree) = ExtTree::open(Part::whole(Rc::new(damaged))) else { continue };
        let limits = ArchiveLimits { entries_max: 100, bytes_max: 1 << 24, depth_max: 8 };
        let _ = write_archive(&tree, b"/", limits, &mut std::io::sink());
    }
}

/// Sends one question, serves the disk, and returns the frames of the answer.
fn ask(disk: &[u8], question: &str) -> Vec<(u8, Vec<u8>)> {
    let (mut here, there) = UnixStream::pair().unwrap();
    let size = disk.len() as u64;
    let server = thread::spawn(move || serve(there, size).unwrap());
    let send = |stream: &mut UnixStream, kind: u8, content: &[u8]| {
        stream.write_all(&[kind]).unwrap();
        stream.write_all(&(content.len() as u32).to_le_bytes()).unwrap();
        stream.write_all(content).unwrap();
    };
    send(&mut here, b'Q', question.as_bytes());
    let mut frames = Vec::new();
    loop {
        let mut head = [0; 5];
        here.read_exact(&mut head).unwrap();
        let mut content = vec![0; u32::from_le_bytes(head[1..].try_into().unwrap()) as usize];
        here.read_exact(&mut content).unwrap();
        if head[0] == b'R' {
            let offset = u64::from_le_bytes(content[..8].try_into().unwrap()) as usize;
            let len = u32::from_le_bytes(content[8..].try_into().unwrap()) as usize;
            send(&mut here, b'D', &disk[offset..offset + len]);
            continue;
        }
        frames.push((head[0], content));
        if matches!(head[0], b'.' | b'E') {
            break;
        }
    }
    drop(here);
    assert_eq!(server.join().unwrap().requests, 1);
    frames
}

fn text(frame: &(u8, Vec<u8>)) -> &str {
    std::str::from_utf8(&frame.1).unwrap()
}

#[test]
fn test_questions_are_answered_over_a_socket() {
    let directory = tempfile::tempdir().unwrap();
    let disk = ext4(directory.path());
    let found = ask(&disk, r#"{"op":"partitions"}"#);
    assert!(text(&found[1]).contains(r#""file_system":"ext","label":"system","is_readable":true"#));
    let read =
        r#"{"op":"read","partition":0,"path":"/etc/deep/er/large","offset":1,"length":600000}"#;
    let bytes: Vec<u8> = ask(&disk, read)
        .into_iter()
        .filter(|(kind, _)| *kind == b'B')
        .flat_map(|(_, b)| b)
        .collect();
    assert_eq!(bytes, large()[1..600_001]);
    let walk = ask(&disk, r#"{"op":"walk","partition":0,"path":"/"}"#);
    assert!(walk.iter().any(|frame| text(frame).contains(r#""name":"/etc/deep/er/large""#)));
    assert!(
        text(&ask(&disk, r#"{"op":"list","partition":7,"path":"/"}"#)[1]).contains("not_found")
    );
    assert!(text(&ask(&disk, r#"{"op":"fly"}"#)[1]).contains(r#""kind":"invalid""#));
}

/// Frames of this version, byte by byte.
#[test]
fn test_frames_are_those_of_the_golden_file() {
    let golden = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/golden/browsing-v1.bin");
    let expected = fs::read(golden).unwrap();
    let (mut here, there) = UnixStream::pair().unwrap();
    let server = thread::spawn(move || serve(there, 512).unwrap());
    for (kind, content) in [
        (b'Q', &br#"{"op":"partitions"}"#[..]),
        (b'D', &[0; 512]),
        (b'Q', br#"{"op":"list","partition":3,"path":"/"}"#),
    ] {
        here.write_all(&[kind]).unwrap();
        here.write_all(&(content.len() as u32).to_le_bytes()).unwrap();
        here.write_all(content).unwrap();
    }
    here.shutdown(std::net::Shutdown::Write).unwrap();
    let mut sent = Vec::new();
    here.read_to_end(&mut sent).unwrap();
    assert_eq!(server.join().unwrap().requests, 2);
    assert_eq!(String::from_utf8_lossy(&sent), String::from_utf8_lossy(&expected));
}

/// An older use of the disk left its mark behind the table.
#[test]
fn test_table_counts_before_a_signature_of_an_older_use() {
    let directory = tempfile::tempdir().unwrap();
    let script = "label: dos\nstart=8192,size=32768,type=83\n";
    let disk = partitioned(directory.path(), script, 8192 * 512);
    let mut bytes = vec![0; 40 * MIB];
    disk.read_at(0, &mut bytes).unwrap();
    bytes[0x10040..0x10048].copy_from_slice(b"_BHRfS_M");
    let found = partitions(&(Rc::new(bytes) as Rc<dyn Disk>)).unwrap();
    assert_eq!(found.iter().map(|one| one.number).collect::<Vec<_>>(), [1]);
}

#[test]
fn test_names_and_targets_of_an_archive_are_byte_by_byte() {
    use std::os::unix::ffi::OsStrExt as _;
    let directory = tempfile::tempdir().unwrap();
    let tree = directory.path().join("tree/etc");
    let long = std::ffi::OsString::from("d".repeat(60)).into_encoded_bytes();
    let name = [&long[..], b"\xe9"].concat();
    let deep = tree.join(std::ffi::OsStr::from_bytes(&name)).join("e".repeat(60));
    fs::create_dir_all(&deep).unwrap();
    symlink("a/.//b", deep.join("link")).unwrap();
    symlink("t".repeat(150), deep.join("long")).unwrap();
    let image = directory.path().join("image");
    let mut mkfs = Command::new("/sbin/mkfs.ext4");
    run(mkfs.args(["-q", "-d"]).arg(directory.path().join("tree")).arg(&image).arg("16M"));
    let mut archive = Vec::new();
    let tree = opened(fs::read(image).unwrap());
    write_archive(&tree, b"/etc", LIMITS, &mut archive).unwrap();
    let out = directory.path().join("out");
    fs::create_dir(&out).unwrap();
    fs::write(directory.path().join("tar"), archive).unwrap();
    run(Command::new("tar").arg("-xf").arg(directory.path().join("tar")).arg("-C").arg(&out));
    let deep = out.join("etc").join(std::ffi::OsStr::from_bytes(&name)).join("e".repeat(60));
    assert_eq!(fs::read_link(deep.join("link")).unwrap().as_os_str(), "a/.//b");
    assert_eq!(fs::read_link(deep.join("long")).unwrap(), Path::new(&"t".repeat(150)));
}
