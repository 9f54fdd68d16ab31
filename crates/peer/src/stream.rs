//! A connected socket, with or without TLS.

use std::io::{self, IoSlice};
use std::mem::MaybeUninit;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use socket2::{MaybeUninitSlice, SockRef};
use tokio::io::{AsyncRead, AsyncWrite, Interest, ReadBuf};
use tokio::net::TcpStream;
use tokio_rustls::TlsStream;

/// A connected socket.
pub(crate) enum Stream {
    /// Bytes as they are.
    Plain(TcpStream),
    /// TLS records.
    Tls(Box<TlsStream<TcpStream>>),
}

impl Stream {
    /// Receives into `first` and, when that is full, on into `second`, with one system call where
    /// the stream allows it. Returns the number of bytes, 0 at the end of the stream.
    ///
    /// The bytes received are initialised, `first` before `second`. At least one of the two must have
    /// room.
    pub(crate) fn poll_receive(
        &mut self,
        cx: &mut Context<'_>,
        first: &mut [MaybeUninit<u8>],
        second: &mut [MaybeUninit<u8>],
    ) -> Poll<io::Result<usize>> {
        match self {
            Stream::Plain(tcp) => poll_receive_plain(tcp, cx, first, second),
            Stream::Tls(tls) => {
                let target = if first.is_empty() { second } else { first };
                let mut buffer = ReadBuf::uninit(target);
                ready!(Pin::new(tls.as_mut()).poll_read(cx, &mut buffer))?;
                Poll::Ready(Ok(buffer.filled().len()))
            }
        }
    }

    /// Writes from `slices`; see [`AsyncWrite::poll_write_vectored`].
    pub(crate) fn poll_send(
        &mut self,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(self).poll_write_vectored(cx, slices)
    }
}

fn poll_receive_plain(
    tcp: &TcpStream,
    cx: &mut Context<'_>,
    first: &mut [MaybeUninit<u8>],
    second: &mut [MaybeUninit<u8>],
) -> Poll<io::Result<usize>> {
    let room = first.len() + second.len();
    loop {
        ready!(tcp.poll_read_ready(cx))?;
        let mut received = None;
        let outcome = tcp.try_io(Interest::READABLE, || {
            let mut slices = [MaybeUninitSlice::new(first), MaybeUninitSlice::new(second)];
            let (len, _flags) = SockRef::from(tcp).recv_vectored(&mut slices)?;
            received = Some(len);
            // A short receive drained the socket: saying so saves the system call that would only
            // find that out. The end of the stream stays visible to the next one.
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

impl AsyncRead for Stream {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Stream::Plain(tcp) => Pin::new(tcp).poll_read(cx, buffer),
            Stream::Tls(tls) => Pin::new(tls.as_mut()).poll_read(cx, buffer),
        }
    }
}

impl AsyncWrite for Stream {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Stream::Plain(tcp) => Pin::new(tcp).poll_write(cx, bytes),
            Stream::Tls(tls) => Pin::new(tls.as_mut()).poll_write(cx, bytes),
        }
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Stream::Plain(tcp) => Pin::new(tcp).poll_write_vectored(cx, slices),
            Stream::Tls(tls) => Pin::new(tls.as_mut()).poll_write_vectored(cx, slices),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Stream::Plain(tcp) => Pin::new(tcp).poll_flush(cx),
            Stream::Tls(tls) => Pin::new(tls.as_mut()).poll_flush(cx),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Stream::Plain(tcp) => Pin::new(tcp).poll_shutdown(cx),
            Stream::Tls(tls) => Pin::new(tls.as_mut()).poll_shutdown(cx),
        }
    }
}
