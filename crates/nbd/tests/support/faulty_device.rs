//! A device that is slow, fails, or answers short, when told to.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use acstor_overlay::{
    BlockDevice, DeviceError, DeviceErrorKind, DeviceExtent, DeviceFuture, DeviceUse, Done,
    ExtentQuery, Piece, TryRead, ZeroHow,
};
use bytes::Bytes;
use parking_lot::Mutex;
use tokio::sync::watch;

/// Wraps another device.
pub struct FaultyDevice<D> {
    pub inner: Arc<D>,
    /// While closed, every request waits.
    gate: watch::Sender<bool>,
    /// While closed, what changes the disk takes effect and is not answered.
    answers: watch::Sender<bool>,
    /// Requests that wait at the gate.
    pub waiting: Arc<AtomicUsize>,
    /// Error of every request.
    error: Mutex<Option<DeviceErrorKind>>,
    /// Reads lack their last piece.
    pub is_short: AtomicBool,
    /// Requests panic.
    pub is_broken: AtomicBool,
}

impl<D: BlockDevice> FaultyDevice<D> {
    pub fn new(inner: D) -> FaultyDevice<D> {
        FaultyDevice {
            inner: Arc::new(inner),
            gate: watch::Sender::new(true),
            answers: watch::Sender::new(true),
            waiting: Arc::default(),
            error: Mutex::new(None),
            is_short: AtomicBool::new(false),
            is_broken: AtomicBool::new(false),
        }
    }

    /// Lets nothing through from now on, or everything again.
    pub fn set_open(&self, is_open: bool) {
        self.gate.send_replace(is_open);
    }

    /// Answers no change of the disk from now on, or all again: an origin that is away.
    pub fn set_answering(&self, is_answering: bool) {
        self.answers.send_replace(is_answering);
    }

    pub fn fail_with(&self, kind: Option<DeviceErrorKind>) {
        *self.error.lock() = kind;
    }

    fn fault(&self) -> Result<(), DeviceError> {
        match *self.error.lock() {
            Some(kind) => Err(DeviceError::new(kind, "told to fail")),
            None => Ok(()),
        }
    }

    fn is_open(&self) -> bool {
        *self.gate.borrow()
    }

    /// Waits at the gate, then does `then`.
    fn later<T: 'static>(
        &self,
        then: impl FnOnce(Arc<D>) -> DeviceFuture<T> + Send + 'static,
    ) -> DeviceFuture<T> {
        let mut gate = self.gate.subscribe();
        let waiting = Arc::clone(&self.waiting);
        let inner = Arc::clone(&self.inner);
        let is_broken = self.is_broken.load(Ordering::Relaxed);
        let fault = self.fault();
        waiting.fetch_add(1, Ordering::AcqRel);
        Box::pin(async move {
            let _ = gate.wait_for(|is_open| *is_open).await;
            waiting.fetch_sub(1, Ordering::AcqRel);
            tokio::task::yield_now().await;
            assert!(!is_broken, "told to panic");
            fault?;
            then(inner).await
        })
    }

    fn pass(&self, act: impl FnOnce(&D) -> Done<()> + Send + 'static) -> Done<()> {
        if !self.is_open() || self.is_broken.load(Ordering::Relaxed) {
            return Done::Later(
                self.later(|inner| Box::pin(async move { act(&inner).outcome().await })),
            );
        }
        match self.fault() {
            Ok(()) if !*self.answers.borrow() => {
                let done = act(&self.inner);
                let mut answers = self.answers.subscribe();
                Done::Applied(Box::pin(async move {
                    let _ = answers.wait_for(|is_answering| *is_answering).await;
                    done.outcome().await
                }))
            }
            Ok(()) => act(&self.inner),
            Err(error) => Done::Now(Err(error)),
        }
    }

    fn shortened(&self, mut pieces: Vec<Piece>) -> Vec<Piece> {
        if self.is_short.load(Ordering::Relaxed) {
            pieces.pop();
        }
        pieces
    }
}

impl<D: BlockDevice> BlockDevice for FaultyDevice<D> {
    fn size_bytes(&self) -> u64 {
        self.inner.size_bytes()
    }

    fn is_read_only(&self) -> bool {
        self.inner.is_read_only()
    }

    fn opened(&self, client: u64) -> Option<Box<dyn DeviceUse>> {
        self.inner.opened(client)
    }

    fn try_read(&self, offset: u64, len: usize) -> Result<TryRead, DeviceError> {
        if !self.is_open() || self.is_broken.load(Ordering::Relaxed) {
            return Ok(TryRead::WouldWait);
        }
        self.fault()?;
        Ok(match self.inner.try_read(offset, len)? {
            TryRead::Ready(pieces) => TryRead::Ready(self.shortened(pieces)),
            TryRead::WouldWait => TryRead::WouldWait,
        })
    }

    fn read(&self, offset: u64, len: usize) -> DeviceFuture<Vec<Piece>> {
        self.later(move |inner| inner.read(offset, len))
    }

    fn write(&self, offset: u64, data: Bytes, fua: bool) -> Done<()> {
        self.pass(move |inner| inner.write(offset, data, fua))
    }

    fn write_zeroes(&self, offset: u64, len: u64, how: ZeroHow) -> Done<()> {
        self.pass(move |inner| inner.write_zeroes(offset, len, how))
    }

    fn trim(&self, offset: u64, len: u64, fua: bool) -> Done<()> {
        self.pass(move |inner| inner.trim(offset, len, fua))
    }

    fn flush(&self) -> Done<()> {
        self.pass(|inner| inner.flush())
    }

    fn extents(&self, offset: u64, len: u64, what: ExtentQuery, max: usize) -> Vec<DeviceExtent> {
        self.inner.extents(offset, len, what, max)
    }

    fn prepare_extents(&self, _: u64, _: u64, _: usize) -> Option<DeviceFuture<()>> {
        (!self.is_open()).then(|| self.later(|_| Box::pin(async { Ok(()) })))
    }

    fn prefetch(&self, offset: u64, len: u64) -> Done<()> {
        self.pass(move |inner| inner.prefetch(offset, len))
    }
}
