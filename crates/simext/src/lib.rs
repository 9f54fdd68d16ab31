//! The simulator's extension module, `sim._simcore`: conversions only. It is not in the wheel.
//!
//! What is by host, machine or sample is returned as the bytes of an array of doubles, in the
//! machine's order, for `numpy.frombuffer`.

mod simulation;
mod tree;

use pyo3::prelude::*;

#[pymodule]
mod _simcore {
    #[pymodule_export]
    use crate::simulation::PySimulation;
    #[pymodule_export]
    use crate::tree::PyTree;
}
