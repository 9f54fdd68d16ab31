//! Listening sockets: unix ones for this host's QEMU, TCP with TLS for others.

use std::io;
use std::net::SocketAddr;
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;

use acstor_net::Socket;

use crate::NbdError;

/// A listening socket, bound here or passed by a supervisor.
#[derive(Debug)]
pub enum Listener {
    /// For this host.
    Unix(UnixListener),
    /// For other hosts with TLS, else for the loopback interface.
    Tcp(std::net::TcpListener),
}

impl From<UnixListener> for Listener {
    fn from(listener: UnixListener) -> Listener {
        Listener::Unix(listener)
    }
}

impl From<std::net::TcpListener> for Listener {
    fn from(listener: std::net::TcpListener) -> Listener {
        Listener::Tcp(listener)
    }
}

/// Binds a unix socket at `path` with the permissions `mode`. A socket on which nobody listens any
/// more is replaced; the socket never exists with wider permissions.
///
/// # Errors
/// [`NbdError::Path`] when somebody listens there, when something else has the path, or when it cannot
/// be bound.
pub fn bind_unix(path: &Path, mode: u32) -> Result<UnixListener, NbdError> {
    let fault = |problem: String| NbdError::Path { path: path.to_owned(), problem };
    if let Ok(metadata) = std::fs::symlink_metadata(path) {
        if !metadata.file_type().is_socket() {
            return Err(fault("something that is no socket is there; remove it".to_owned()));
        }
        if UnixStream::connect(path).is_ok() {
            return Err(fault("another process listens there; stop it first".to_owned()));
        }
        std::fs::remove_file(path).map_err(|error| fault(error.to_string()))?;
    }
    // Bound under another name, then renamed: nobody can connect before the permissions are right.
    let mut fresh = path.as_os_str().to_owned();
    fresh.push(".new");
    let fresh = Path::new(&fresh);
    let bind = || -> io::Result<UnixListener> {
        let _ = std::fs::remove_file(fresh);
        let listener = UnixListener::bind(fresh)?;
        std::fs::set_permissions(fresh, std::fs::Permissions::from_mode(mode))?;
        std::fs::rename(fresh, path)?;
        Ok(listener)
    };
    bind().map_err(|error| {
        let _ = std::fs::remove_file(fresh);
        fault(error.to_string())
    })
}

/// A listening socket in the runtime.
pub(crate) enum AsyncListener {
    Unix(tokio::net::UnixListener),
    Tcp(tokio::net::TcpListener),
}

impl AsyncListener {
    /// Brings a socket into the runtime of the caller.
    pub(crate) fn new(listener: Listener, has_tls: bool) -> Result<AsyncListener, NbdError> {
        match listener {
            Listener::Unix(listener) => {
                listener.set_nonblocking(true)?;
                Ok(AsyncListener::Unix(tokio::net::UnixListener::from_std(listener)?))
            }
            Listener::Tcp(listener) => {
                let address = listener.local_addr()?;
                if !has_tls && !address.ip().is_loopback() {
                    return Err(NbdError::Insecure { address });
                }
                listener.set_nonblocking(true)?;
                Ok(AsyncListener::Tcp(tokio::net::TcpListener::from_std(listener)?))
            }
        }
    }

    pub(crate) fn tcp_address(&self) -> Option<SocketAddr> {
        match self {
            AsyncListener::Unix(_) => None,
            AsyncListener::Tcp(listener) => listener.local_addr().ok(),
        }
    }

    pub(crate) async fn accept(&self) -> io::Result<Socket> {
        match self {
            AsyncListener::Unix(listener) => Ok(Socket::Unix(listener.accept().await?.0)),
            AsyncListener::Tcp(listener) => {
                let (stream, _) = listener.accept().await?;
                let _ = stream.set_nodelay(true); // only speed depends on it
                let _ = socket2::SockRef::from(&stream).set_keepalive(true);
                Ok(Socket::Tcp(stream))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::bind_unix;

    #[test]
    fn test_bind_unix_replaces_a_stale_socket_only() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("volume.sock");
        let first = bind_unix(&path, 0o660).unwrap();
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o660);
        let error = bind_unix(&path, 0o660).unwrap_err();
        assert!(error.to_string().contains("another process listens"), "{error}");
        drop(first);
        drop(bind_unix(&path, 0o600).unwrap());
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);

        let file = directory.path().join("file");
        std::fs::write(&file, "precious").unwrap();
        let error = bind_unix(&file, 0o660).unwrap_err();
        assert!(error.to_string().contains("no socket"), "{error}");
        assert_eq!(std::fs::read(&file).unwrap(), b"precious");
    }
}
