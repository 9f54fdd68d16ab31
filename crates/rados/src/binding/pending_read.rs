//! A read that is under way.

use std::ffi::{CStr, c_char};
use std::ptr;
use std::sync::Arc;

use bytes::BytesMut;

use super::functions::Handle;
use super::namespace::Namespace;
use super::{Errno, checked};

/// A read of one object, and the buffer that its bytes come to.
///
/// librados ends each read by the deadline that the connection's options set, whatever the cluster
/// does. Until then it may write to the buffer at any moment: so the read owns it, and whoever gives
/// up drops the read. That cancels it and waits until librados has let go, which it does at once.
/// Where a read is never dropped (`mem::forget`), the buffer stays for ever.
///
/// Waiting is the caller's own. A callback would come from one more thread, of librados': RFD 29 has what
/// that costs.
#[derive(Debug)]
pub(crate) struct PendingRead {
    namespace: Arc<Namespace>,
    /// `None` where nothing is under way: there is nothing to read, or it was refused, or has ended.
    completion: Option<Handle>,
    refusal: Option<Errno>,
    buffer: BytesMut,
}

impl PendingRead {
    pub(super) fn start(
        namespace: Arc<Namespace>,
        name: &CStr,
        offset: u64,
        mut buffer: BytesMut,
    ) -> PendingRead {
        if buffer.is_empty() {
            // To RADOS no bytes are all bytes.
            return PendingRead { namespace, completion: None, refusal: None, buffer };
        }
        let functions = namespace.functions();
        let mut completion = ptr::null_mut();
        // SAFETY: there is room for the completion; it calls nobody back.
        let created =
            unsafe { (functions.create_completion)(ptr::null_mut(), None, &raw mut completion) };
        if let Err(refusal) = checked(created) {
            return PendingRead { namespace, completion: None, refusal: Some(refusal), buffer };
        }
        let memory = buffer.as_mut_ptr().cast::<c_char>();
        // SAFETY: context and completion are alive; the name is a string of C's, which librados copies.
        // The memory has as many bytes as are told. The buffer owns it and is in the read from here on,
        // where nobody looks at it before the read has ended; to move the buffer moves no memory of it.
        let started = unsafe {
            let context = namespace.context();
            (functions.read)(context, name.as_ptr(), completion, memory, buffer.len(), offset)
        };
        let refusal = checked(started).err();
        let mut read = PendingRead { namespace, completion: Some(completion), refusal, buffer };
        if refusal.is_some() {
            // It is not under way, so nobody completes it.
            read.release();
        }
        read
    }

    /// Waits until the read has ended; returns the number of bytes, fewer than the buffer has where the
    /// object ends, and the buffer.
    pub(crate) fn wait(mut self) -> (Result<usize, Errno>, BytesMut) {
        let outcome = match (self.refusal, self.completion) {
            (None, Some(completion)) => {
                let functions = self.namespace.functions();
                // SAFETY: the completion is alive, and of a read that was started.
                let code = unsafe {
                    (functions.wait)(completion);
                    (functions.result)(completion)
                };
                self.release();
                checked(code).map(|count| (count as usize).min(self.buffer.len()))
            }
            (Some(refusal), _) => Err(refusal),
            (None, None) => Ok(0),
        };
        (outcome, std::mem::take(&mut self.buffer))
    }

    /// Gives the completion back.
    fn release(&mut self) {
        if let Some(completion) = self.completion.take() {
            // SAFETY: the completion was made in `start`, is released once, and nobody waits for it.
            unsafe { (self.namespace.functions().release)(completion) }
        }
    }
}

impl Drop for PendingRead {
    fn drop(&mut self) {
        let Some(completion) = self.completion else { return };
        let functions = self.namespace.functions();
        // SAFETY: context and completion are alive, and the read was started and not waited for. After the
        // wait librados does not touch the buffer any more, which is freed with this.
        unsafe {
            (functions.cancel)(self.namespace.context(), completion);
            (functions.wait)(completion);
        }
        self.release();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

    use rand::Rng;
    use rand_chacha::ChaCha8Rng;
    use rand_chacha::rand_core::SeedableRng;

    use super::*;
    use crate::binding::Connection;
    use crate::fake::{FUNCTIONS, FakeCluster, Open, POOL};
    use crate::layout::{Class, Role};

    const KEY: &str = "packs/aa/x";
    const LEN: usize = 4096;
    const READERS: u64 = 4;
    const READS: usize = 100;

    /// A namespace of a cluster with one RADOS object, of `LEN` sevens.
    fn namespace(cluster: &FakeCluster) -> Arc<Namespace> {
        cluster.put(Role::Heads, Class::Controllers, KEY, KEY, vec![7; LEN]);
        let mut connection = Connection::create(&FUNCTIONS, c"client.acstor").unwrap();
        let conf = std::ffi::CString::new(cluster.settings().conf).unwrap();
        connection.read_configuration(&conf).unwrap();
        connection.connect().unwrap();
        let pool = std::ffi::CString::new(POOL).unwrap();
        Arc::new(Arc::new(connection).open(&pool, c"acstor.o.packs").unwrap())
    }

    fn start(namespace: &Arc<Namespace>, len: usize) -> PendingRead {
        namespace.start_read(c"packs/aa/x", 0, BytesMut::zeroed(len))
    }

    #[test]
    fn test_read_of_nothing_asks_for_nothing() {
        let cluster = FakeCluster::new();
        let (outcome, buffer) = start(&namespace(&cluster), 0).wait();
        assert_eq!((outcome, buffer.len()), (Ok(0), 0));
        assert_eq!(cluster.state().asked, []);
    }

    #[test]
    fn test_memory_of_the_buffer_is_what_is_read_into() {
        let cluster = FakeCluster::new();
        let namespace = namespace(&cluster);
        let buffer = BytesMut::zeroed(LEN);
        let memory = buffer.as_ptr();
        let (outcome, buffer) = namespace.start_read(c"packs/aa/x", 0, buffer).wait();
        assert_eq!(outcome, Ok(LEN));
        assert_eq!((buffer.as_ptr(), &buffer[..]), (memory, &[7; LEN][..]));
    }

    #[test]
    fn test_read_that_is_given_up_is_cancelled_and_answered_to_nobody() {
        let cluster = FakeCluster::new();
        let namespace = namespace(&cluster);
        cluster.hold();
        let read = start(&namespace, LEN);
        drop(namespace);
        cluster.wait_held(1);
        drop(read);
        assert_eq!(cluster.state().cancelled, 1);
        assert_eq!(cluster.state().open, Open::default(), "the connection was the read's");
        cluster.end_held(None);
    }

    #[test]
    fn test_cancelled_read_says_so_to_who_waits() {
        let cluster = FakeCluster::new();
        let namespace = namespace(&cluster);
        cluster.hold();
        let read = start(&namespace, LEN);
        cluster.end_held(Some(-libc::ETIMEDOUT));
        let (outcome, buffer) = read.wait();
        assert_eq!(outcome, Err(Errno(libc::ETIMEDOUT)));
        assert_eq!(buffer[..], [0; LEN][..], "nothing was written");
    }

    /// Reads are given up, or waited for, while answers come from other threads at any moment. A write to
    /// memory that was freed is found by the checks of the allocator, or shows up in what others have made of
    /// it meanwhile.
    #[test]
    fn test_reads_that_are_given_up_at_any_moment_write_to_nobody() {
        let cluster = FakeCluster::new();
        let namespace = namespace(&cluster);
        cluster.state().has_threads = true;
        let is_torn = AtomicBool::new(false);
        std::thread::scope(|scope| {
            for seed in 0..READERS {
                let (namespace, is_torn) = (&namespace, &is_torn);
                scope.spawn(move || {
                    let mut rng = ChaCha8Rng::seed_from_u64(seed);
                    for _ in 0..READS {
                        let first = start(namespace, LEN);
                        let second = start(namespace, LEN);
                        if rng.random() {
                            drop(first);
                            // Of the same size, so most likely of the same place.
                            let other = vec![1_u8; LEN];
                            std::thread::yield_now();
                            is_torn.fetch_or(other.contains(&7), Ordering::Relaxed);
                        } else {
                            assert_eq!(first.wait().0, Ok(LEN));
                        }
                        let (outcome, buffer) = second.wait();
                        assert_eq!((outcome, &buffer[..]), (Ok(LEN), &[7; LEN][..]));
                    }
                });
            }
        });
        assert!(!is_torn.into_inner());
        drop(namespace);
        assert_eq!(cluster.state().open, Open::default());
    }
}
