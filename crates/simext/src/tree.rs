//! Trees of switches.

use acstor_simcore::{Shape, Tree};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

/// The links of a tree of switches.
#[pyclass(name = "Tree", module = "sim._simcore", frozen)]
pub(crate) struct PyTree(pub(crate) Tree);

#[pymethods]
impl PyTree {
    #[new]
    #[pyo3(signature = (fanout, rates, origin_rate, root_rate = None, storage_rate = None,
                        processor_rate = None))]
    fn new(
        fanout: Vec<u32>,
        rates: Vec<f64>,
        origin_rate: f64,
        root_rate: Option<f64>,
        storage_rate: Option<f64>,
        processor_rate: Option<f64>,
    ) -> PyResult<PyTree> {
        let shape = Shape { fanout, rates, root_rate, origin_rate, storage_rate, processor_rate };
        Tree::new(&shape).map(PyTree).map_err(|error| PyValueError::new_err(error.to_string()))
    }

    #[getter]
    fn capacity(&self) -> Vec<f64> {
        self.0.capacity().to_vec()
    }

    fn path(&self, source: u32, target: u32) -> Vec<u32> {
        self.0.links_between(source, target)
    }
}
