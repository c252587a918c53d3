//! Names of compiled functions for `perf`, which cannot know code that was made at run time.
//!
//! With the variable [`VARIABLE`], wasmtime writes where each function stands and what it is
//! called to `perf-PID.map` in `/tmp`, where `perf report` and `perf script` look. The names are put
//! back into the modules, which are compiled without them. The code and its fuel stay the same.

use wasm_encoder::{NameMap, NameSection, Section as _};

use super::stack::{demangled, names};

/// In the environment, and not empty: functions are named for `perf`.
const VARIABLE: &str = "WEIR_PERF_MAP";

pub(super) fn is_wanted() -> bool {
    std::env::var_os(VARIABLE).is_some_and(|value| !value.is_empty())
}

/// Adds the names of the functions of a module to its rewritten `code`, which lacks the
/// function `without`.
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
