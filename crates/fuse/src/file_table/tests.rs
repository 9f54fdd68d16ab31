use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use acstor_readpath::{BlockView, ExtentKind, ReadError, ReadFuture, Segment, TryRead};
use acstor_types::DiskId;
use proptest::prelude::*;

use super::{Detached, Entry, FileTable, kernel_use_of};
use crate::FuseError;
use crate::file::File;
use crate::wire::inode::FileKey;
use crate::wire::request::Opener;

#[derive(Default)]
struct ZeroView {
    size: u64,
    closes: AtomicUsize,
}

impl BlockView for ZeroView {
    fn size_bytes(&self) -> u64 {
        self.size
    }

    fn closed(&self) {
        self.closes.fetch_add(1, Ordering::Relaxed);
    }

    fn try_read(&self, _offset: u64, len: usize) -> Result<TryRead, ReadError> {
        Ok(TryRead::Ready(vec![Segment::Zeros(len)]))
    }

    fn read(&self, _offset: u64, len: usize) -> ReadFuture {
        Box::pin(async move { Ok(vec![Segment::Zeros(len)]) })
    }

    fn next_extent(&self, offset: u64, kind: ExtentKind) -> Option<u64> {
        (kind == ExtentKind::Hole).then_some(offset)
    }

    fn cached_bytes(&self) -> u64 {
        0
    }
}

const GUEST: Opener = Opener { is_direct: true, is_recorded: true };
const COPIER: Opener = Opener { is_direct: true, is_recorded: false };

fn view(size: u64) -> Arc<dyn BlockView> {
    Arc::new(ZeroView { size, ..ZeroView::default() })
}

fn disk(number: u8) -> DiskId {
    DiskId::from_bytes([number; 16])
}

fn inode(number: u8) -> u64 {
    FileKey::of(disk(number)).inode
}

#[test]
fn an_attached_file_is_found_by_name() {
    let table = FileTable::new();
    table.attach("a.raw", disk(1), view(512)).unwrap();
    let file = table.look_up(b"a.raw").unwrap();
    assert_eq!((file.disk, file.key.inode), (disk(1), inode(1)));
    assert!(table.look_up(b"b.raw").is_none());
    assert!(table.look_up(b"\xff").is_none());
    assert_eq!(table.totals(), (1, 512));
}

#[test]
fn a_view_is_told_of_the_close_of_each_open_that_it_was_told_of() {
    let table = FileTable::new();
    let view = Arc::new(ZeroView { size: 512, ..ZeroView::default() });
    table.attach("a.raw", disk(1), view.clone()).unwrap();
    // One from before a take-over.
    table.release(inode(1), GUEST);
    assert_eq!(view.closes.load(Ordering::Relaxed), 0);
    assert!(table.open(inode(1)).is_some() && table.open(inode(1)).is_some());
    table.release(inode(1), GUEST);
    assert_eq!(view.closes.load(Ordering::Relaxed), 1);
    // Whoever is no guest told nothing of its open either.
    assert!(table.open(inode(1)).is_some());
    table.release(inode(1), COPIER);
    assert_eq!(view.closes.load(Ordering::Relaxed), 1);
    table.release(inode(1), GUEST);
    table.release(inode(1), GUEST);
    assert_eq!(view.closes.load(Ordering::Relaxed), 2);
}

#[test]
fn a_name_or_disk_is_attached_once() {
    let table = FileTable::new();
    table.attach("a", disk(1), view(1)).unwrap();
    for (name, number) in [("a", 2), ("b", 1), ("a", 1)] {
        let error = table.attach(name, disk(number), view(1)).unwrap_err();
        assert!(matches!(error, FuseError::Attached { .. }), "{error}");
    }
    for name in ["", ".", "..", "a/b", "a\0", &"n".repeat(256)] {
        let error = table.attach(name, disk(3), view(1)).unwrap_err();
        assert!(matches!(error, FuseError::Name { .. }), "{error}");
    }
}

#[test]
fn an_unused_file_is_gone_when_detached() {
    let table = FileTable::new();
    table.attach("a", disk(1), view(1)).unwrap();
    assert_eq!(table.detach(disk(1)).unwrap(), Detached::Gone);
    assert!(table.get(inode(1)).is_none());
    assert!(matches!(table.detach(disk(1)), Err(FuseError::NotAttached { .. })));
}

#[test]
fn an_open_file_serves_until_its_last_close() {
    let table = FileTable::new();
    table.attach("a", disk(1), view(1)).unwrap();
    table.open(inode(1)).unwrap();
    table.open(inode(1)).unwrap();
    assert_eq!(table.detach(disk(1)).unwrap(), Detached::StillOpen);
    assert!(table.look_up(b"a").is_none(), "the name is gone");
    assert!(table.open(inode(1)).is_none(), "no new opens");
    table.release(inode(1), GUEST);
    assert!(table.get(inode(1)).is_some(), "one is still open");
    assert!(!table.list()[0].is_listed);
    table.release(inode(1), GUEST);
    assert!(table.get(inode(1)).is_none());
}

#[test]
fn an_image_attached_again_keeps_its_opens() {
    let table = FileTable::new();
    table.attach("a", disk(1), view(1)).unwrap();
    table.open(inode(1)).unwrap();
    assert_eq!(table.detach(disk(1)).unwrap(), Detached::StillOpen);
    let error = table.attach("a", disk(1), view(2)).unwrap_err();
    assert!(matches!(error, FuseError::SizeChanged { .. }), "{error}");
    table.attach("a", disk(1), view(1)).unwrap();
    table.release(inode(1), GUEST);
    assert!(table.get(inode(1)).is_some(), "a listed file stays");
    assert_eq!(table.list()[0].opens, 0);
}

#[test]
fn a_disk_never_takes_the_inode_of_another() {
    let file = File::new("a".into(), disk(1), view(1), Arc::default());
    let entry = Entry { file: Arc::new(file), is_listed: false };
    let error = kernel_use_of(&entry, disk(2), 1).unwrap_err();
    assert!(matches!(error, FuseError::InodeTaken { .. }), "{error}");
    assert!(kernel_use_of(&entry, disk(1), 1).is_ok());
}

#[test]
fn the_status_is_that_of_one_disk() {
    let table = FileTable::new();
    table.attach("a", disk(1), view(9)).unwrap();
    let status = table.status(disk(1)).unwrap();
    assert_eq!((status.name.as_str(), status.size_bytes, status.is_listed), ("a", 9, true));
    assert_eq!(table.status(disk(2)), None);
}

#[test]
fn a_hidden_file_has_no_name_and_is_not_listed() {
    let table = FileTable::new();
    table.attach_hidden("a", disk(1), view(1)).unwrap();
    assert!(table.look_up(b"a").is_none());
    assert!(table.listed_after(0, 10).is_empty());
    assert!(table.get(inode(1)).is_some());
}

#[test]
fn a_close_or_forget_of_a_former_process_is_taken() {
    let table = FileTable::new();
    table.attach("a", disk(1), view(1)).unwrap();
    table.release(inode(1), GUEST);
    table.release(99, GUEST);
    table.forget(inode(1), 7);
    table.forget(99, u64::MAX);
    assert_eq!(table.list()[0].opens, 0);
    table.open(inode(1)).unwrap();
    assert_eq!(table.list()[0].opens, 1);
}

#[test]
fn a_listing_goes_on_after_any_inode() {
    let table = FileTable::new();
    for number in 0..20 {
        table.attach(&format!("{number}"), disk(number), view(1)).unwrap();
    }
    let all: Vec<u64> = table.listed_after(0, 99).iter().map(|file| file.key.inode).collect();
    assert!(all.is_sorted() && all.len() == 20);
    let some: Vec<u64> = table.listed_after(all[7], 5).iter().map(|file| file.key.inode).collect();
    assert_eq!(some, all[8..13]);
}

proptest! {
    #[test]
    fn names_lead_to_listed_files_whatever_happens(
        steps in proptest::collection::vec((0u8..6, 0u8..4), 0..60)
    ) {
        let table = FileTable::new();
        let mut listed = [false; 4];
        let mut opens = [0u64; 4];
        for (step, number) in steps {
            let at = usize::from(number);
            let name = format!("{number}.raw");
            match step {
                0 => {
                    let attached = table.attach(&name, disk(number), view(8)).is_ok();
                    prop_assert_eq!(attached, !listed[at]);
                    listed[at] = true;
                }
                1 => {
                    let detached = table.detach(disk(number));
                    prop_assert_eq!(detached.is_ok(), listed[at]);
                    if let Ok(detached) = detached {
                        prop_assert_eq!(detached == Detached::Gone, opens[at] == 0);
                    }
                    listed[at] = false;
                }
                2 => {
                    let opened = table.open(inode(number)).is_some();
                    prop_assert_eq!(opened, listed[at]);
                    opens[at] += u64::from(opened);
                }
                3 => {
                    table.release(inode(number), GUEST);
                    opens[at] = opens[at].saturating_sub(1);
                }
                _ => prop_assert_eq!(table.look_up(name.as_bytes()).is_some(), listed[at]),
            }
            let is_served = table.get(inode(number)).is_some();
            prop_assert_eq!(is_served, listed[at] || opens[at] > 0);
        }
    }
}
