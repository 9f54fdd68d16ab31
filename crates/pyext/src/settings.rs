//! Conversion of the settings: the dictionary `DataPlaneSettings` of `acstor.dataplane.settings`, key
//! by key.

use acstor_host::Settings;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyAny;

/// Reads every key of `config`.
///
/// # Errors
/// `ValueError` that names the key that is missing or of a wrong type.
pub(crate) fn from_mapping(config: &Bound<'_, PyAny>) -> PyResult<Settings> {
    macro_rules! read {
        ($($name:ident: $kind:ty,)+) => {
            Settings { $($name: item(config, stringify!($name))?,)+ }
        };
    }
    Ok(acstor_host::for_each_setting!(read))
}

fn item<'py, T: for<'a> FromPyObject<'a, 'py>>(
    config: &Bound<'py, PyAny>,
    key: &str,
) -> PyResult<T> {
    let value = config
        .get_item(key)
        .map_err(|_| PyValueError::new_err(format!("data plane settings: {key} is missing")))?;
    value.extract::<T>().map_err(|_| {
        PyValueError::new_err(format!("data plane settings: {key} has a wrong type or range"))
    })
}
