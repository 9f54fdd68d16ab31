//! A group in memory that loses, doubles and disorders datagrams, by a seed.

use std::io;
use std::sync::Arc;

use acstor_multicast::shell::Datagrams;
use parking_lot::Mutex;
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use tokio::sync::mpsc;

/// Faults of the way to one member.
#[derive(Clone, Copy, Default)]
pub struct Faults {
    /// Share lost.
    pub loss: f64,
    /// Share that comes twice.
    pub doubles: f64,
    /// Share that is held back until after the next one.
    pub disorder: f64,
    /// Datagrams after which nothing comes any more.
    pub deaf_after: Option<u64>,
}

struct Way {
    faults: Faults,
    rng: ChaCha8Rng,
    sent: u64,
    held_back: Option<Vec<u8>>,
    queue: mpsc::UnboundedSender<Vec<u8>>,
}

impl Way {
    fn pass(&mut self, datagram: &[u8]) {
        self.sent += 1;
        let Faults { loss, doubles, disorder, deaf_after } = self.faults;
        if deaf_after.is_some_and(|most| self.sent > most) || self.rng.random_bool(loss) {
            return;
        }
        let copies = 1 + usize::from(self.rng.random_bool(doubles));
        let before = self.held_back.take();
        if self.rng.random_bool(disorder) {
            self.held_back = Some(datagram.to_vec());
        } else {
            (0..copies).for_each(|_| drop(self.queue.send(datagram.to_vec())));
        }
        before.into_iter().for_each(|late| drop(self.queue.send(late)));
    }
}

/// The group; what is sent to it goes every way.
#[derive(Clone, Default)]
pub struct MemoryGroup(Arc<Mutex<Vec<Way>>>);

/// One member's end.
pub struct Ear(tokio::sync::Mutex<mpsc::UnboundedReceiver<Vec<u8>>>);

impl MemoryGroup {
    /// Adds a member.
    pub fn listen(&self, faults: Faults, seed: u64) -> Ear {
        let (queue, ear) = mpsc::unbounded_channel();
        let rng = ChaCha8Rng::seed_from_u64(seed);
        self.0.lock().push(Way { faults, rng, sent: 0, held_back: None, queue });
        Ear(tokio::sync::Mutex::new(ear))
    }
}

impl Datagrams for MemoryGroup {
    async fn send(&self, datagram: &[u8]) -> io::Result<()> {
        self.0.lock().iter_mut().for_each(|way| way.pass(datagram));
        Ok(())
    }

    async fn receive(&self, _buffer: &mut [u8]) -> io::Result<usize> {
        std::future::pending().await
    }
}

impl Datagrams for Ear {
    async fn send(&self, _datagram: &[u8]) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }

    async fn receive(&self, buffer: &mut [u8]) -> io::Result<usize> {
        let Some(datagram) = self.0.lock().await.recv().await else {
            return Err(io::ErrorKind::BrokenPipe.into());
        };
        let len = datagram.len().min(buffer.len());
        buffer[..len].copy_from_slice(&datagram[..len]);
        Ok(len)
    }
}
