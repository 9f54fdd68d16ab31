//! A data centre under way.

use std::collections::HashMap;

use acstor_ring::Ring;
use acstor_simcore::{ExtraTraffic, LeftShare, MachineState, Programs, Rules, Simulation};
use pyo3::exceptions::{PyKeyError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict};

use crate::tree::PyTree;

fn bytes_of<'py>(py: Python<'py>, numbers: &[f64]) -> Bound<'py, PyBytes> {
    let bytes: Vec<u8> = numbers.iter().flat_map(|number| number.to_ne_bytes()).collect();
    PyBytes::new(py, &bytes)
}

fn refused(error: impl std::fmt::Display) -> PyErr {
    PyValueError::new_err(error.to_string())
}

/// `sim.traffic.ExtraFlows`.
#[derive(FromPyObject)]
struct ExtraFlows {
    source: Vec<u32>,
    target: Vec<u32>,
    rate: Vec<f64>,
}

/// `sim.programs.Programs`.
#[derive(FromPyObject)]
struct PyPrograms {
    first_op: Vec<u32>,
    think: Vec<f64>,
    served: Vec<f64>,
    first_access: Vec<u32>,
    content: Vec<u32>,
    length: Vec<u32>,
    placement: Vec<u32>,
    oids: Vec<u64>,
    first_entry: Vec<u32>,
    profile: Vec<u32>,
    is_loop: bool,
}

impl From<PyPrograms> for Programs {
    fn from(given: PyPrograms) -> Programs {
        Programs {
            first_operation: given.first_op,
            think: given.think,
            served: given.served,
            first_access: given.first_access,
            content: given.content,
            length: given.length,
            placement: given.placement,
            oids: given.oids,
            first_entry: given.first_entry,
            profile: given.profile,
            is_loop: given.is_loop,
        }
    }
}

#[pyclass(name = "Simulation", module = "sim._simcore")]
pub(crate) struct PySimulation(Simulation);

#[pymethods]
impl PySimulation {
    #[new]
    #[pyo3(signature = (rules, tree, extra, inelastic, left_share, programs, capacity_chunks,
                        samples_max, seed))]
    #[expect(
        clippy::too_many_arguments,
        reason = "what a run is made of; named where it is called"
    )]
    fn new(
        rules: HashMap<String, f64>,
        tree: &PyTree,
        extra: ExtraFlows,
        inelastic: Vec<u32>,
        left_share: Option<f64>,
        programs: PyPrograms,
        capacity_chunks: u32,
        samples_max: usize,
        seed: u64,
    ) -> PyResult<PySimulation> {
        let unknown = |name: &str| PyKeyError::new_err(format!("rule {name} is missing"));
        let rules = Rules::read(|name| rules.get(name).copied().ok_or_else(|| unknown(name)))?;
        let ExtraFlows { source, target, rate } = extra;
        let left_share = left_share.map_or(LeftShare::Measured, LeftShare::Constant);
        let extra = ExtraTraffic { source, target, rate, inelastic, left_share };
        let (tree, programs) = (tree.0.clone(), programs.into());
        Simulation::new(rules, tree, extra, programs, capacity_chunks, samples_max, seed)
            .map(PySimulation)
            .map_err(refused)
    }

    #[getter]
    fn now(&self) -> f64 {
        self.0.now()
    }

    #[getter]
    fn unfinished(&self) -> usize {
        self.0.unfinished()
    }

    fn advance(&mut self, py: Python<'_>, until: f64) {
        py.detach(|| self.0.advance(until));
    }

    fn place_machines(&mut self, hosts: Vec<u32>, programs: Vec<u32>, starts: Vec<f64>) {
        self.0.place_machines(&hosts, &programs, &starts);
    }

    fn install_ring(
        &mut self,
        py: Python<'_>,
        encoded: &[u8],
        threshold: Option<u8>,
        names: Vec<String>,
    ) -> PyResult<u32> {
        let ring = Ring::decode(encoded).map_err(refused)?;
        py.detach(|| self.0.install_ring(&ring, threshold, &names)).map_err(refused)
    }

    fn use_ring(&mut self, slot: u32) {
        self.0.use_ring(slot);
    }

    fn follow_ring(&mut self, slot: u32, hosts: Vec<u32>, times: Vec<f64>) {
        for (host, at) in hosts.into_iter().zip(times) {
            self.0.follow_ring(host, slot, at);
        }
    }

    fn line(&self, host: u32, content: u32) -> Vec<u32> {
        self.0.line(host, content)
    }

    fn recover(&mut self, host: u32, contents: Vec<u32>) {
        self.0.recover(host, &contents);
    }

    fn held(&self) -> Vec<u32> {
        self.0.held()
    }

    fn set_extra(&mut self, factor: f64) {
        self.0.set_extra(factor);
    }

    fn leave(&mut self, host: u32) {
        self.0.leave(host);
    }

    fn start_samples(&mut self) {
        self.0.start_samples();
    }

    fn start_reports(&mut self, phases: Vec<f64>) {
        self.0.start_reports(&phases);
    }

    fn start_walks(&mut self, starts: Vec<f64>) {
        self.0.start_walks(&starts);
    }

    fn is_alive(&self) -> Vec<bool> {
        self.0.is_alive().to_vec()
    }

    fn counters<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let counters = self.0.counters();
        let found = PyDict::new(py);
        found.set_item("extra_in", bytes_of(py, &counters.extra_in))?;
        found.set_item("extra_out", bytes_of(py, &counters.extra_out))?;
        found.set_item("moved_in", bytes_of(py, &counters.moved_in))?;
        found.set_item("moved_out", bytes_of(py, &counters.moved_out))?;
        Ok(found)
    }

    fn reports<'py>(&self, py: Python<'py>) -> (Bound<'py, PyBytes>, Bound<'py, PyBytes>) {
        let reports = self.0.reports();
        (bytes_of(py, &reports.at), bytes_of(py, &reports.rates))
    }

    fn samples<'py>(&self, py: Python<'py>) -> (Bound<'py, PyBytes>, Bound<'py, PyBytes>) {
        let samples = self.0.samples();
        (bytes_of(py, &samples.at), bytes_of(py, &samples.carried))
    }

    fn machines<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let machines = self.0.machines();
        let is = |state| {
            let of = machines.state.iter().map(move |one| f64::from(u8::from(*one == state)));
            of.collect::<Vec<f64>>()
        };
        let found = PyDict::new(py);
        found.set_item("is_ended", bytes_of(py, &is(MachineState::Ended)))?;
        found.set_item("is_broken", bytes_of(py, &is(MachineState::Broken)))?;
        found.set_item("started", bytes_of(py, &machines.started))?;
        found.set_item("ended", bytes_of(py, &machines.ended))?;
        found.set_item("waited", bytes_of(py, &machines.waited))?;
        found.set_item("served", bytes_of(py, &machines.served))?;
        Ok(found)
    }

    fn tiers<'py>(&self, py: Python<'py>) -> Vec<Bound<'py, PyBytes>> {
        self.0.totals().tiers.iter().map(|tier| bytes_of(py, tier)).collect()
    }

    fn regrets<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        bytes_of(py, &self.0.totals().regrets)
    }

    fn totals<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let totals = self.0.totals();
        let found = PyDict::new(py);
        for (name, amount) in [
            ("origin_bytes", totals.origin_bytes),
            ("origin_again", totals.origin_again),
            ("origin_again_hedge", totals.origin_again_hedge),
            ("origin_again_remap", totals.origin_again_remap),
            ("ahead_bytes", totals.ahead_bytes),
            ("ahead_read", totals.ahead_read),
        ] {
            found.set_item(name, amount)?;
        }
        for (name, count) in [
            ("hedges", totals.hedges),
            ("hedges_denied", totals.hedges_denied),
            ("hedges_won", totals.hedges_won),
            ("read_errors", totals.read_errors),
            ("remap_misses", totals.remap_misses),
            ("timeouts", totals.timeouts),
            ("peer_fetches", totals.peer_fetches),
            ("passed_over", totals.passed_over),
            ("bypasses", totals.bypasses),
            ("origin_first", totals.origin_first),
            ("packed", totals.packed),
            ("slow_links", totals.slow_links),
            ("hints", totals.hints),
            ("promoted", totals.promoted),
            ("events", totals.events),
            ("refills", self.0.refills()),
        ] {
            found.set_item(name, count)?;
        }
        Ok(found)
    }
}
