//! The handshake, option by option.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::io::{Read, Write};
use std::time::Duration;

use crate::support::client::{context_query, go_request, option};
use crate::support::{Fixture, SIZE};
use acstor_nbd::protocol::constants::*;
use acstor_nbd::protocol::{NAME_LEN_MAX, OPTION_DATA_MAX, ReplyShape};
use acstor_nbd::{CloseReason, ExportToken, ServerConfig};

const TOKEN: &str = "7d1c0a95b3e24f68";

#[test]
fn test_list_names_the_export() {
    let fixture = Fixture::with(|config| config, |export| export.with_description("a volume"));
    let answer = fixture.client().option(OPT_LIST, &[]);
    assert_eq!(answer[0].0, REP_SERVER);
    assert_eq!(answer[0].1, b"\x00\x00\x00\x04diska volume");
    assert_eq!(answer[1].0, REP_ACK);
}

#[test]
fn test_go_tells_size_flags_and_what_was_asked_for() {
    let fixture = Fixture::with(|config| config, |export| export.with_description("a volume"));
    let mut client = fixture.client();
    let infos = [INFO_NAME, INFO_DESCRIPTION, INFO_BLOCK_SIZE, 77];
    let answer = client.option(OPT_INFO, &go_request("", &infos));
    let datas: Vec<&[u8]> = answer.iter().map(|(_, data)| &data[..]).collect();
    let size_info = [&[0, 0][..], &SIZE.to_be_bytes()].concat();
    assert_eq!(datas[0][..10], size_info);
    assert_eq!(datas[1], b"\x00\x01disk");
    assert_eq!(datas[2], b"\x00\x02a volume");
    assert_eq!(datas[3], b"\x00\x03\x00\x00\x02\x00\x00\x00\x10\x00\x02\x00\x00\x00");
    assert_eq!(answer[4].0, REP_ACK);
    assert_eq!(client.option_outcome(OPT_GO, &go_request("other", &[])), REP_ERR_UNKNOWN);
    let client = client.go();
    assert_eq!(client.size, SIZE);
    let always = FLAG_HAS_FLAGS | FLAG_SEND_FLUSH | FLAG_SEND_FUA | FLAG_CAN_MULTI_CONN;
    let writable = FLAG_SEND_TRIM | FLAG_SEND_WRITE_ZEROES | FLAG_SEND_FAST_ZERO;
    assert_eq!(client.flags, always | writable | FLAG_SEND_CACHE);
}

#[test]
fn test_go_flags_follow_what_was_agreed() {
    let fixture = Fixture::with(|config| config, acstor_nbd::Export::read_only);
    let client = fixture.client().with_shape(ReplyShape::Structured).with_contexts().go();
    assert_ne!(client.flags & FLAG_READ_ONLY, 0);
    assert_eq!(client.flags & (FLAG_SEND_TRIM | FLAG_SEND_WRITE_ZEROES | FLAG_SEND_FAST_ZERO), 0);
    assert_ne!(client.flags & FLAG_SEND_DF, 0);
    assert_eq!(client.flags & FLAG_BLOCK_STATUS_PAYLOAD, 0);
    let client = fixture.client().with_shape(ReplyShape::Extended).with_contexts().go();
    assert_ne!(client.flags & FLAG_BLOCK_STATUS_PAYLOAD, 0);
    let client = fixture.client().with_shape(ReplyShape::Extended).go();
    assert_eq!(client.flags & FLAG_BLOCK_STATUS_PAYLOAD, 0, "no context was selected");
}

#[test]
fn test_export_name_begins_transmission() {
    let fixture = Fixture::new();
    let mut client = fixture.client();
    client.send_option(OPT_EXPORT_NAME, b"disk");
    let mut answer = [0; 10];
    client.stream.read_exact(&mut answer).unwrap();
    assert_eq!(answer[..8], SIZE.to_be_bytes());
    assert_eq!(client.read(0, 4096).data, [0; 4096]);
}

#[test]
fn test_export_name_of_an_old_client_is_padded() {
    let fixture = Fixture::new();
    let mut stream = fixture.connect();
    let mut greeting = [0; 18];
    stream.read_exact(&mut greeting).unwrap();
    stream.write_all(&CLIENT_FIXED_NEWSTYLE.to_be_bytes()).unwrap();
    stream.write_all(&option(OPT_EXPORT_NAME, b"")).unwrap();
    let mut answer = [1; 134];
    stream.read_exact(&mut answer).unwrap();
    assert_eq!(answer[10..], [0; 124]);
}

#[test]
fn test_export_name_of_another_export_ends_the_connection() {
    let fixture = Fixture::new();
    let mut client = fixture.client();
    client.send_option(OPT_EXPORT_NAME, b"other");
    assert!(client.until_closed().is_empty());
    fixture.until_idle();
    assert_eq!(fixture.server().stats().closed(CloseReason::HandshakeRefused), 1);
}

/// A server whose clients have to know `TOKEN`.
fn with_token() -> Fixture {
    let token = ExportToken::new(TOKEN).unwrap();
    Fixture::with(|config| ServerConfig { token: Some(token), ..config }, |export| export)
}

#[test]
fn test_token_is_the_only_name_and_nothing_is_listed() {
    let fixture = with_token();
    let mut client = fixture.client().with_shape(ReplyShape::Structured);
    let answer = client.option(OPT_LIST, &[]);
    assert_eq!(answer.len(), 1, "no entry");
    assert_eq!(answer[0].0, REP_ERR_POLICY);
    let wrong = [String::new(), "disk".to_owned(), TOKEN[1..].to_owned(), format!("{TOKEN}x")];
    for name in &wrong {
        for code in [OPT_INFO, OPT_GO] {
            let request = go_request(name, &[INFO_NAME]);
            assert_eq!(client.option_outcome(code, &request), REP_ERR_UNKNOWN, "{name}");
        }
        for code in [OPT_LIST_META_CONTEXT, OPT_SET_META_CONTEXT] {
            let request = context_query(name, &["base:allocation"]);
            assert_eq!(client.option_outcome(code, &request), REP_ERR_UNKNOWN, "{name}");
        }
    }
    assert_eq!(fixture.server().stats().names_refused, 4 * wrong.len() as u64);
    let answer = client.option(OPT_INFO, &go_request(TOKEN, &[INFO_NAME]));
    assert_eq!(answer[1].1, [b"\x00\x01", TOKEN.as_bytes()].concat(), "the volume is not told");
    assert_eq!(client.option_outcome(OPT_GO, &go_request(TOKEN, &[])), REP_ACK);
}

#[test]
fn test_export_name_other_than_the_token_ends_the_connection() {
    let fixture = with_token();
    for name in [&b""[..], b"disk", &TOKEN.as_bytes()[1..], b"\xff\xfe"] {
        let mut client = fixture.client();
        client.send_option(OPT_EXPORT_NAME, name);
        assert!(client.until_closed().is_empty());
    }
    fixture.until_idle();
    assert_eq!(fixture.server().stats().names_refused, 4);
    assert_eq!(fixture.server().stats().closed(CloseReason::HandshakeRefused), 4);
    let mut client = fixture.client();
    client.send_option(OPT_EXPORT_NAME, TOKEN.as_bytes());
    let mut answer = [0; 10];
    client.stream.read_exact(&mut answer).unwrap();
    assert_eq!(answer[..8], SIZE.to_be_bytes());
}

#[test]
fn test_abort_is_answered_and_ends_the_connection() {
    let fixture = Fixture::new();
    let mut client = fixture.client();
    assert_eq!(client.option_outcome(OPT_ABORT, b"ignored"), REP_ACK);
    assert!(client.until_closed().is_empty());
    fixture.until_idle();
    assert_eq!(fixture.server().stats().closed(CloseReason::Disconnected), 1);
}

#[test]
fn test_unknown_and_wrong_options_are_refused_and_the_next_one_is_answered() {
    let fixture = Fixture::new();
    let mut client = fixture.client();
    let short_name = [0, 0, 0, 9, b'd', 0, 0];
    let nul = go_request("d\0sk", &[]);
    let long = go_request(&"x".repeat(NAME_LEN_MAX + 1), &[]);
    let too_long = vec![0; OPTION_DATA_MAX as usize + 1];
    let mut miscounted = go_request("disk", &[1, 2]);
    miscounted.pop();
    for (code, data, outcome) in [
        (4, &[][..], REP_ERR_UNSUP),
        (99, &b"what"[..], REP_ERR_UNSUP),
        (OPT_LIST, b"x", REP_ERR_INVALID),
        (OPT_STARTTLS, b"", REP_ERR_POLICY),
        (OPT_GO, b"", REP_ERR_INVALID),
        (OPT_GO, &short_name, REP_ERR_INVALID),
        (OPT_GO, &nul, REP_ERR_INVALID),
        (OPT_GO, &miscounted, REP_ERR_INVALID),
        (OPT_GO, &long, REP_ERR_TOO_BIG),
        (OPT_INFO, &too_long, REP_ERR_TOO_BIG),
        (OPT_SET_META_CONTEXT, &context_query("disk", &["base:"]), REP_ERR_INVALID),
        (OPT_STRUCTURED_REPLY, b"x", REP_ERR_INVALID),
        (OPT_STRUCTURED_REPLY, b"", REP_ACK),
        (OPT_STRUCTURED_REPLY, b"", REP_ERR_INVALID),
        (OPT_SET_META_CONTEXT, &context_query("disk", &["nothing"]), REP_ERR_INVALID),
        (OPT_SET_META_CONTEXT, &context_query("disk", &["a:"; 65]), REP_ERR_TOO_BIG),
        (OPT_SET_META_CONTEXT, &context_query("other", &["a:"]), REP_ERR_UNKNOWN),
        (OPT_EXTENDED_HEADERS, b"", REP_ACK),
        (OPT_EXTENDED_HEADERS, b"", REP_ERR_INVALID),
        (OPT_STRUCTURED_REPLY, b"", REP_ERR_EXT_HEADER_REQD),
    ] {
        assert_eq!(client.option_outcome(code, data), outcome, "option {code}");
    }
    client.shape = ReplyShape::Extended;
    assert_eq!(client.go().read(0, 512).errno, 0);
}

#[test]
fn test_contexts_are_listed_by_query() {
    let fixture = Fixture::new();
    let mut client = fixture.client().with_shape(ReplyShape::Structured);
    let mut list = |queries: &[&str]| -> Vec<String> {
        let answer = client.option(OPT_LIST_META_CONTEXT, &context_query("", queries));
        assert_eq!(answer.last().unwrap().0, REP_ACK);
        let name = |(_, data): &(u32, Vec<u8>)| String::from_utf8(data[4..].to_vec()).unwrap();
        answer[..answer.len() - 1].iter().map(name).collect()
    };
    assert_eq!(list(&[]), ["base:allocation", "acstor:dirty"]);
    assert_eq!(list(&["base:"]), ["base:allocation"]);
    assert_eq!(list(&["acstor:dirty", "qemu:"]), ["acstor:dirty"]);
    assert!(list(&["qemu:", "base:other"]).is_empty());
}

#[test]
fn test_contexts_of_a_failed_selection_are_gone() {
    let fixture = Fixture::new();
    let mut client = fixture.client().with_shape(ReplyShape::Structured).with_contexts();
    let other = context_query("other", &["base:allocation"]);
    assert_eq!(client.option_outcome(OPT_SET_META_CONTEXT, &other), REP_ERR_UNKNOWN);
    let mut client = client.go();
    assert_eq!(client.ask(CMD_BLOCK_STATUS, 0, 0, 4096).errno, 22);
}

#[test]
fn test_client_that_knows_no_fixed_newstyle_or_more_than_we_is_left() {
    let fixture = Fixture::new();
    for flags in [0_u32, CLIENT_FIXED_NEWSTYLE | 1 << 7] {
        let mut stream = fixture.connect();
        let mut greeting = [0; 18];
        stream.read_exact(&mut greeting).unwrap();
        stream.write_all(&flags.to_be_bytes()).unwrap();
        assert_eq!(stream.read(&mut greeting).unwrap(), 0);
    }
    fixture.until_idle();
    assert_eq!(fixture.server().stats().closed(CloseReason::Malformed), 2);
}

#[test]
fn test_handshake_without_end_ends() {
    let short = Duration::from_millis(50);
    let fixture = Fixture::with(
        |config| acstor_nbd::ServerConfig { handshake_timeout: short, ..config },
        |export| export,
    );
    let mut silent = fixture.connect();
    let mut client = fixture.client();
    client.stream.write_all(&option(OPT_GO, &go_request("disk", &[]))[..20]).unwrap();
    assert!(client.until_closed().is_empty());
    let mut greeting = Vec::new();
    silent.read_to_end(&mut greeting).unwrap();
    assert_eq!(greeting.len(), 18);
    fixture.until_idle();
    assert_eq!(fixture.server().stats().closed(CloseReason::HandshakeTimeout), 2);
}

#[test]
fn test_options_without_end_end() {
    let fixture = Fixture::new();
    let mut client = fixture.client();
    for _ in 0..64 {
        assert_eq!(client.option_outcome(OPT_LIST, &[]), REP_ACK);
    }
    assert!(client.until_closed().is_empty());
    fixture.until_idle();
    assert_eq!(fixture.server().stats().closed(CloseReason::HandshakeTimeout), 1);
}

#[test]
fn test_connections_beyond_the_limit_are_closed_at_once() {
    let fixture = Fixture::with(
        |config| acstor_nbd::ServerConfig { connections_max: 2, ..config },
        |export| export,
    );
    let mut first = fixture.client().go();
    let second = fixture.client().go();
    let mut third = fixture.connect();
    let mut nothing = Vec::new();
    // A close with nothing read may be a reset.
    let _ = third.read_to_end(&mut nothing);
    assert!(nothing.is_empty());
    assert_eq!(first.read(0, 512).errno, 0);
    drop(second);
    fixture.until("there is room", || fixture.server().stats().connections_open == 1);
    fixture.until("it is out of the registry", || {
        let mut stream = fixture.connect();
        let mut greeting = [0; 18];
        stream.read_exact(&mut greeting).is_ok()
    });
    assert!(fixture.server().stats().closed(CloseReason::TooManyConnections) >= 1);
}
