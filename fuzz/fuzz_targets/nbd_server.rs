//! See `acstor_fuzzing::nbd_server`.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| acstor_fuzzing::nbd_server::run(bytes));
