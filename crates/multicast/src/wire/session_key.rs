//! The key of a session: one sender, one image, at most 2^23 packets.

use std::fmt;

use ring::aead::{AES_128_GCM, Aad, LessSafeKey, Nonce, UnboundKey};
use ring::rand::{SecureRandom, SystemRandom};

use crate::limits::PACKETS_PER_KEY_MAX;

/// Bytes of a key.
pub const KEY_LEN: usize = 16;
/// Bytes of the salt that nonces are made of.
pub const SALT_LEN: usize = 12;

/// A packet number that the key must not encrypt: the session ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the key of the multicast session has encrypted as many packets as it may")]
pub struct KeyUsedUp;

/// Key of a session, AES-128-GCM; its text in logs shows nothing of it.
///
/// The nonce is the salt XOR the packet number (RFC 9001, section 5.3). Differs from QUIC: one key for all
/// packets of a session, and no change of it. Every member can forge: what a packet carries is verified by its
/// digest.
#[derive(Clone)]
pub struct SessionKey {
    key: [u8; KEY_LEN],
    salt: [u8; SALT_LEN],
    cipher: LessSafeKey,
}

impl fmt::Debug for SessionKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SessionKey(..)")
    }
}

impl SessionKey {
    /// Draws a key; `None` where the system has no randomness.
    pub fn draw() -> Option<SessionKey> {
        let (mut key, mut salt) = ([0; KEY_LEN], [0; SALT_LEN]);
        let random = SystemRandom::new();
        random.fill(&mut key).ok()?;
        random.fill(&mut salt).ok()?;
        SessionKey::new(key, salt)
    }

    /// Takes a key that another host drew; `None` is not possible for these lengths.
    pub fn new(key: [u8; KEY_LEN], salt: [u8; SALT_LEN]) -> Option<SessionKey> {
        let cipher = LessSafeKey::new(UnboundKey::new(&AES_128_GCM, &key).ok()?);
        Some(SessionKey { key, salt, cipher })
    }

    /// The key and the salt, to be sent over an encrypted connection only.
    pub(crate) fn secret(&self) -> (&[u8; KEY_LEN], &[u8; SALT_LEN]) {
        (&self.key, &self.salt)
    }

    fn nonce(&self, number: u64) -> Nonce {
        let mut nonce = self.salt;
        for (byte, part) in nonce.iter_mut().rev().zip(number.to_le_bytes()) {
            *byte ^= part;
        }
        Nonce::assume_unique_for_key(nonce)
    }

    /// Encrypts the bytes of `packet` from `begin` on and appends their tag; those before are authenticated.
    ///
    /// # Errors
    /// [`KeyUsedUp`]; the packet must not be sent.
    pub(crate) fn seal(
        &self,
        number: u64,
        packet: &mut Vec<u8>,
        begin: usize,
    ) -> Result<(), KeyUsedUp> {
        if number >= PACKETS_PER_KEY_MAX {
            return Err(KeyUsedUp);
        }
        let (header, content) = packet.split_at_mut(begin);
        let nonce = self.nonce(number);
        let tag = self.cipher.seal_in_place_separate_tag(nonce, Aad::from(&*header), content);
        packet.extend_from_slice(tag.map_err(|_| KeyUsedUp)?.as_ref());
        Ok(())
    }

    /// Decrypts the bytes of `packet` from `begin` on; `None`: another key's, or forged.
    pub(crate) fn open<'a>(
        &self,
        number: u64,
        packet: &'a mut [u8],
        begin: usize,
    ) -> Option<&'a [u8]> {
        if number >= PACKETS_PER_KEY_MAX || packet.len() < begin {
            return None;
        }
        let (header, content) = packet.split_at_mut(begin);
        let opened = self.cipher.open_in_place(self.nonce(number), Aad::from(&*header), content);
        opened.ok().map(|plain| &*plain)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn test_nonce_differs_for_each_number() {
        let key = SessionKey::new([1; KEY_LEN], [0xff; SALT_LEN]).unwrap();
        let nonce = |number| *key.nonce(number).as_ref();
        assert_eq!(nonce(0), [0xff; 12]);
        assert_eq!(nonce(0x0102)[9..], [0xff, 0xfe, 0xfd]);
        assert_ne!(nonce(1), nonce(1 << 32));
    }

    #[test]
    fn test_seal_ends_with_the_last_packet_of_a_key() {
        let key = SessionKey::new([1; KEY_LEN], [2; SALT_LEN]).unwrap();
        let mut packet = vec![0; 8];
        assert_eq!(key.seal(PACKETS_PER_KEY_MAX - 1, &mut packet, 4), Ok(()));
        assert_eq!(key.seal(PACKETS_PER_KEY_MAX, &mut packet, 4), Err(KeyUsedUp));
        assert!(key.open(PACKETS_PER_KEY_MAX, &mut packet, 4).is_none());
    }

    #[test]
    fn test_debug_shows_no_key() {
        let key = SessionKey::draw().unwrap();
        assert_eq!(format!("{key:?}"), "SessionKey(..)");
    }
}
