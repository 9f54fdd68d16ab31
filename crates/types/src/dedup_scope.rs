//! The scope within which chunks of the same content have the same name.
//!
//! A scoped digest says by itself that it is one, and of which scope: `hash (22 bytes) ‖ tag (6)
//! ‖ magic (4)`. The hash comes first, since an index may use the first bytes of a digest as its
//! own hash. Its page is `reference/formats/scoped-digest.rst`.

use crate::Digest;

/// Last bytes of a scoped digest; the last one is the version of the layout.
const MAGIC: [u8; 4] = [0xac, b'S', b'C', DedupScope::VERSION];
/// First byte of the tag.
const TAG_OFFSET: usize = 22;
/// First byte of the magic.
const MAGIC_OFFSET: usize = 28;
/// Separates tags from every other use of BLAKE3.
const TAG_CONTEXT: &str = "acstor 2026-11-25 tag of a deduplication scope";
/// Separates the names of chunks from every other use of BLAKE3.
const KEY_CONTEXT: &str = "acstor 2026-11-25 name of a chunk in a deduplication scope";

/// A scope: names of the same content in two scopes have nothing in common.
///
/// Nothing in it is secret: whoever has a scoped digest can verify content with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DedupScope {
    tag: [u8; DedupScope::TAG_LEN],
    key: [u8; blake3::KEY_LEN],
}

impl DedupScope {
    /// Bytes of a tag.
    pub const TAG_LEN: usize = MAGIC_OFFSET - TAG_OFFSET;
    /// Version of the layout of scoped digests.
    pub const VERSION: u8 = 1;

    /// Returns the scope that a text names, such as the id of a project; each byte counts.
    pub fn new(text: &str) -> DedupScope {
        let mut tag = [0; DedupScope::TAG_LEN];
        let hash = blake3::derive_key(TAG_CONTEXT, text.as_bytes());
        tag.copy_from_slice(&hash[..DedupScope::TAG_LEN]);
        DedupScope::of_tag(tag)
    }

    /// Returns the scope of a scoped digest; `None`: the digest is a plain one.
    ///
    /// One plain digest in 2^32 looks like a scoped one.
    pub fn of_digest(digest: &Digest) -> Option<DedupScope> {
        digest.tag().map(DedupScope::of_tag)
    }

    fn of_tag(tag: [u8; DedupScope::TAG_LEN]) -> DedupScope {
        DedupScope { tag, key: blake3::derive_key(KEY_CONTEXT, &tag) }
    }

    /// Returns the name of `content` in this scope.
    pub(crate) fn name(&self, content: &[u8]) -> Digest {
        let mut bytes = *blake3::keyed_hash(&self.key, content).as_bytes();
        bytes[TAG_OFFSET..MAGIC_OFFSET].copy_from_slice(&self.tag);
        bytes[MAGIC_OFFSET..].copy_from_slice(&MAGIC);
        Digest::from_bytes(bytes)
    }
}

impl Digest {
    /// Returns the name of `content` in a scope; `None`: its plain digest.
    pub fn of_in(scope: Option<&DedupScope>, content: &[u8]) -> Digest {
        scope.map_or_else(|| Digest::of(content), |scope| scope.name(content))
    }

    /// Returns whether `content` is what this digest names, in whichever scope.
    pub fn matches(&self, content: &[u8]) -> bool {
        let is_scoped =
            DedupScope::of_digest(self).is_some_and(|scope| scope.name(content) == *self);
        // Also what ends with the magic may be a plain digest, by chance.
        is_scoped || Digest::of(content) == *self
    }

    /// Returns whether both are plain, or of the same scope: only then do different digests mean
    /// different contents.
    pub fn is_comparable(&self, other: &Digest) -> bool {
        self.tag() == other.tag()
    }

    fn tag(&self) -> Option<[u8; DedupScope::TAG_LEN]> {
        let bytes = self.as_bytes();
        if bytes[MAGIC_OFFSET..] != MAGIC {
            return None;
        }
        let mut tag = [0; DedupScope::TAG_LEN];
        tag.copy_from_slice(&bytes[TAG_OFFSET..MAGIC_OFFSET]);
        Some(tag)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn content() -> impl Strategy<Value = Vec<u8>> {
        proptest::collection::vec(any::<u8>(), 0..5000)
    }

    proptest! {
        #[test]
        fn test_name_matches_its_content_and_nothing_else(
            project in "\\PC{0,64}",
            content in content(),
            byte in any::<prop::sample::Index>(),
            bit in 0..8_u8,
        ) {
            let scope = DedupScope::new(&project);
            let digest = Digest::of_in(Some(&scope), &content);
            prop_assert!(digest.matches(&content));
            prop_assert_eq!(DedupScope::of_digest(&digest), Some(scope));
            let mut other = content.clone();
            other.push(0);
            prop_assert!(!digest.matches(&other));
            if !content.is_empty() {
                other.pop();
                other[byte.index(content.len())] ^= 1_u8 << bit;
                prop_assert!(!digest.matches(&other));
            }
            let mut bytes = *digest.as_bytes();
            bytes[byte.index(Digest::LEN)] ^= 1_u8 << bit;
            prop_assert!(!Digest::from_bytes(bytes).matches(&content), "one bit of the name");
        }

        #[test]
        fn test_name_of_a_scope_is_of_no_other(
            one in "[0-9a-f]{32}",
            other in "[0-9a-f]{32}",
            content in content(),
        ) {
            prop_assume!(one != other);
            let [one, other] = [one, other].map(|text| DedupScope::new(&text));
            let name = Digest::of_in(Some(&one), &content);
            let foreign = Digest::of_in(Some(&other), &content);
            prop_assert_ne!(name.as_bytes()[..16].to_vec(), foreign.as_bytes()[..16].to_vec());
            prop_assert!(!name.is_comparable(&foreign));
            // The one's hash with the other's tag, which a host that lies might make up.
            let mut bytes = *name.as_bytes();
            bytes[TAG_OFFSET..].copy_from_slice(&foreign.as_bytes()[TAG_OFFSET..]);
            prop_assert!(!Digest::from_bytes(bytes).matches(&content));
            prop_assert_ne!(name, Digest::of(&content));
        }
    }

    #[test]
    fn test_plain_digest_is_of_no_scope() {
        let plain = Digest::of_in(None, b"acstor");
        assert_eq!(plain, Digest::of(b"acstor"));
        assert_eq!(DedupScope::of_digest(&plain), None);
        assert!(plain.is_comparable(&Digest::of(b"other")));
        assert!(!plain.is_comparable(&Digest::of_in(Some(&DedupScope::new("a")), b"acstor")));
    }

    #[test]
    fn test_prefixes_are_uniform() {
        let scope = DedupScope::new("e2b5a1c07f3d4c9a8b6e5d4c3b2a1908");
        let mut counts = [0_u32; 16];
        for number in 0..4096_u32 {
            let digest = Digest::of_in(Some(&scope), &number.to_le_bytes());
            counts[(digest.prefix_u64() >> 60) as usize] += 1;
        }
        // 256 each; five standard deviations.
        assert!(counts.iter().all(|count| count.abs_diff(256) < 80), "{counts:?}");
    }
}
