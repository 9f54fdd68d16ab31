//! The ring for the control plane: the same code that the data plane looks up with.

use std::collections::HashMap;
use std::sync::Arc;

use acstor_ring::{
    Analysis, Detail, Host, HostId, Ring, RingBuilder, RingError, Similarity, Threshold, analyze,
    least_moved_share, moved_share, recommended_vnodes,
};
use acstor_types::Oid;
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;
use pyo3::types::{PyBytes, PyDict};

use crate::errors::raise;

fn refused(error: RingError) -> PyErr {
    raise(error.kind(), error)
}

/// A host as a ring describes it.
#[pyclass(name = "RingHost", module = "acstor._dataplane", frozen, eq)]
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct PyRingHost {
    host: Host,
    #[pyo3(get)]
    vnodes: u32,
}

#[pymethods]
impl PyRingHost {
    #[new]
    #[pyo3(signature = (name, address, weight, topology = ""))]
    fn new(name: String, address: String, weight: u32, topology: &str) -> PyResult<PyRingHost> {
        let topology = topology.parse().map_err(refused)?;
        Ok(PyRingHost { host: Host::new(name, address, weight).with_topology(topology), vnodes: 0 })
    }

    #[getter]
    fn name(&self) -> &str {
        &self.host.name
    }

    #[getter]
    fn address(&self) -> &str {
        &self.host.address
    }

    #[getter]
    fn weight(&self) -> u32 {
        self.host.weight
    }

    #[getter]
    fn topology(&self) -> String {
        self.host.topology.to_string()
    }

    fn __repr__(&self) -> String {
        let Host { name, address, weight, topology } = &self.host;
        let vnodes = self.vnodes;
        format!("<RingHost {name} {address} weight={weight} topology={topology} vnodes={vnodes}>")
    }
}

/// An immutable ring.
#[pyclass(name = "Ring", module = "acstor._dataplane", frozen, eq)]
#[derive(PartialEq)]
pub(crate) struct PyRing(Arc<Ring>);

#[pymethods]
impl PyRing {
    #[staticmethod]
    fn decode(py: Python<'_>, content: PyBackedBytes) -> PyResult<PyRing> {
        let ring = py.detach(|| Ring::decode(&content)).map_err(refused)?;
        Ok(PyRing(Arc::new(ring)))
    }

    #[staticmethod]
    fn from_text(py: Python<'_>, text: &str) -> PyResult<PyRing> {
        let ring = py.detach(|| Ring::from_text(text)).map_err(refused)?;
        Ok(PyRing(Arc::new(ring)))
    }

    fn encode<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        let content = py.detach(|| self.0.encode());
        PyBytes::new(py, &content)
    }

    #[pyo3(signature = (full = false))]
    fn to_text(&self, py: Python<'_>, full: bool) -> String {
        let detail = if full { Detail::Full } else { Detail::Summary };
        py.detach(|| self.0.to_text(detail))
    }

    #[getter]
    fn generation(&self) -> u64 {
        self.0.generation()
    }

    #[getter]
    fn seed(&self) -> u64 {
        self.0.seed()
    }

    #[getter]
    fn vnode_count(&self) -> u32 {
        self.0.vnode_count()
    }

    #[getter]
    fn hosts(&self) -> Vec<PyRingHost> {
        let counts = self.0.vnode_counts().iter();
        let host =
            |(host, vnodes): (&Host, &u32)| PyRingHost { host: host.clone(), vnodes: *vnodes };
        self.0.hosts().iter().zip(counts).map(host).collect()
    }

    fn vnode_owners<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        let owners: Vec<u8> =
            self.0.vnodes().iter().flat_map(|owner| owner.to_le_bytes()).collect();
        PyBytes::new(py, &owners)
    }

    fn owner(&self, oid: u64) -> &str {
        &self.0.owner(Oid(oid)).name
    }

    #[pyo3(signature = (oid, from_host = None, threshold = None, limit = None))]
    fn candidates(
        &self,
        oid: u64,
        from_host: Option<&str>,
        threshold: Option<u8>,
        limit: Option<usize>,
    ) -> (Vec<String>, u32) {
        let from = from_host.and_then(|name| self.0.host_id(name));
        let threshold = threshold.map_or(Threshold::ANY, Threshold);
        let mut candidates = self.0.candidates(Oid(oid), from, threshold);
        let names = candidates
            .by_ref()
            .take(limit.unwrap_or(usize::MAX))
            .map(|host| host.name.clone())
            .collect();
        (names, candidates.skipped())
    }

    fn distance(&self, from_host: &str, to_host: &str) -> PyResult<u8> {
        let id = |name: &str| -> PyResult<HostId> {
            self.0.host_id(name).ok_or_else(|| refused(RingError::UnknownHost(name.to_owned())))
        };
        Ok(self.0.distance(Some(id(from_host)?), id(to_host)?))
    }

    fn moved_share(&self, py: Python<'_>, previous: &PyRing) -> f64 {
        py.detach(|| moved_share(&previous.0, &self.0))
    }

    #[pyo3(signature = (hosts, vnode_count = None))]
    fn least_moved_share(
        &self,
        hosts: Vec<PyRef<'_, PyRingHost>>,
        vnode_count: Option<u32>,
    ) -> f64 {
        let hosts: Vec<Host> = hosts.iter().map(|host| host.host.clone()).collect();
        least_moved_share(&self.0, &hosts, vnode_count.unwrap_or(self.0.vnode_count()))
    }

    #[pyo3(signature = (previous = None))]
    fn analyze<'py>(
        &self,
        py: Python<'py>,
        previous: Option<&PyRing>,
    ) -> PyResult<Bound<'py, PyDict>> {
        let analysis = py.detach(|| analyze(&self.0, previous.map(|previous| previous.0.as_ref())));
        analysis_dict(py, &analysis)
    }

    fn __repr__(&self) -> String {
        let (generation, vnodes) = (self.0.generation(), self.0.vnode_count());
        format!("<Ring generation={generation} hosts={} vnodes={vnodes}>", self.0.hosts().len())
    }
}

fn analysis_dict<'py>(py: Python<'py>, analysis: &Analysis) -> PyResult<Bound<'py, PyDict>> {
    let hosts = analysis.hosts.iter().map(|host| {
        let values = PyDict::new(py);
        values.set_item("name", &host.name)?;
        values.set_item("weight", host.weight)?;
        values.set_item("vnodes", host.vnode_count)?;
        values.set_item("share", host.share)?;
        values.set_item("ideal_share", host.ideal_share)?;
        values.set_item("deviation", host.deviation)?;
        values.set_item("takeover_share_max", host.takeover_share_max)?;
        Ok(values)
    });
    let values = PyDict::new(py);
    values.set_item("generation", analysis.generation)?;
    values.set_item("vnodes", analysis.vnode_count)?;
    values.set_item("deviation_max", analysis.deviation_max)?;
    values.set_item("hosts", hosts.collect::<PyResult<Vec<_>>>()?)?;
    values.set_item("moved_share", analysis.moved.map(|moved| moved.share))?;
    values.set_item("least_moved_share", analysis.moved.map(|moved| moved.least_share))?;
    Ok(values)
}

/// Builds the first ring of a deployment, or the one after `previous`.
#[pyfunction]
#[pyo3(signature = (
    hosts, vnode_count = None, seed = 0, previous = None, *,
    generation = None, moved_share_max = 1.0, similarity = None
))]
#[expect(clippy::too_many_arguments, reason = "keyword arguments of a Python function")]
pub(crate) fn build_ring(
    py: Python<'_>,
    hosts: Vec<PyRef<'_, PyRingHost>>,
    vnode_count: Option<u32>,
    seed: u64,
    previous: Option<&PyRing>,
    generation: Option<u64>,
    moved_share_max: f64,
    similarity: Option<HashMap<(String, String), f64>>,
) -> PyResult<PyRing> {
    let hosts: Vec<Host> = hosts.iter().map(|host| host.host.clone()).collect();
    let known = similarity.map(by_giver);
    let similarity = |giver: &Host, receiver: &Host| -> f64 {
        let receivers = known.as_ref().and_then(|known| known.get(&giver.name));
        receivers.and_then(|receivers| receivers.get(&receiver.name)).copied().unwrap_or(0.0)
    };
    let build = || {
        let mut builder = match previous {
            Some(previous) => RingBuilder::succeeding(&previous.0),
            None => RingBuilder::new(seed),
        };
        if let Some(count) = vnode_count {
            builder = builder.vnodes(count);
        }
        if let Some(generation) = generation {
            builder = builder.generation(generation);
        }
        if known.is_some() {
            builder = builder.similarity(&similarity as &Similarity<'_>);
        }
        builder.hosts(hosts).moved_share_max(moved_share_max).build()
    };
    let ring = py.detach(build).map_err(refused)?;
    Ok(PyRing(Arc::new(ring)))
}

/// Similarities by giver and then receiver, so that a lookup needs no key to be put together.
fn by_giver(pairs: HashMap<(String, String), f64>) -> HashMap<String, HashMap<String, f64>> {
    let mut givers: HashMap<String, HashMap<String, f64>> = HashMap::new();
    for ((giver, receiver), similarity) in pairs {
        givers.entry(giver).or_default().insert(receiver, similarity);
    }
    givers
}

/// Returns a number of v-nodes that suits `host_count` hosts.
#[pyfunction]
pub(crate) fn recommended_vnode_count(host_count: usize) -> u32 {
    recommended_vnodes(host_count)
}
