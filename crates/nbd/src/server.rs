//! The server of one export: accepting, disconnecting clients, stopping.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use acstor_net::{ConnectionRegistry, DrainSignal, OpenConnection, ServerTls, Socket, Stream};
use tokio::runtime::Handle;
use tokio::task::JoinHandle;

use crate::connection::Connection;
use crate::handshake::Handshake;
use crate::listener::AsyncListener;
use crate::page_reader::PageReader;
use crate::refusals::Refusals;
use crate::stats::{Counters, Gauge, add};
use crate::{CloseReason, Export, Listener, MemoryBudget, NbdError, NbdStats, ServerConfig};

/// Pause after a failed accept(2), which fails again at once when descriptors have run out.
const ACCEPT_ERROR_PAUSE: Duration = Duration::from_millis(50);
/// Socket buffers that are asked for, bytes.
const SOCKET_BUFFER_BYTES: usize = 2 << 20;

/// Serves one export. Dropping it closes every connection at once; [`NbdServer::stop`] lets what is
/// under way finish first.
pub struct NbdServer {
    shared: Arc<Shared>,
    tcp_address: Option<SocketAddr>,
    accepting: JoinHandle<()>,
}

/// State that all connections of a server share.
pub(crate) struct Shared {
    pub(crate) export: Arc<Export>,
    pub(crate) config: ServerConfig,
    /// The export's own share of memory.
    pub(crate) memory: Arc<MemoryBudget>,
    pub(crate) tls: Option<ServerTls>,
    pub(crate) counters: Counters,
    refusals: Refusals,
    pub(crate) page_reader: PageReader,
    pub(crate) connections: Arc<ConnectionRegistry>,
    pub(crate) handle: Handle,
    /// Set before anything else of a stop.
    pub(crate) is_stopping: AtomicBool,
}

impl Shared {
    /// Returns whether a client that asks for `name` means the export; counts one that does not.
    pub(crate) fn is_called(&self, name: &[u8]) -> bool {
        let is_called = match &self.config.token {
            Some(token) => token.is(name),
            None => name.is_empty() || name == self.export.name().as_bytes(),
        };
        if !is_called {
            add(&self.counters.names_refused, 1);
            if let Some(refusals) = self.refusals.note(Instant::now()) {
                let export = self.export.name();
                tracing::warn!(export, refusals, "NBD clients named no export that is served");
            }
        }
        is_called
    }
}

impl NbdServer {
    /// Starts to serve `export` on `listener`, with tasks on `handle`, whose runtime has I/O and time
    /// enabled. The socket stays open in whatever process passed it, so that connections made while
    /// no process serves wait in its backlog.
    ///
    /// # Errors
    /// [`NbdError`] for a limit outside its range, unusable TLS files, a socket that is no listening
    /// one, and TCP without TLS on an address that other hosts reach.
    pub fn start(
        listener: impl Into<Listener>,
        export: Arc<Export>,
        config: ServerConfig,
        handle: &Handle,
    ) -> Result<NbdServer, NbdError> {
        config.validate()?;
        let tls = config.tls.as_ref().map(ServerTls::load).transpose().map_err(NbdError::Tls)?;
        let listener = {
            let _context = handle.enter();
            AsyncListener::new(listener.into(), tls.is_some())?
        };
        let tcp_address = listener.tcp_address();
        let shared = Arc::new(Shared {
            export,
            memory: MemoryBudget::new(config.export_bytes),
            config,
            tls,
            counters: Counters::default(),
            refusals: Refusals::default(),
            page_reader: PageReader::new(),
            connections: ConnectionRegistry::new(),
            handle: handle.clone(),
            is_stopping: AtomicBool::new(false),
        });
        let accepting = handle.spawn(accept(Arc::clone(&shared), listener));
        Ok(NbdServer { shared, tcp_address, accepting })
    }

    /// Returns the export that is served.
    pub fn export(&self) -> &Arc<Export> {
        &self.shared.export
    }

    /// The address of a TCP server.
    pub fn tcp_address(&self) -> Option<SocketAddr> {
        self.tcp_address
    }

    /// Connections in transmission: clients.
    pub fn clients(&self) -> usize {
        self.stats().clients as usize
    }

    /// Bytes of the export's own share that are in flight.
    pub fn bytes_borrowed(&self) -> u64 {
        self.shared.memory.bytes_borrowed()
    }

    /// Counters since the start, and what is in flight.
    pub fn stats(&self) -> NbdStats {
        self.shared.counters.snapshot()
    }

    /// Makes every client connect anew, so that it sees the export's present size: nothing more is
    /// read from them, what was read is answered, then they are closed. Connections made meanwhile
    /// are served. Those that are left after `timeout` are cut off; returns whether none was.
    ///
    /// # Cancel safety
    /// Dropping the future leaves the connections draining.
    pub async fn disconnect_clients(&self, timeout: Duration) -> bool {
        self.shared.connections.dismiss(timeout).await
    }

    /// Stops: accepts nothing more, answers what was read and closes every connection, at the latest
    /// after `timeout`; then waits, as long, until the device has ended what it was doing for them.
    /// Returns whether all of that came to its end. The socket's other descriptors stay usable.
    ///
    /// # Cancel safety
    /// Dropping the future drops the server: every connection is closed at once.
    pub async fn stop(mut self, timeout: Duration) -> bool {
        self.shared.is_stopping.store(true, Ordering::Release);
        self.accepting.abort();
        let _ = (&mut self.accepting).await;
        let all_answered = self.shared.connections.dismiss(timeout).await;
        let late = self.shared.export.late_responses();
        let quiet = tokio::time::timeout(timeout, late.none_left()).await.is_ok();
        all_answered && quiet
    }
}

impl Drop for NbdServer {
    fn drop(&mut self) {
        self.accepting.abort();
        self.shared.connections.cut_off_all();
    }
}

impl std::fmt::Debug for NbdServer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("NbdServer").field("export", &self.shared.export).finish_non_exhaustive()
    }
}

async fn accept(shared: Arc<Shared>, listener: AsyncListener) {
    loop {
        match listener.accept().await {
            Ok(socket) => {
                add(&shared.counters.accepted, 1);
                if shared.connections.count() >= shared.config.connections_max {
                    shared.counters.count_closed(CloseReason::TooManyConnections);
                    continue; // dropped: there is no answer before the handshake
                }
                socket.enlarge_buffers(SOCKET_BUFFER_BYTES);
                shared.connections.open(|entry, drain| {
                    let served = serve(Arc::clone(&shared), socket, entry, drain);
                    shared.handle.spawn(served).abort_handle()
                });
            }
            Err(error) => {
                add(&shared.counters.accept_errors, 1);
                tracing::warn!(%error, export = shared.export.name(), "cannot accept NBD clients");
                tokio::time::sleep(ACCEPT_ERROR_PAUSE).await;
            }
        }
    }
}

/// One connection from its acceptance to its end.
async fn serve(shared: Arc<Shared>, socket: Socket, entry: OpenConnection, mut drain: DrainSignal) {
    let _open = Gauge::count(&shared.counters.open);
    let mut ending = Ending { shared: &shared, reason: CloseReason::Aborted };
    ending.reason = serve_to_end(&shared, socket, &mut drain).await;
    drop(ending);
    drop(entry);
}

async fn serve_to_end(
    shared: &Arc<Shared>,
    socket: Socket,
    drain: &mut DrainSignal,
) -> CloseReason {
    let handshake = Handshake::new(Arc::clone(shared), Stream::Plain(socket)).run();
    let agreed = tokio::select! {
        biased;
        () = drain.requested() => return CloseReason::Drained,
        agreed = tokio::time::timeout(shared.config.handshake_timeout, handshake) => agreed,
    };
    match agreed.unwrap_or(Err(CloseReason::HandshakeTimeout)) {
        Ok(agreed) => {
            let _client = Gauge::count(&shared.counters.clients);
            Connection::new(Arc::clone(shared), agreed).run(drain).await
        }
        Err(reason) => reason,
    }
}

/// Counts why a connection ended, also when its task is aborted.
struct Ending<'a> {
    shared: &'a Shared,
    reason: CloseReason,
}

impl Drop for Ending<'_> {
    fn drop(&mut self) {
        self.shared.counters.count_closed(self.reason);
        let (export, reason) = (self.shared.export.name(), self.reason);
        tracing::debug!(export, %reason, "NBD connection ended");
    }
}
