//! Names of RADOS objects: namespaces, classes, stripes.

use acstor_types::Digest;

use crate::{HEAD_LEN, Head, HeadKind};

/// First parts of the keys that controllers and hosts store: content addresses, so that two of a name are
/// the same.
const OF_THE_WRITER: [&str; 2] = ["packs", "manifests"];
/// First part of the keys that hosts store alone.
const OF_HOSTS: &str = "volume-log";

/// Purpose of a pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    Heads = 0,
    Stripes = 1,
}

/// Writer of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Class {
    Controllers,
    Hosts,
}

/// Classes that may have an object, in the order in which they are asked: where both have it, no host takes
/// the place of a controller.
pub(crate) fn classes_of(key: &str) -> &'static [Class] {
    let first = first_part(key);
    if OF_THE_WRITER.contains(&first) {
        &[Class::Controllers, Class::Hosts]
    } else if first == OF_HOSTS {
        &[Class::Hosts]
    } else {
        &[Class::Controllers]
    }
}

/// Namespace of an object's head, or of its stripes, in a repository.
pub(crate) fn namespace_of(repository: &str, role: Role, class: Class, key: &str) -> String {
    let class = match class {
        Class::Controllers => "",
        Class::Hosts => "host.",
    };
    let role = match role {
        Role::Heads => "o",
        Role::Stripes => "s",
    };
    format!("{repository}.{class}{role}.{}", first_part(key))
}

/// Key of an object that is called by a digest.
pub(crate) fn key_of(folder: &str, name: &Digest) -> String {
    let name = name.to_string();
    format!("{folder}/{}/{name}", &name[..2])
}

fn first_part(key: &str) -> &str {
    key.split_once('/').map_or(key, |(first, _)| first)
}

/// A run of bytes of one RADOS object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Piece {
    /// Number of the stripe; `None`: the object is whole.
    pub(crate) stripe: Option<u64>,
    /// Offset in the RADOS object, bytes.
    pub(crate) offset: u64,
    /// Bytes.
    pub(crate) len: usize,
}

impl Piece {
    /// Name of the RADOS object.
    pub(crate) fn name(&self, key: &str, head: &Head) -> String {
        match self.stripe {
            Some(number) => format!("{key}@{}.{number}", head.nonce),
            None => key.to_owned(),
        }
    }
}

/// Pieces of the range of `len` bytes at `offset` of an object, as far as that reaches.
pub(crate) fn pieces_of(head: &Head, offset: u64, len: usize) -> Vec<Piece> {
    let mut left = head.size.saturating_sub(offset).min(len as u64) as usize;
    if head.kind == HeadKind::Whole {
        let offset = offset.saturating_add(HEAD_LEN as u64);
        return if left > 0 { vec![Piece { stripe: None, offset, len: left }] } else { Vec::new() };
    }
    let size = u64::from(head.stripe_size);
    let (mut pieces, mut at) = (Vec::new(), offset);
    while left > 0 {
        let start = at % size;
        let len = left.min((size - start) as usize);
        pieces.push(Piece { stripe: Some(at / size), offset: start, len });
        at += len as u64;
        left -= len;
    }
    pieces
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Nonce;

    fn head(kind: HeadKind, size: u64) -> Head {
        Head { kind, size, stripe_size: 100, nonce: Nonce([0xab; 16]) }
    }

    #[test]
    fn test_namespaces_and_keys_are_those_of_the_page() {
        let digest = Digest::of(b"x");
        let key = key_of("packs", &digest);
        assert_eq!(key, format!("packs/{}/{digest}", &digest.to_string()[..2]));
        let name = |role, class, key: &str| namespace_of("acstor", role, class, key);
        assert_eq!(name(Role::Heads, Class::Controllers, &key), "acstor.o.packs");
        assert_eq!(name(Role::Stripes, Class::Hosts, &key), "acstor.host.s.packs");
        assert_eq!(name(Role::Heads, Class::Controllers, "alone"), "acstor.o.alone");
    }

    #[test]
    fn test_controllers_come_first() {
        for key in ["packs/aa/x", "manifests/aa/x"] {
            assert_eq!(classes_of(key), [Class::Controllers, Class::Hosts]);
        }
        assert_eq!(classes_of("moved/aa/x"), [Class::Controllers]);
        assert_eq!(classes_of("volume-log/aa/x"), [Class::Hosts]);
        assert_eq!(classes_of("packs-of-others/aa"), [Class::Controllers]);
    }

    #[test]
    fn test_range_is_cut_at_the_stripes_and_the_end() {
        let striped = head(HeadKind::Striped, 250);
        let piece = |stripe, offset, len| Piece { stripe: Some(stripe), offset, len };
        assert_eq!(pieces_of(&striped, 0, 100), [piece(0, 0, 100)]);
        assert_eq!(pieces_of(&striped, 90, 20), [piece(0, 90, 10), piece(1, 0, 10)]);
        let all = [piece(0, 0, 100), piece(1, 0, 100), piece(2, 0, 50)];
        assert_eq!(pieces_of(&striped, 0, 1000), all);
        for offset in [250, 251, u64::MAX] {
            assert_eq!(pieces_of(&striped, offset, 10), []);
        }
        assert_eq!(
            piece(2, 0, 1).name("packs/aa/x", &striped),
            format!("packs/aa/x@{}.2", "ab".repeat(16))
        );
        let whole = head(HeadKind::Whole, 250);
        let expected = Piece { stripe: None, offset: 240, len: 50 };
        assert_eq!(pieces_of(&whole, 200, 1000), [expected]);
        assert_eq!(expected.name("packs/aa/x", &whole), "packs/aa/x");
        assert_eq!(pieces_of(&whole, 250, 1), []);
        assert_eq!(pieces_of(&head(HeadKind::Whole, u64::MAX), u64::MAX - 1, 4).len(), 1);
    }
}
