//! What NBD clients of a volume talk to: its overlay, somebody who waits for it, or nobody.
//!
//! The overlay of a volume comes and goes while its clients stay connected: a standby of a live
//! migration gets it with the first request, an owner that was replaced loses it for good.
//!
//! Must never: let a request reach an overlay that was taken away.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use acstor_overlay::{
    BlockDevice, DeviceError, DeviceErrorKind, DeviceExtent, DeviceFuture, Done, ExtentQuery,
    Piece, TryRead, ZeroHow,
};
use bytes::Bytes;
use parking_lot::RwLock;
use tokio::sync::Notify;

/// Longest wait of a request for the overlay.
const WAIT_MAX: Duration = Duration::from_secs(60);

/// Who answers requests.
enum Mode {
    /// The overlay.
    Active(Arc<dyn BlockDevice>),
    /// Nobody yet: requests wait, and tell that they do.
    Standby,
    /// Nobody any more: every request fails.
    Fenced(String),
}

struct Shared {
    /// Held for reading while a request is handed over, never while one waits.
    mode: RwLock<Mode>,
    changed: Notify,
    size_bytes: AtomicU64,
    is_wanted: AtomicBool,
}

/// A disk whose overlay can be put in place and taken away.
#[derive(Clone)]
pub(super) struct SwitchedDevice {
    shared: Arc<Shared>,
}

impl SwitchedDevice {
    /// A disk of `size_bytes` whose overlay is to come.
    pub(super) fn standby(size_bytes: u64) -> SwitchedDevice {
        SwitchedDevice {
            shared: Arc::new(Shared {
                mode: RwLock::new(Mode::Standby),
                changed: Notify::new(),
                size_bytes: size_bytes.into(),
                is_wanted: false.into(),
            }),
        }
    }

    /// Puts the overlay in place; requests that wait go on.
    pub(super) fn activate(&self, device: Arc<dyn BlockDevice>) {
        self.switch(Mode::Active(device));
    }

    /// Takes the overlay away. When this returns no request is being handed to it, and none will
    /// be; those that were go on.
    pub(super) fn stand_by(&self) {
        self.switch(Mode::Standby);
    }

    /// Fails every request from now on.
    pub(super) fn fence(&self, why: &str) {
        self.switch(Mode::Fenced(why.to_owned()));
    }

    /// Whether a request waits for the overlay.
    pub(super) fn is_wanted(&self) -> bool {
        self.shared.is_wanted.load(Ordering::Acquire)
    }

    fn switch(&self, mode: Mode) {
        let mut present = self.shared.mode.write();
        if let Mode::Active(device) = &*present {
            self.shared.size_bytes.store(device.size_bytes(), Ordering::Release);
        }
        *present = mode;
        self.shared.is_wanted.store(false, Ordering::Release);
        drop(present);
        self.shared.changed.notify_waiters();
    }

    /// Hands a request to the overlay, or has it wait for one.
    fn pass<T: Send + 'static>(
        &self,
        request: impl Fn(&dyn BlockDevice) -> Done<T> + Send + 'static,
    ) -> Done<T> {
        match &*self.shared.mode.read() {
            Mode::Active(device) => return request(&**device),
            Mode::Fenced(why) => return Done::Now(Err(fenced(why))),
            Mode::Standby => {}
        }
        let device = self.clone();
        Done::Later(Box::pin(async move { device.wait_and_pass(request).await }))
    }

    async fn wait_and_pass<T: Send + 'static>(
        self,
        request: impl Fn(&dyn BlockDevice) -> Done<T> + Send,
    ) -> Result<T, DeviceError> {
        let waiting = tokio::time::timeout(WAIT_MAX, self.handed_over(request));
        match waiting.await {
            Ok(done) => done?.outcome().await,
            Err(_) => Err(DeviceError::new(
                DeviceErrorKind::Io,
                "the volume's owner did not hand it over in time",
            )),
        }
    }

    /// Waits for the overlay and hands `request` to it.
    async fn handed_over<T>(
        &self,
        request: impl Fn(&dyn BlockDevice) -> Done<T>,
    ) -> Result<Done<T>, DeviceError> {
        loop {
            let changed = self.shared.changed.notified();
            match &*self.shared.mode.read() {
                Mode::Active(device) => return Ok(request(&**device)),
                Mode::Fenced(why) => return Err(fenced(why)),
                Mode::Standby => self.shared.is_wanted.store(true, Ordering::Release),
            }
            changed.await;
        }
    }
}

fn fenced(why: &str) -> DeviceError {
    DeviceError::new(DeviceErrorKind::Fenced, why)
}

impl BlockDevice for SwitchedDevice {
    fn size_bytes(&self) -> u64 {
        match &*self.shared.mode.read() {
            Mode::Active(device) => device.size_bytes(),
            _ => self.shared.size_bytes.load(Ordering::Acquire),
        }
    }

    fn is_read_only(&self) -> bool {
        match &*self.shared.mode.read() {
            Mode::Active(device) => device.is_read_only(),
            _ => false,
        }
    }

    fn try_read(&self, offset: u64, len: usize) -> Result<TryRead, DeviceError> {
        match &*self.shared.mode.read() {
            Mode::Active(device) => device.try_read(offset, len),
            Mode::Standby => Ok(TryRead::WouldWait),
            Mode::Fenced(why) => Err(fenced(why)),
        }
    }

    fn read(&self, offset: u64, len: usize) -> DeviceFuture<Vec<Piece>> {
        match self.pass(move |device| Done::Later(device.read(offset, len))) {
            Done::Later(future) => future,
            Done::Now(outcome) => Box::pin(std::future::ready(outcome)),
        }
    }

    fn write(&self, offset: u64, data: Bytes, fua: bool) -> Done<()> {
        self.pass(move |device| device.write(offset, data.clone(), fua))
    }

    fn write_zeroes(&self, offset: u64, len: u64, how: ZeroHow) -> Done<()> {
        self.pass(move |device| device.write_zeroes(offset, len, how))
    }

    fn trim(&self, offset: u64, len: u64, fua: bool) -> Done<()> {
        self.pass(move |device| device.trim(offset, len, fua))
    }

    fn flush(&self) -> Done<()> {
        // Nothing was written to what is not there, and what was there was given back whole.
        if matches!(&*self.shared.mode.read(), Mode::Standby) {
            return Done::Now(Ok(()));
        }
        self.pass(|device| device.flush())
    }

    fn extents(&self, offset: u64, len: u64, what: ExtentQuery, max: usize) -> Vec<DeviceExtent> {
        match &*self.shared.mode.read() {
            Mode::Active(device) => device.extents(offset, len, what, max),
            // All of it may be data.
            _ => vec![DeviceExtent { len, is_hole: false, is_zero: false, is_dirty: true }],
        }
    }

    fn prefetch(&self, offset: u64, len: u64) -> Done<()> {
        match &*self.shared.mode.read() {
            Mode::Active(device) => device.prefetch(offset, len),
            _ => Done::Now(Ok(())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A disk that answers at once and remembers what was flushed and written.
    #[derive(Default)]
    struct Answering {
        writes: AtomicU64,
    }

    impl BlockDevice for Answering {
        fn size_bytes(&self) -> u64 {
            8192
        }
        fn is_read_only(&self) -> bool {
            false
        }
        fn try_read(&self, _: u64, _: usize) -> Result<TryRead, DeviceError> {
            Ok(TryRead::Ready(Vec::new()))
        }
        fn read(&self, _: u64, _: usize) -> DeviceFuture<Vec<Piece>> {
            Box::pin(std::future::ready(Ok(Vec::new())))
        }
        fn write(&self, _: u64, _: Bytes, _: bool) -> Done<()> {
            self.writes.fetch_add(1, Ordering::SeqCst);
            Done::Now(Ok(()))
        }
        fn write_zeroes(&self, _: u64, _: u64, _: ZeroHow) -> Done<()> {
            Done::Now(Ok(()))
        }
        fn trim(&self, _: u64, _: u64, _: bool) -> Done<()> {
            Done::Now(Ok(()))
        }
        fn flush(&self) -> Done<()> {
            Done::Now(Ok(()))
        }
        fn extents(&self, _: u64, _: u64, _: ExtentQuery, _: usize) -> Vec<DeviceExtent> {
            Vec::new()
        }
        fn prefetch(&self, _: u64, _: u64) -> Done<()> {
            Done::Now(Ok(()))
        }
    }

    fn write(device: &SwitchedDevice) -> impl Future<Output = Result<(), DeviceError>> + use<> {
        device.write(0, Bytes::from_static(&[1; 512]), false).outcome()
    }

    #[tokio::test]
    async fn test_requests_wait_for_the_overlay_and_say_so() {
        let device = SwitchedDevice::standby(4096);
        assert_eq!(device.size_bytes(), 4096);
        assert!(!device.is_wanted());
        let waiting = tokio::spawn(write(&device));
        while !device.is_wanted() {
            tokio::task::yield_now().await;
        }
        let overlay = Arc::new(Answering::default());
        device.activate(overlay.clone());
        assert_eq!(waiting.await.unwrap(), Ok(()));
        assert_eq!(overlay.writes.load(Ordering::SeqCst), 1);
        assert!(!device.is_wanted());
        assert_eq!(device.size_bytes(), 8192);
        device.stand_by();
        assert_eq!(device.size_bytes(), 8192, "as the overlay had it");
        let waiting = tokio::spawn(write(&device));
        while !device.is_wanted() {
            tokio::task::yield_now().await;
        }
        assert_eq!(overlay.writes.load(Ordering::SeqCst), 1, "it was taken away");
        device.activate(overlay.clone());
        assert_eq!(waiting.await.unwrap(), Ok(()));
    }

    #[tokio::test]
    async fn test_fenced_disk_answers_nothing() {
        let device = SwitchedDevice::standby(4096);
        let waiting = tokio::spawn(write(&device));
        while !device.is_wanted() {
            tokio::task::yield_now().await;
        }
        device.fence("another host owns it");
        let error = waiting.await.unwrap().unwrap_err();
        assert_eq!(error.kind, DeviceErrorKind::Fenced);
        assert_eq!(device.try_read(0, 512).unwrap_err().kind, DeviceErrorKind::Fenced);
        assert_eq!(device.read(0, 512).await.unwrap_err().kind, DeviceErrorKind::Fenced);
        assert_eq!(device.flush().outcome().await.unwrap_err().kind, DeviceErrorKind::Fenced);
    }

    #[tokio::test(start_paused = true)]
    async fn test_wait_for_an_overlay_that_does_not_come_ends() {
        let device = SwitchedDevice::standby(4096);
        let error = write(&device).await.unwrap_err();
        assert_eq!(error.kind, DeviceErrorKind::Io);
        assert_eq!(device.flush().outcome().await, Ok(()));
    }
}
