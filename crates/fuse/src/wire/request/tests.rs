use proptest::prelude::*;
use zerocopy::IntoBytes;

use super::*;

fn message(opcode: u32, body: &[u8]) -> Vec<u8> {
    let header = abi::InHeader {
        len: (size_of::<abi::InHeader>() + body.len()) as u32,
        opcode,
        unique: 8 | abi::UNIQUE_RESEND,
        nodeid: 9,
        pid: 10,
        ..Default::default()
    };
    [header.as_bytes(), body].concat()
}

#[test]
fn a_read_is_taken_apart() {
    let body = abi::ReadIn { fh: 1, offset: 2 << 40, size: 3, flags: 4, ..Default::default() };
    let bytes = message(opcode::READ, body.as_bytes());
    let request = Request::parse(&bytes).unwrap();
    assert_eq!(request.header.unique, 8 | 1 << 63, "the resend bit is part of the number");
    assert_eq!((request.header.inode, request.header.pid), (9, 10));
    let Operation::Read { handle: 1, offset, size: 3, opener, reader } = request.operation else {
        panic!("{request:?}");
    };
    assert_eq!((offset, reader), (2 << 40, Reader::Cached));
    assert_eq!(opener, Opener { is_direct: false, is_recorded: true });
}

#[test]
fn a_read_past_the_page_cache_names_its_process() {
    let flags = libc::O_DIRECT as u32 | libc::O_CLOEXEC as u32;
    for (read_flags, expected) in
        [(2, Reader::Direct(77)), (3, Reader::Direct(77)), (1, Reader::Direct(0))]
    {
        let body = abi::ReadIn { read_flags, lock_owner: 77, flags, ..Default::default() };
        let bytes = message(opcode::READ, body.as_bytes());
        let Operation::Read { reader, .. } = Request::parse(&bytes).unwrap().operation else {
            panic!("no READ");
        };
        assert_eq!(reader, expected);
    }
    let body = abi::ReleaseIn { fh: 1, flags, ..Default::default() };
    let bytes = message(opcode::RELEASE, body.as_bytes());
    let operation = Request::parse(&bytes).unwrap().operation;
    assert!(matches!(
        operation,
        Operation::Release { handle: 1, opener: Opener { is_direct: true, is_recorded: true } }
    ));
}

#[test]
fn the_upper_flags_of_init_count_only_when_announced() {
    let old = abi::InitIn { major: 7, minor: 31, max_readahead: 5, flags: 1 };
    let more = abi::InitInExt { flags2: 1 << 7, ..Default::default() };
    for (flags, expected) in [(1, 1), (1 | 1 << 30, 1 | 1 << 30 | 1 << 39)] {
        let body = [abi::InitIn { flags, ..old }.as_bytes(), more.as_bytes()].concat();
        let bytes = message(opcode::INIT, &body);
        let Operation::Init { flags, .. } = Request::parse(&bytes).unwrap().operation else {
            panic!("no INIT");
        };
        assert_eq!(flags, expected);
    }
    let bytes = message(opcode::INIT, old.as_bytes());
    assert!(matches!(Request::parse(&bytes).unwrap().operation, Operation::Init { flags: 1, .. }));
}

#[test]
fn a_length_that_is_not_the_header_s_is_refused() {
    let mut bytes = message(opcode::STATFS, &[]);
    bytes.push(0);
    let (header, error) = Request::parse(&bytes).unwrap_err();
    assert_eq!(header.unwrap().opcode, opcode::STATFS);
    assert_eq!(error, ParseError::Length { got: 41, said: 40 });
    assert!(Request::parse(&bytes[..39]).unwrap_err().0.is_none());
}

#[test]
fn damaged_names_are_refused() {
    let long = [vec![b'a'; 256], vec![0]].concat();
    for body in [&b""[..], b"\0", b"name", b"a/b\0", &long] {
        let bytes = message(opcode::LOOKUP, body);
        let (_, error) = Request::parse(&bytes).unwrap_err();
        assert_eq!(error, ParseError::Name { opcode: opcode::LOOKUP }, "{body:?}");
    }
    let bytes = message(opcode::LOOKUP, b"a.raw\0");
    let Operation::Lookup { name } = Request::parse(&bytes).unwrap().operation else {
        panic!("no LOOKUP");
    };
    assert_eq!(name, b"a.raw");
}

#[test]
fn a_forget_list_longer_than_its_message_is_refused() {
    for (count, ok) in [(0, true), (2, true), (3, false), (u32::MAX, false)] {
        let head = abi::BatchForgetIn { count, dummy: 0 };
        let one = abi::ForgetOne { nodeid: 4, nlookup: 5 };
        let body = [head.as_bytes(), one.as_bytes(), one.as_bytes()].concat();
        let bytes = message(opcode::BATCH_FORGET, &body);
        let request = Request::parse(&bytes);
        assert_eq!(request.is_ok(), ok, "{count}");
        if let Ok(Request { operation: Operation::BatchForget(list), .. }) = request {
            assert_eq!(list.iter().collect::<Vec<_>>(), vec![(4, 5); count as usize]);
        }
    }
}

#[test]
fn every_modifying_opcode_is_one() {
    for code in [4u32, 6, 8, 9, 10, 11, 12, 13, 16, 35, 43, 45, 51] {
        let bytes = message(code, &[0; 128]);
        let operation = Request::parse(&bytes).unwrap().operation;
        assert!(matches!(operation, Operation::Modify | Operation::SetAttr(_)), "{code}");
    }
}

proptest! {
    #[test]
    fn arbitrary_bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
        let _ = Request::parse(&bytes);
    }

    #[test]
    fn arbitrary_bodies_never_panic_and_keep_the_number(
        opcode in 0u32..64, body in proptest::collection::vec(any::<u8>(), 0..300)
    ) {
        let bytes = message(opcode, &body);
        let header = match Request::parse(&bytes) {
            Ok(request) => {
                if let Operation::BatchForget(list) = request.operation {
                    prop_assert!(list.iter().count() * 16 <= body.len());
                }
                request.header
            }
            Err((header, _)) => header.expect("a whole header is there"),
        };
        prop_assert_eq!(header.unique, 8 | 1 << 63);
        prop_assert_eq!(header.opcode, opcode);
    }

    #[test]
    fn a_cut_message_is_refused(opcode in 1u32..52, cut in 1usize..39) {
        let bytes = message(opcode, &[0; 100]);
        let shorter = &bytes[..bytes.len() - cut];
        let refused = matches!(Request::parse(shorter), Err((Some(_), ParseError::Length { .. })));
        prop_assert!(refused);
    }
}
