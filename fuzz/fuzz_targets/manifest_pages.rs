//! See `acstor_fuzzing::manifest_pages`.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| acstor_fuzzing::manifest_pages::run(bytes));
