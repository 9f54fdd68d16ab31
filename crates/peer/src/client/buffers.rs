//! Buffers for chunks, used again: a fresh allocation of 64 KiB costs page faults that take longer
//! than the copy into it (measured: a quarter of the client's CPU time).

use std::sync::Arc;

use bytes::Bytes;
use parking_lot::Mutex;

/// Most bytes that wait in a pool to be used again.
const POOL_BYTES_MAX: usize = 8 << 20;

/// Buffers that wait to be used again, shared by the connections of a client.
#[derive(Debug, Default)]
pub(super) struct BufferPool {
    free: Mutex<Free>,
}

#[derive(Debug, Default)]
struct Free {
    buffers: Vec<Vec<u8>>,
    bytes: usize,
}

/// A chunk whose buffer goes back to its pool when the last user drops it.
struct Pooled {
    buffer: Vec<u8>,
    pool: Arc<BufferPool>,
}

impl BufferPool {
    /// Returns an empty buffer with a capacity of exactly `capacity` where one waits, else of at
    /// least that.
    pub(super) fn take(&self, capacity: usize) -> Vec<u8> {
        let mut free = self.free.lock();
        // The one that came back last is the warmest; chunks are mostly of one size.
        let position = free.buffers.iter().rposition(|buffer| buffer.capacity() == capacity);
        match position {
            Some(position) => {
                free.bytes -= capacity;
                free.buffers.swap_remove(position)
            }
            None => {
                drop(free);
                Vec::with_capacity(capacity)
            }
        }
    }

    /// Returns the filled buffer as bytes that bring it back when they are dropped.
    pub(super) fn share(self: &Arc<Self>, buffer: Vec<u8>) -> Bytes {
        Bytes::from_owner(Pooled { buffer, pool: Arc::clone(self) })
    }

    fn put(&self, mut buffer: Vec<u8>) {
        buffer.clear();
        let mut free = self.free.lock();
        if free.bytes + buffer.capacity() <= POOL_BYTES_MAX {
            free.bytes += buffer.capacity();
            free.buffers.push(buffer);
        }
    }
}

impl AsRef<[u8]> for Pooled {
    fn as_ref(&self) -> &[u8] {
        &self.buffer
    }
}

impl Drop for Pooled {
    fn drop(&mut self) {
        self.pool.put(std::mem::take(&mut self.buffer));
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::{BufferPool, POOL_BYTES_MAX};

    #[test]
    fn test_share_dropped_buffer_is_used_again() {
        let pool = Arc::new(BufferPool::default());
        let mut buffer = pool.take(4096);
        buffer.extend_from_slice(&[7; 4096]);
        let chunk = pool.share(buffer);
        let other = chunk.clone();
        let place = chunk.as_ptr();
        drop(chunk);
        assert_eq!(other[..], [7; 4096]);
        assert!(pool.free.lock().buffers.is_empty(), "a user is left");
        drop(other);
        let again = pool.take(4096);
        assert_eq!((again.as_ptr(), again.len()), (place, 0));
    }

    #[test]
    fn test_put_beyond_the_limit_frees_the_buffer() {
        let pool = Arc::new(BufferPool::default());
        let chunks: Vec<_> = (0..10).map(|_| pool.share(pool.take(POOL_BYTES_MAX / 4))).collect();
        drop(chunks);
        assert_eq!(pool.free.lock().buffers.len(), 4);
    }
}
