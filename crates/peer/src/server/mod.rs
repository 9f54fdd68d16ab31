//! The server: accepts connections on a socket that a supervisor may have opened, and answers
//! requests out of a [`ChunkServer`] within its limits.

mod admission;
mod compressed_forms;
mod compressor;
mod connection;
mod credentials;
mod egress;
mod greeting;
mod handshakes;
mod output;
mod places;
mod requests;
mod stats;

use std::io;
use std::net::{SocketAddr, TcpListener as StdTcpListener};
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::{Duration, Instant};

use acstor_net::{
    ConnectionRegistry, Demands, DrainSignal, Members, OpenConnection, RELOAD_CHECK_INTERVAL,
    TlsFiles,
};
use acstor_runclock::RunClock;
use acstor_types::Digest;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;

pub use compressor::CompressionStats;
pub use egress::EgressStats;
pub use stats::ServerStats;

use crate::{ChunkServer, PeerConfig, PeerError, Security, ServerLimits, TlsStatus, told};
use admission::Budget;
use compressor::Compressor;
use connection::Connection;
use egress::Egress;
use handshakes::{Handshake, Handshakes};
use places::Places;
use stats::{Counters, add};

/// Time for connections that are cut off to end.
const CUT_OFF_TIMEOUT: Duration = Duration::from_secs(1);

/// Pause after a failed accept(2), which fails again at once when descriptors have run out.
const ACCEPT_ERROR_PAUSE: Duration = Duration::from_millis(50);

/// Answers peers. Dropping it closes every connection at once; [`PeerServer::drain`] lets the
/// answers that are due go out first.
pub struct PeerServer {
    shared: Arc<Shared>,
    local_addr: SocketAddr,
    accepting: JoinHandle<()>,
    rechecking: Option<JoinHandle<()>>,
}

/// State that all connections of a server share.
struct Shared {
    chunks: Arc<dyn ChunkServer>,
    limits: ServerLimits,
    /// Clock of the time in which clients could have been heard: their silence is measured by it.
    clock: RunClock,
    tls: Option<TlsFiles>,
    members: Arc<Members>,
    budget: Arc<Budget>,
    handshakes: Arc<Handshakes>,
    places: Arc<Places>,
    connections: Arc<ConnectionRegistry>,
    compressor: Compressor,
    egress: Arc<Egress>,
    /// Rate that the link has to spare, as it is told; 0 where that is not known.
    free_rate_log2: AtomicU8,
    counters: Counters,
}

impl PeerServer {
    /// Starts to answer on `listener`, on the tokio runtime of the caller. The listener stays open in
    /// whatever process gave it, so that connections made during a restart wait in its backlog.
    ///
    /// # Errors
    /// [`PeerError::Limit`] for a limit outside its range, [`PeerError::TlsFile`] for an unusable PEM
    /// file, [`PeerError::Listen`] when the socket is no listening TCP socket.
    ///
    /// # Panics
    /// Outside a tokio runtime with I/O and time enabled.
    pub fn start(
        listener: StdTcpListener,
        chunks: Arc<dyn ChunkServer>,
        config: &PeerConfig,
    ) -> Result<PeerServer, PeerError> {
        PeerServer::start_by(listener, chunks, config, RunClock::unmeasured())
    }

    /// As [`PeerServer::start`], with timeouts by the running time of the caller's runtime.
    ///
    /// # Errors
    /// As [`PeerServer::start`].
    ///
    /// # Panics
    /// As [`PeerServer::start`].
    pub fn start_by(
        listener: StdTcpListener,
        chunks: Arc<dyn ChunkServer>,
        config: &PeerConfig,
        clock: RunClock,
    ) -> Result<PeerServer, PeerError> {
        config.server.validate()?;
        let members = Arc::new(Members::default());
        let of_clients = config.members_only.then(|| Arc::clone(&members));
        let tls = match &config.security {
            Security::Tls(files) => {
                let demands = Demands { application: crate::APPLICATION, members: of_clients };
                Some(TlsFiles::load(files, demands)?)
            }
            Security::Plain => None,
        };
        let listen_error = |error: io::Error| PeerError::Listen(Arc::new(error));
        listener.set_nonblocking(true).map_err(listen_error)?;
        let local_addr = listener.local_addr().map_err(listen_error)?;
        let listener = TcpListener::from_std(listener).map_err(listen_error)?;
        let limits = config.server.clone();
        let shared = Arc::new(Shared {
            chunks,
            egress: Egress::new(&limits, clock.clone()),
            free_rate_log2: AtomicU8::new(0),
            clock,
            tls,
            members,
            budget: Budget::new(limits.requests_in_flight_max, limits.bytes_in_flight_max),
            handshakes: Handshakes::new(limits.handshakes_max, limits.address_handshakes_max),
            places: Places::new(limits.connections_max),
            connections: ConnectionRegistry::new(),
            compressor: Compressor::new(&limits),
            counters: Counters::new(),
            limits,
        });
        let accepting = tokio::spawn(accept(Arc::clone(&shared), listener));
        let rechecking = shared.tls.is_some().then(|| tokio::spawn(recheck(Arc::clone(&shared))));
        Ok(PeerServer { shared, local_addr, accepting, rechecking })
    }

    /// The address that the server listens on.
    pub fn local_addr(&self) -> SocketAddr {
        self.local_addr
    }

    /// Counters since the start, and what is in flight.
    pub fn stats(&self) -> ServerStats {
        let budget = &self.shared.budget;
        let compression = self.shared.compressor.stats();
        let egress = self.shared.egress.stats();
        self.shared.counters.snapshot(budget.requests(), budget.bytes(), compression, egress)
    }

    /// Takes the bytes per second that this host's link has to spare for sending, which are told to peers
    /// with each answer; `None` where that is not known, as before the first call.
    pub fn tell_free_rate(&self, bytes_per_second: Option<u64>) {
        let log2 = bytes_per_second.map_or(0, told::free_rate_log2);
        self.shared.free_rate_log2.store(log2, Ordering::Relaxed);
    }

    /// Compresses nothing from now on, or does again: where `is_busy`, the host's processors have no time for
    /// it.
    pub fn set_cpu_busy(&self, is_busy: bool) {
        self.shared.compressor.set_cpu_busy(is_busy);
    }

    /// Forgets what is kept in memory of some chunks, which are to leave this host.
    pub fn forget(&self, digests: &[Digest]) {
        self.shared.compressor.forget(digests);
    }

    /// Takes the hosts of the ring in use as (name, `ip:port`): with `members_only` clients must have the
    /// certificate of one of them, or of one that was among them within the last hour. Before the first
    /// call everybody with a certificate is let in. Who is connected and none of them is cut off within
    /// seconds.
    pub fn set_members<'a>(&self, hosts: impl IntoIterator<Item = (&'a str, &'a str)>) {
        self.shared.members.set(hosts, Instant::now());
    }

    /// Returns the state of the files of TLS; `None` where it is off.
    pub fn tls_status(&self) -> Option<TlsStatus> {
        self.shared.tls.as_ref().map(TlsFiles::status)
    }

    /// Reads the TLS files again if they changed, and cuts off who would not be let in any more; without
    /// this call that happens within seconds.
    ///
    /// # Errors
    /// [`PeerError::TlsFile`]; the last good files stay in use.
    pub fn reload_certificates(&self) -> Result<(), PeerError> {
        let Some(tls) = &self.shared.tls else { return Ok(()) };
        let outcome = tls.reload();
        self.shared.places.recheck(&tls.current());
        Ok(outcome?)
    }

    /// Stops: accepts nothing more, tells every client to go, answers what was asked and returns
    /// when every client is gone, at the latest a moment after `timeout`. Returns whether all were gone.
    ///
    /// # Cancel safety
    /// Dropping the future drops the server: every connection is closed at once.
    pub async fn drain(mut self, timeout: Duration) -> bool {
        self.accepting.abort();
        let _ = (&mut self.accepting).await; // the listener is closed
        // A connection that hangs in a call, as on a disk that does, ends when it may; whoever stops does
        // not wait for it.
        let all_gone = self.shared.connections.dismiss(timeout);
        tokio::time::timeout(timeout + CUT_OFF_TIMEOUT, all_gone).await.unwrap_or(false)
    }
}

impl Drop for PeerServer {
    fn drop(&mut self) {
        self.accepting.abort();
        self.shared.connections.cut_off_all();
        if let Some(rechecking) = &self.rechecking {
            rechecking.abort();
        }
    }
}

/// Accepts until it is aborted.
async fn accept(shared: Arc<Shared>, listener: TcpListener) {
    loop {
        match listener.accept().await {
            Ok((tcp, address)) => {
                add(&shared.counters.accepted, 1);
                let handshake = shared.handshakes.begin(address.ip());
                shared.connections.open(|entry, drain| {
                    let served = serve(Arc::clone(&shared), tcp, handshake, entry, drain);
                    tokio::spawn(served).abort_handle()
                });
            }
            Err(error) => {
                add(&shared.counters.accept_errors, 1);
                tracing::warn!(%error, "cannot accept peer connections");
                tokio::time::sleep(ACCEPT_ERROR_PAUSE).await;
            }
        }
    }
}

/// Looks at the files of TLS, and with changed ones at who is connected, until it is aborted.
async fn recheck(shared: Arc<Shared>) {
    loop {
        tokio::time::sleep(RELOAD_CHECK_INTERVAL).await;
        let shared = Arc::clone(&shared);
        // Files are read, and thousands of signatures may be looked at.
        let look = tokio::task::spawn_blocking(move || {
            if let Some(tls) = &shared.tls {
                shared.places.recheck(&tls.current());
            }
        });
        if let Err(failure) = look.await {
            tracing::error!(%failure, "looking at the files of TLS failed");
        }
    }
}

async fn serve(
    shared: Arc<Shared>,
    tcp: TcpStream,
    handshake: Handshake,
    entry: OpenConnection,
    mut drain: DrainSignal,
) {
    let open = OpenGauge::count(&shared);
    let reason = match greeting::greet(&shared, tcp, handshake).await {
        Ok(greeted) => Connection::new(Arc::clone(&shared), greeted).run(&mut drain).await,
        Err(reason) => reason,
    };
    drop(open);
    shared.counters.count_closed(reason);
    drop(entry);
    tracing::debug!(%reason, "peer connection ended");
}

/// Counts an open connection, also when its task is aborted.
struct OpenGauge<'a>(&'a Counters);

impl OpenGauge<'_> {
    fn count(shared: &Shared) -> OpenGauge<'_> {
        add(&shared.counters.open, 1);
        OpenGauge(&shared.counters)
    }
}

impl Drop for OpenGauge<'_> {
    fn drop(&mut self) {
        self.0.open.fetch_sub(1, Ordering::Relaxed);
    }
}
