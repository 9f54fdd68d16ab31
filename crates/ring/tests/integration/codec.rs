//! Binary and text form: round trips, and no damage that goes unnoticed or panics.

#![expect(clippy::unwrap_used, reason = "in a test a panic is the report")]

use acstor_ring::{Detail, Host, Ring, RingBuilder, RingError};
use acstor_types::ErrorKind;
use proptest::prelude::*;

fn sample() -> Ring {
    RingBuilder::new(42)
        .vnodes(64)
        .generation(7)
        .host(
            Host::new("compute-1", "10.0.0.1:7800", 100)
                .with_topology("pod-1/rack-1".parse().unwrap()),
        )
        .host(Host::new("compute-2.example", "[fd00::2]:7800", 75))
        .host(Host::new("drained", "10.0.0.3:7800", 0))
        .build()
        .unwrap()
}

/// Writes both checksums anew, so that what is behind them is reached.
fn reseal(bytes: &mut [u8]) {
    let body = crc32fast::hash(&bytes[64..]);
    bytes[56..60].copy_from_slice(&body.to_le_bytes());
    let header = crc32fast::hash(&bytes[..60]);
    bytes[60..64].copy_from_slice(&header.to_le_bytes());
}

fn resealed(change: impl FnOnce(&mut Vec<u8>)) -> RingError {
    let mut bytes = sample().encode();
    change(&mut bytes);
    reseal(&mut bytes);
    Ring::decode(&bytes).unwrap_err()
}

#[test]
fn every_damaged_byte_is_noticed() {
    let good = sample().encode();
    for position in 0..good.len() {
        let mut bad = good.clone();
        bad[position] ^= 1;
        assert!(Ring::decode(&bad).is_err(), "byte {position}");
    }
    for len in 0..good.len() {
        assert!(Ring::decode(&good[..len]).is_err(), "len {len}");
    }
}

#[test]
fn fields_out_of_range_are_refused_behind_good_checksums() {
    let set = |offset: usize, value: u32| {
        resealed(|bytes| bytes[offset..offset + 4].copy_from_slice(&value.to_le_bytes()))
    };
    assert_eq!(set(8, 2).kind(), ErrorKind::Unsupported);
    for (offset, value) in [
        (12, 0),
        (12, 2),
        (12, 4),
        (12, 16_384),
        (12, u32::MAX),
        (16, 0),
        (32, 3),
        (32, 23),
        (32, u32::MAX),
        (40, 1),
    ] {
        assert_eq!(set(offset, value).kind(), ErrorKind::Invalid, "{value} at {offset}");
    }
    for (offset, value) in [(32, 7), (36, 0), (36, u32::MAX)] {
        assert!(matches!(set(offset, value), RingError::Length { .. }), "{value} at {offset}");
    }
    let last_vnode = resealed(|bytes| {
        let len = bytes.len();
        bytes[len - 2..].copy_from_slice(&3u16.to_le_bytes());
    });
    assert!(matches!(last_vnode, RingError::Range(_)));
}

#[test]
fn malformed_hosts_are_refused_behind_good_checksums() {
    // The first host's record: weight at 64, lengths at 68, name "compute-1" at 74.
    for (offset, byte) in [(68, 10), (68, 255), (70, 0), (72, 0), (74, b' '), (74, 0xff)] {
        let error = resealed(|bytes| bytes[offset] = byte);
        assert_eq!(error.kind(), ErrorKind::Invalid, "{byte} at {offset}: {error}");
    }
    let unordered = resealed(|bytes| bytes[74] = b'x');
    assert!(matches!(unordered, RingError::Host { .. }));
}

#[test]
fn text_form_tells_what_it_should() {
    let ring = sample();
    let summary = ring.to_text(Detail::Summary);
    assert_eq!(
        summary,
        "acstor-ring 1\ngeneration 7\nseed 42\nv-nodes 64\n\
         host compute-1 10.0.0.1:7800 weight 100 topology pod-1/rack-1 v-nodes 37\n\
         host compute-2.example [fd00::2]:7800 weight 75 topology - v-nodes 27\n\
         host drained 10.0.0.3:7800 weight 0 topology - v-nodes 0\n"
    );
    assert!(matches!(Ring::from_text(&summary), Err(RingError::Text { .. })));
    assert_eq!(Ring::from_text(&ring.to_text(Detail::Full)), Ok(ring));
}

#[test]
fn malformed_text_is_refused_with_its_line() {
    let good = sample().to_text(Detail::Full);
    for (from, to, line) in [
        ("acstor-ring 1", "ring 1", 1),
        ("generation 7", "generation -7", 2),
        ("generation 7", "generation 7 8", 2),
        ("seed 42", "seed", 3),
        ("seed 42", "generation 8", 3),
        ("seed 42", "colour 42", 3),
        ("host compute-1 10.0.0.1:7800 weight", "host compute-1 weight", 5),
        ("weight 75", "weight 4294967296", 6),
        ("v-nodes 64", "v-nodes 16", 9),
        ("arcs 0", "arcs 1", 8),
        ("arcs 16", "arcs 0", 9),
        ("v-nodes 37", "v-nodes 36", 11),
    ] {
        let bad = good.replacen(from, to, 1);
        assert_ne!(bad, good, "{from}");
        match Ring::from_text(&bad) {
            Err(RingError::Text { line: found, .. }) => assert_eq!(found, line, "{to}"),
            other => panic!("{to}: {other:?}"),
        }
    }
    for bad in ["", "acstor-ring 1"] {
        assert_eq!(Ring::from_text(bad).unwrap_err().kind(), ErrorKind::Invalid);
    }
    let newer = good.replace("acstor-ring 1", "acstor-ring 2");
    assert_eq!(Ring::from_text(&newer), Err(RingError::Version(2)));
}

#[test]
fn comments_and_empty_lines_mean_nothing() {
    let text = sample().to_text(Detail::Full).replace("seed", "# by hand\n\n  seed");
    assert_eq!(Ring::from_text(&text), Ok(sample()));
}

fn any_ring() -> impl Strategy<Value = Ring> {
    let host = ("[a-z0-9._@-]{1,12}", any::<std::net::SocketAddr>(), 1u32.., 0u8..4);
    (proptest::collection::btree_map("[a-zA-Z0-9._@-]{1,12}", host, 1..20), any::<u64>(), 1u64..)
        .prop_map(|(hosts, seed, generation)| {
            let hosts = hosts.into_iter().map(|(name, (segment, mut address, weight, known))| {
                address.set_port(address.port().max(1));
                let path = if known > 0 { format!("pod/{segment}") } else { String::new() };
                Host::new(name, address.to_string(), weight).with_topology(path.parse().unwrap())
            });
            let builder = RingBuilder::new(seed).vnodes(64).generation(generation);
            builder.hosts(hosts).build().unwrap()
        })
}

proptest! {
    #[test]
    fn any_ring_round_trips(ring in any_ring()) {
        let bytes = ring.encode();
        let decoded = Ring::decode(&bytes).unwrap();
        prop_assert_eq!(decoded.encode(), bytes);
        prop_assert_eq!(&decoded, &ring);
        prop_assert_eq!(Ring::from_text(&ring.to_text(Detail::Full)), Ok(ring));
    }

    #[test]
    fn decode_never_panics(bytes in proptest::collection::vec(any::<u8>(), 0..512)) {
        let _ = Ring::decode(&bytes);
    }

    /// Damage behind good checksums: a ring or an error, and a ring encodes to the same bytes.
    #[test]
    fn resealed_damage_never_panics(
        ring in any_ring(),
        damage in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..8),
        len in proptest::option::of(any::<prop::sample::Index>()),
    ) {
        let mut bytes = ring.encode();
        for (position, byte) in damage {
            let position = position.index(bytes.len());
            bytes[position] = byte;
        }
        if let Some(len) = len {
            bytes.truncate(64 + len.index(bytes.len() - 63));
        }
        bytes[..8].copy_from_slice(b"ACSTRING");
        reseal(&mut bytes);
        if let Ok(ring) = Ring::decode(&bytes) {
            prop_assert_eq!(ring.encode(), bytes);
        }
    }

    #[test]
    fn from_text_never_panics(text in "(acstor-ring 1\n)?((generation|seed|v-nodes|host|arcs|-)[ 0-9a-z:.-]{0,30}\n){0,12}") {
        let _ = Ring::from_text(&text);
    }
}
