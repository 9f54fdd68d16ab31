//! Messages of the server, byte by byte, and the table of the documentation.

use std::path::PathBuf;

use acstor_nbd::TRANSITIONS;
use acstor_nbd::protocol::constants::{
    FLAG_HAS_FLAGS, FLAG_SEND_DF, OPT_GO, OPT_LIST, OPT_SET_META_CONTEXT, REP_ERR_UNKNOWN,
};
use acstor_nbd::protocol::{Errno, Extent, OptionReply, ReplyShape, ReplyTo};
use acstor_testkit::pages::literal_rows;

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// One of each answer.
fn messages() -> Vec<u8> {
    let mut bytes = Vec::new();
    let flags = FLAG_HAS_FLAGS | FLAG_SEND_DF;
    for reply in [
        OptionReply::new(OPT_LIST).server("disk", "a volume").ack(),
        OptionReply::new(OPT_GO)
            .export(1 << 30, flags)
            .name("disk")
            .description("a volume")
            .block_sizes(512, 4096, 32 << 20)
            .ack(),
        OptionReply::new(OPT_GO).error(REP_ERR_UNKNOWN, "no such export"),
        OptionReply::new(OPT_SET_META_CONTEXT)
            .meta_context(1, "base:allocation")
            .meta_context(2, "acstor:dirty")
            .ack(),
    ] {
        bytes.extend_from_slice(reply.as_bytes());
    }
    let to = |shape| ReplyTo { shape, cookie: 0x0102_0304_0506_0708, offset: 1 << 20 };
    bytes.extend_from_slice(to(ReplyShape::Simple).simple(0).as_bytes());
    bytes.extend_from_slice(to(ReplyShape::Simple).error(Errno::Io, 4).as_bytes());
    let extents = [Extent { len: 4096, flags: 3 }, Extent { len: 512, flags: 0 }];
    for shape in [ReplyShape::Structured, ReplyShape::Extended] {
        let to = to(shape);
        bytes.extend_from_slice(to.done().as_bytes());
        bytes.extend_from_slice(to.data(1 << 20, 4096, false).as_bytes());
        bytes.extend_from_slice(to.hole((1 << 20) + 4096, 4096, true).as_bytes());
        bytes.extend_from_slice(to.error(Errno::NoSpace, 4).as_bytes());
        bytes.extend_from_slice(b"full");
        bytes.extend_from_slice(&to.status(1, &extents, true));
    }
    bytes
}

/// The protocol is not ours: a change of a byte is a fault, unless something new is offered. Then the
/// page `reference/protocols/nbd` says so, and this file grows.
#[test]
fn test_messages_are_those_of_the_golden_file() {
    let golden = std::fs::read(root().join("tests/golden/nbd-messages.bin")).unwrap();
    assert!(messages() == golden, "the server's messages changed: {:02x?}", messages());
}

#[test]
fn test_transitions_are_those_of_the_page() {
    let path = root().join("doc/source/reference/state-machines/nbd-connection.rst");
    let page = std::fs::read_to_string(path).unwrap();
    let expected: Vec<[String; 3]> = TRANSITIONS
        .iter()
        .map(|(from, on, to)| [format!("{from:?}"), format!("{on:?}"), format!("{to:?}")])
        .collect();
    assert_eq!(literal_rows(&page), expected);
}
