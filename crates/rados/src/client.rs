//! The connection of a reader, which is made at the first read, and made again where that fails.

use std::collections::HashMap;
use std::ffi::CString;
use std::sync::Arc;
use std::time::Duration;

use acstor_types::ErrorKind;
use parking_lot::{Mutex, MutexGuard};

use crate::binding::{Connection, Errno, Functions, Namespace};
use crate::layout::Role;
use crate::settings::c_string;
use crate::{RadosError, RadosSettings};

/// Namespaces that are open, and the connection below them.
#[derive(Debug)]
pub(crate) struct Client {
    functions: &'static Functions,
    /// The cluster, for people.
    cluster: String,
    conf: CString,
    client: CString,
    options: Vec<(CString, CString)>,
    timeout: Duration,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    // Above the connection: what is dropped first is what was opened last.
    pools: [Pool; 2],
    connection: Option<Arc<Connection>>,
    is_closed: bool,
}

/// A pool in its role; two roles may have the same.
#[derive(Debug)]
struct Pool {
    name: String,
    c_name: CString,
    /// Id that it had when it was opened first.
    id: Option<i64>,
    namespaces: HashMap<String, Arc<Namespace>>,
}

impl Pool {
    fn new(name: &str) -> Result<Pool, RadosError> {
        let c_name = c_string(name, "name of a pool")?;
        Ok(Pool { name: name.to_owned(), c_name, id: None, namespaces: HashMap::new() })
    }
}

impl Client {
    /// Keeps cluster and client to connect as.
    ///
    /// # Errors
    /// [`RadosError::ZeroByte`].
    pub(crate) fn new(
        functions: &'static Functions,
        settings: &RadosSettings,
    ) -> Result<Client, RadosError> {
        let options = settings.options.iter().map(|(name, value)| {
            Ok((c_string(name, "name of an option")?, c_string(value, "value of an option")?))
        });
        Ok(Client {
            functions,
            cluster: format!("the Ceph cluster of {}", settings.conf),
            conf: c_string(&settings.conf, "path of ceph.conf")?,
            client: c_string(&format!("client.{}", settings.client), "name of the client")?,
            options: options.collect::<Result<_, RadosError>>()?,
            timeout: settings.timeout,
            state: Mutex::new(State {
                pools: [Pool::new(&settings.pool)?, Pool::new(&settings.stripe_pool)?],
                connection: None,
                is_closed: false,
            }),
        })
    }

    /// Returns a namespace of the pool with that role; it is opened once.
    ///
    /// # Errors
    /// [`RadosError`] when the cluster does not answer in time, or lacks pool, client or right.
    pub(crate) fn namespace(&self, role: Role, name: &str) -> Result<Arc<Namespace>, RadosError> {
        let mut state = self.lock()?;
        if let Some(found) = state.pools[role as usize].namespaces.get(name) {
            return Ok(found.clone());
        }
        let connection = self.connected(&mut state)?;
        let pool = &mut state.pools[role as usize];
        let c_name = c_string(name, "name of a namespace")?;
        let opened = connection.open(&pool.c_name, &c_name).map_err(|error| {
            let hint = "make the pool, or name another";
            self.lacking(error, format!("opening pool {}", pool.name), hint.to_owned())
        })?;
        if *pool.id.get_or_insert(opened.pool_id()) != opened.pool_id() {
            return Err(self.deleted(&pool.name));
        }
        let opened = Arc::new(opened);
        pool.namespaces.insert(name.to_owned(), opened.clone());
        Ok(opened)
    }

    /// Finds out whether the pools that were opened are there: librados tells the same of an object that is
    /// absent and of any object of a pool that was deleted.
    ///
    /// # Errors
    /// [`RadosError::PoolDeleted`], or [`RadosError::Call`] where that cannot be found out.
    pub(crate) fn check_pools(&self) -> Result<(), RadosError> {
        let (connection, opened) = {
            let state = self.lock()?;
            let opened = state.pools.iter().filter_map(|pool| Some((pool.name.clone(), pool.id?)));
            (state.connection.clone(), opened.collect::<Vec<_>>())
        };
        let Some(connection) = connection else { return Ok(()) };
        for (name, id) in opened {
            let is_there = connection.has_pool(id);
            if !is_there.map_err(|error| self.error(error, format!("looking for pool {name}")))? {
                return Err(self.deleted(&name));
            }
        }
        Ok(())
    }

    /// The meaning of an error of a read, other than that the object is absent.
    pub(crate) fn error(&self, error: Errno, what: String) -> RadosError {
        RadosError::of(&self.cluster, what, error)
    }

    /// Ends the connection, when the reads that are under way have ended; no other one is made.
    pub(crate) fn close(&self) {
        let mut state = self.state.lock();
        state.is_closed = true;
        let connection = state.connection.take();
        let namespaces = state.pools.each_mut().map(|pool| std::mem::take(&mut pool.namespaces));
        drop(state);
        drop(namespaces);
        drop(connection);
    }

    /// The state; whoever waits for another one's connecting has a deadline, too.
    fn lock(&self) -> Result<MutexGuard<'_, State>, RadosError> {
        let state = self.state.try_lock_for(self.timeout);
        let state =
            state.ok_or_else(|| RadosError::Connecting { cluster: self.cluster.clone() })?;
        if state.is_closed { Err(RadosError::Closed) } else { Ok(state) }
    }

    fn connected(&self, state: &mut State) -> Result<Arc<Connection>, RadosError> {
        if let Some(connection) = &state.connection {
            return Ok(connection.clone());
        }
        let connection = Arc::new(self.connect().map_err(|error| self.unconnected(error))?);
        state.connection = Some(connection.clone());
        Ok(connection)
    }

    fn connect(&self) -> Result<Connection, Errno> {
        let mut connection = Connection::create(self.functions, &self.client)?;
        connection.read_configuration(&self.conf)?;
        for (name, value) in &self.options {
            connection.set_option(name, value)?;
        }
        connection.connect()?;
        Ok(connection)
    }

    fn unconnected(&self, error: Errno) -> RadosError {
        let what = format!("connecting as {}", self.client.to_string_lossy());
        if error.0 == libc::EPERM {
            // A monitor that is too slow makes librados say that, and so does a wrong key.
            let hint = "check that the monitors are up ('ceph -s'), and the key of this client";
            let kind = ErrorKind::Unavailable;
            return RadosError::failed(&self.cluster, what, error, kind, hint.to_owned());
        }
        let conf = self.conf.to_string_lossy();
        self.lacking(
            error,
            what,
            format!("check that {conf} and the keyring of this client are there"),
        )
    }

    /// The meaning of an error where *no such entry* is one of the configuration.
    fn lacking(&self, error: Errno, what: String, hint: String) -> RadosError {
        if error.0 == libc::ENOENT {
            return RadosError::failed(&self.cluster, what, error, ErrorKind::Invalid, hint);
        }
        self.error(error, what)
    }

    fn deleted(&self, pool: &str) -> RadosError {
        RadosError::PoolDeleted { cluster: self.cluster.clone(), pool: pool.to_owned() }
    }
}
