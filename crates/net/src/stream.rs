//! A connected socket, with or without TLS.

use std::io::{self, IoSlice};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use socket2::{MaybeUninitSlice, SockRef};
use tokio::io::{AsyncRead, AsyncWrite, Interest, ReadBuf};
use tokio::net::{TcpStream, UnixStream};
use tokio_rustls::TlsStream;

/// A connected socket.
pub enum Socket {
    /// Of this host.
    Unix(UnixStream),
    /// Of any host.
    Tcp(TcpStream),
}

/// The bytes of a connection, whatever is beneath.
pub enum Stream {
    /// Bytes as they are.
    Plain(Socket),
    /// TLS records.
    Tls(Box<TlsStream<Socket>>),
}

impl Stream {
    /// Returns whether the bytes pass through this program, so that it must be able to read them.
    pub fn is_tls(&self) -> bool {
        matches!(self, Stream::Tls(_))
    }

    /// Bounds the bytes that are taken from the caller and not sent yet, in the socket and in TLS above it
    /// each: "written" is then soon "sent", and what is more urgent does not wait behind what a socket
    /// swallowed. Best effort: only the order of what is sent depends on it.
    pub fn limit_unsent(&mut self, bytes: usize) {
        match self {
            Stream::Plain(socket) => socket.limit_unsent(bytes),
            Stream::Tls(tls) => match tls.as_mut() {
                TlsStream::Client(tls) => {
                    let (socket, session) = tls.get_mut();
                    socket.limit_unsent(bytes);
                    session.set_buffer_limit(Some(bytes));
                }
                TlsStream::Server(tls) => {
                    let (socket, session) = tls.get_mut();
                    socket.limit_unsent(bytes);
                    session.set_buffer_limit(Some(bytes));
                }
            },
        }
    }

    /// Receives into `first` and, when that is full, on into `second`, with one system call where
    /// the stream allows it. Returns the number of bytes, 0 at the end of the stream.
    ///
    /// The bytes received are initialised, `first` before `second`. At least one of the two must have
    /// room.
    pub fn poll_receive(
        &mut self,
        cx: &mut Context<'_>,
        first: &mut [MaybeUninit<u8>],
        second: &mut [MaybeUninit<u8>],
    ) -> Poll<io::Result<usize>> {
        match self {
            Stream::Plain(socket) => socket.poll_receive(cx, first, second),
            Stream::Tls(tls) => {
                let target = if first.is_empty() { second } else { first };
                let mut buffer = ReadBuf::uninit(target);
                ready!(Pin::new(tls.as_mut()).poll_read(cx, &mut buffer))?;
                Poll::Ready(Ok(buffer.filled().len()))
            }
        }
    }

    /// Sends from `slices`; see [`AsyncWrite::poll_write_vectored`].
    pub fn poll_send(
        &mut self,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(self).poll_write_vectored(cx, slices)
    }

    /// Sends from `pieces`, which may be mappings of files; returns the number of bytes.
    ///
    /// # Safety
    /// Every piece describes memory that lives over the call. On a TLS stream it can also be read by
    /// this program; on a plain one only the kernel reads it, and memory that has no file behind it
    /// any more is the error EFAULT.
    pub unsafe fn poll_send_pieces(
        &mut self,
        cx: &mut Context<'_>,
        pieces: &[libc::iovec],
    ) -> Poll<io::Result<usize>> {
        match self {
            Stream::Plain(socket) => socket.poll_send_pieces(cx, pieces),
            Stream::Tls(tls) => {
                let mut slices = [IoSlice::new(&[]); 16];
                let count = pieces.len().min(slices.len());
                for (slice, piece) in slices.iter_mut().zip(pieces) {
                    // SAFETY: the caller promises that the memory lives and can be read.
                    let bytes = unsafe {
                        std::slice::from_raw_parts(piece.iov_base.cast::<u8>(), piece.iov_len)
                    };
                    *slice = IoSlice::new(bytes);
                }
                Pin::new(tls.as_mut()).poll_write_vectored(cx, &slices[..count])
            }
        }
    }
}

impl Socket {
    /// Asks for larger socket buffers: a burst of answers fits, and one wake-up serves more requests.
    pub fn enlarge_buffers(&self, bytes: usize) {
        let socket = SockRef::from(self);
        // The kernel grants what it allows; only speed depends on it.
        let _ = socket.set_send_buffer_size(bytes);
        let _ = socket.set_recv_buffer_size(bytes);
    }

    fn limit_unsent(&self, bytes: usize) {
        let Socket::Tcp(stream) = self else { return };
        let bytes = libc::c_int::try_from(bytes).unwrap_or(libc::c_int::MAX);
        // SAFETY: the descriptor is open, and the kernel reads one integer of the length given.
        let outcome = unsafe {
            libc::setsockopt(
                stream.as_raw_fd(),
                libc::IPPROTO_TCP,
                libc::TCP_NOTSENT_LOWAT,
                std::ptr::from_ref(&bytes).cast(),
                size_of_val(&bytes) as libc::socklen_t,
            )
        };
        if outcome < 0 {
            let error = io::Error::last_os_error();
            tracing::debug!(%error, "the socket takes no bound of what is not sent");
        }
    }

    fn poll_read_ready(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self {
            Socket::Unix(stream) => stream.poll_read_ready(cx),
            Socket::Tcp(stream) => stream.poll_read_ready(cx),
        }
    }

    fn poll_write_ready(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self {
            Socket::Unix(stream) => stream.poll_write_ready(cx),
            Socket::Tcp(stream) => stream.poll_write_ready(cx),
        }
    }

    fn try_io<R>(&self, how: Interest, io: impl FnOnce() -> io::Result<R>) -> io::Result<R> {
        match self {
            Socket::Unix(stream) => stream.try_io(how, io),
            Socket::Tcp(stream) => stream.try_io(how, io),
        }
    }

    fn poll_receive(
        &self,
        cx: &mut Context<'_>,
        first: &mut [MaybeUninit<u8>],
        second: &mut [MaybeUninit<u8>],
    ) -> Poll<io::Result<usize>> {
        let room = first.len() + second.len();
        loop {
            ready!(self.poll_read_ready(cx))?;
            let mut received = None;
            let outcome = self.try_io(Interest::READABLE, || {
                let mut slices = [MaybeUninitSlice::new(first), MaybeUninitSlice::new(second)];
                let (len, _flags) = SockRef::from(self).recv_vectored(&mut slices)?;
                received = Some(len);
                // A short receive drained the socket: saying so saves the system call that would
                // only find that out. The end of the stream stays visible to the next one.
                if len > 0 && len < room { Err(io::ErrorKind::WouldBlock.into()) } else { Ok(()) }
            });
            match (received, outcome) {
                (Some(len), _) => return Poll::Ready(Ok(len)),
                (None, Err(error)) if error.kind() != io::ErrorKind::WouldBlock => {
                    return Poll::Ready(Err(error));
                }
                (None, _) => {}
            }
        }
    }

    fn poll_send_pieces(
        &self,
        cx: &mut Context<'_>,
        pieces: &[libc::iovec],
    ) -> Poll<io::Result<usize>> {
        loop {
            ready!(self.poll_write_ready(cx))?;
            match self.try_io(Interest::WRITABLE, || send(self.as_fd(), pieces)) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                outcome => return Poll::Ready(outcome),
            }
        }
    }
}

/// Sends with one system call. The kernel reads the pieces; see [`Stream::poll_send_pieces`].
fn send(fd: BorrowedFd<'_>, pieces: &[libc::iovec]) -> io::Result<usize> {
    // SAFETY: all zeroes is a valid msghdr: no name, no control data.
    let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
    message.msg_iov = pieces.as_ptr().cast_mut();
    message.msg_iovlen = pieces.len() as _;
    let flags = libc::MSG_NOSIGNAL | libc::MSG_DONTWAIT;
    // SAFETY: the descriptor is open; the kernel only reads the pieces, which the caller keeps alive,
    // and reports memory that has no file behind it any more as EFAULT.
    let sent = unsafe { libc::sendmsg(fd.as_raw_fd(), &message, flags) };
    if sent < 0 { Err(io::Error::last_os_error()) } else { Ok(sent as usize) }
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Socket::Unix(stream) => stream.as_fd(),
            Socket::Tcp(stream) => stream.as_fd(),
        }
    }
}

macro_rules! delegate_io {
    ($name:ident { $($variant:ident($inner:ident) => $pin:expr),* $(,)? }) => {
        impl AsyncRead for $name {
            fn poll_read(
                self: Pin<&mut Self>,
                cx: &mut Context<'_>,
                buffer: &mut ReadBuf<'_>,
            ) -> Poll<io::Result<()>> {
                match self.get_mut() { $($name::$variant($inner) => $pin.poll_read(cx, buffer),)* }
            }
        }

        impl AsyncWrite for $name {
            fn poll_write(
                self: Pin<&mut Self>,
                cx: &mut Context<'_>,
                bytes: &[u8],
            ) -> Poll<io::Result<usize>> {
                match self.get_mut() { $($name::$variant($inner) => $pin.poll_write(cx, bytes),)* }
            }

            fn poll_write_vectored(
                self: Pin<&mut Self>,
                cx: &mut Context<'_>,
                slices: &[IoSlice<'_>],
            ) -> Poll<io::Result<usize>> {
                match self.get_mut() {
                    $($name::$variant($inner) => $pin.poll_write_vectored(cx, slices),)*
                }
            }

            fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
                match self.get_mut() { $($name::$variant($inner) => $pin.poll_flush(cx),)* }
            }

            fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
                match self.get_mut() { $($name::$variant($inner) => $pin.poll_shutdown(cx),)* }
            }
        }
    };
}

delegate_io!(Socket { Unix(stream) => Pin::new(stream), Tcp(stream) => Pin::new(stream) });
delegate_io!(Stream { Plain(socket) => Pin::new(socket), Tls(tls) => Pin::new(tls.as_mut()) });
