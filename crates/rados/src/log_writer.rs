//! Writes of volumes' log objects.

use std::sync::Arc;

use bytes::Bytes;

use crate::client::Client;
use crate::layout::{Class, Role, classes_of, namespace_of};
use crate::settings::c_string;
use crate::{HEAD_LEN, Head, HeadKind, Nonce, RadosError};

/// Largest object without stripes, and size of a stripe, bytes: `STRIPE_BYTES` of
/// `acstor/origin/rados/objects.py`.
const WHOLE_BYTES_MAX: usize = 4 << 20;

/// Stores objects that hosts alone store and that need no stripes, each by one operation.
///
/// That is what a write-through volume waits for. All else (stripes, what an unfinished writer has left,
/// what controllers store too) is Python's, and so is every outcome but success.
#[derive(Clone, Debug)]
pub struct RadosLogWriter {
    client: Arc<Client>,
    repository: String,
}

impl RadosLogWriter {
    pub(crate) fn new(client: Arc<Client>, repository: &str) -> RadosLogWriter {
        RadosLogWriter { client, repository: repository.to_owned() }
    }

    /// Stores a new object made of `parts`, one after the other; `false`: it is not one of those, and
    /// nothing was done.
    ///
    /// # Errors
    /// [`RadosError`]: there is an object already, or it is not known whether this one was stored.
    pub fn put(&self, key: &str, parts: &[Bytes]) -> Result<bool, RadosError> {
        let len = parts.iter().map(Bytes::len).sum();
        if classes_of(key) != [Class::Hosts] || len > WHOLE_BYTES_MAX {
            return Ok(false);
        }
        let namespace = namespace_of(&self.repository, Role::Heads, Class::Hosts, key);
        let namespace = self.client.namespace(Role::Heads, &namespace)?;
        let name = c_string(key, "name of an object")?;
        let created = namespace.create(&name, &stored(parts, len));
        created.map_err(|error| self.client.error(error, format!("storing {key}")))?;
        Ok(true)
    }
}

/// The bytes of a whole object: its head, and its content.
fn stored(parts: &[Bytes], len: usize) -> Vec<u8> {
    let head = Head {
        kind: HeadKind::Whole,
        size: len as u64,
        stripe_size: WHOLE_BYTES_MAX as u32,
        nonce: Nonce(rand::random()),
    };
    let mut stored = Vec::with_capacity(HEAD_LEN + len);
    stored.extend_from_slice(&head.encode());
    parts.iter().for_each(|part| stored.extend_from_slice(part));
    stored
}

#[cfg(test)]
mod tests {
    use acstor_types::ErrorKind;

    use super::*;
    use crate::RadosPackReader;
    use crate::fake::{FUNCTIONS, FakeCluster, Open, POOL, WriteFault};

    const KEY: &str = "volume-log/0a/00000001/0000000000000001";

    fn writer(cluster: &FakeCluster) -> (RadosPackReader, RadosLogWriter) {
        let reader = RadosPackReader::with(&FUNCTIONS, &cluster.settings()).unwrap();
        let writer = reader.log_writer();
        (reader, writer)
    }

    fn parts(content: &[u8]) -> Vec<Bytes> {
        content.chunks(3).map(Bytes::copy_from_slice).collect()
    }

    fn content_at(reader: &RadosPackReader, len: usize) -> Vec<u8> {
        let mut buffer = bytes::BytesMut::zeroed(len + 1);
        let count = reader.read_object(KEY, 0, &mut buffer).unwrap();
        buffer[..count].to_vec()
    }

    #[test]
    fn test_object_is_there_whole_with_a_head_of_its_own() {
        let cluster = FakeCluster::new();
        let (reader, writer) = writer(&cluster);
        assert_eq!(writer.put(KEY, &parts(b"some content")), Ok(true));
        assert_eq!(content_at(&reader, 12), b"some content");
        let stored = cluster.stored(Role::Heads, Class::Hosts, KEY, KEY).unwrap();
        let head = Head::parse(&stored, KEY).unwrap();
        assert_eq!((head.kind, head.size, head.stripe_size), (HeadKind::Whole, 12, 4 << 20));
        let other = KEY.replace("1", "2");
        assert_eq!(writer.put(&other, &parts(b"some content")), Ok(true));
        let stored = cluster.stored(Role::Heads, Class::Hosts, &other, &other).unwrap();
        assert_ne!(Head::parse(&stored, &other).unwrap().nonce, head.nonce);
        drop((reader, writer));
        assert_eq!(cluster.state().open, Open::default());
    }

    #[test]
    fn test_object_that_is_there_stays_as_it_is() {
        let cluster = FakeCluster::new();
        let (reader, writer) = writer(&cluster);
        assert_eq!(writer.put(KEY, &parts(b"first")), Ok(true));
        let error = writer.put(KEY, &parts(b"later")).unwrap_err();
        assert!(error.to_string().contains(&format!("storing {KEY}")), "{error}");
        assert_eq!(content_at(&reader, 5), b"first");
    }

    #[test]
    fn test_answer_that_is_lost_is_an_error() {
        let cluster = FakeCluster::new();
        let (reader, writer) = writer(&cluster);
        cluster.state().write_faults.push_back(WriteFault::Lost(-libc::ETIMEDOUT));
        let error = writer.put(KEY, &parts(b"content")).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unavailable);
        assert_eq!(content_at(&reader, 7), b"content");
    }

    #[test]
    fn test_refused_write_stores_nothing() {
        let cluster = FakeCluster::new();
        let (reader, writer) = writer(&cluster);
        cluster.state().write_faults.push_back(WriteFault::Refused(-libc::ENOSPC));
        writer.put(KEY, &parts(b"content")).unwrap_err();
        assert_eq!(cluster.stored(Role::Heads, Class::Hosts, KEY, KEY), None);
        reader.close();
        assert_eq!(writer.put(KEY, &parts(b"content")), Err(RadosError::Closed));
    }

    #[test]
    fn test_what_needs_more_than_one_operation_is_left_to_others() {
        let cluster = FakeCluster::new();
        let (_reader, writer) = writer(&cluster);
        let large = [Bytes::from(vec![1; WHOLE_BYTES_MAX]), Bytes::from_static(b"x")];
        assert_eq!(writer.put(KEY, &large), Ok(false));
        assert_eq!(writer.put(KEY, &large[..1]), Ok(true));
        for key in ["packs/aa/x", "manifests/aa/x", "moved/aa/x", "alone"] {
            assert_eq!(writer.put(key, &parts(b"content")), Ok(false), "{key}");
        }
    }

    #[test]
    fn test_pool_that_was_deleted_is_not_written_to() {
        let cluster = FakeCluster::new();
        let (_reader, writer) = writer(&cluster);
        assert_eq!(writer.put(KEY, &parts(b"content")), Ok(true));
        cluster.delete_pool(POOL);
        cluster.make_pool(POOL);
        writer.put(&KEY.replace("1", "2"), &parts(b"content")).unwrap_err();
    }
}
