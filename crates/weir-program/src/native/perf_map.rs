//! Names compiled functions for `perf`, which cannot resolve code that is created at run time.
//!
//! If the variable [`VARIABLE`] is set, wasmtime writes the address and name of each function to
//! `perf-PID.map` in `/tmp`. `perf report` and `perf script` read this file. Modules are usually
//! compiled without names, so this module adds them again. The code and its fuel stay the same.

use wasm_encoder::{NameMap, NameSection, Section as _};

use super::stack::{demangled, names};

/// Environment variable. If it is not empty, functions are named for `perf`.
const VARIABLE: &str = "WEIR_PERF_MAP";

pub(super) fn is_wanted() -> bool {
    std::env::var_os(VARIABLE).is_some_and(|value| !value.is_empty())
}

/// Adds the names of the functions of a module to its rewritten `code`, in which the function
/// `without` is missing.
pub(super) fn add_names(code: &mut Vec<u8>, deployed: &[u8], without: Option<u32>) {
    let mut functions = NameMap::new();
    for (index, name) in names(deployed) {
        if without == Some(index) {
            continue;
        }
        let moved = u32::from(without.is_some_and(|without| index > without));
        functions.append(index - moved, &demangled(&name));
    }
    let mut section = NameSection::new();
    section.functions(&functions);
    section.append_to(code);
}
