//! Checks whether code is a valid program: every rule, with an error that names the broken rule and
//! the position.
//!
//! The rules exclude features that could make two nodes disagree: threads, relaxed SIMD, memory
//! without a maximum. They also exclude modules that could cost too much: size, number of
//! functions, tables.

mod bodies;
mod sections;

use wasmparser::{
    ExternalKind, FuncType, FuncValidatorAllocations, Parser, ValType, ValidPayload, Validator,
    WasmFeatures,
};
use weir_core::limits::{MEMORY_BYTES_DEFAULT, MEMORY_BYTES_MAX, METER};
use weir_core::{Setup, StateMode};

use crate::abi::PAGE_BYTES;
use crate::abi::{STATE_VERSION_NAME, VERSION_NAME};
use crate::fault::Fault;
use crate::host::limits::MODULE_BYTES_MAX;
use crate::report::{Report, may_grow};
use crate::work::Work;

/// The largest limits that the options of a topic can set.
#[must_use]
pub fn largest_setup() -> Setup {
    Setup {
        mode: StateMode::Kv,
        memory_bytes_max: MEMORY_BYTES_MAX,
        meter: METER,
    }
}

/// The limits of a topic with default options.
#[must_use]
pub fn default_setup() -> Setup {
    Setup {
        memory_bytes_max: MEMORY_BYTES_DEFAULT,
        ..largest_setup()
    }
}

fn features() -> WasmFeatures {
    WasmFeatures::WASM1
        | WasmFeatures::SIGN_EXTENSION
        | WasmFeatures::SATURATING_FLOAT_TO_INT
        | WasmFeatures::MULTI_VALUE
        | WasmFeatures::BULK_MEMORY
        | WasmFeatures::SIMD
        // Linkers write the table number 0 in this way.
        | WasmFeatures::CALL_INDIRECT_OVERLONG
}

/// Checks code against every rule of section "Rules" in this crate's README.
///
/// # Errors
/// A sentence that describes the first broken rule.
pub fn inspect(code: &[u8]) -> Result<Report, String> {
    if !code.starts_with(b"\0asm") {
        return Err(
            "this is no WebAssembly module: a binary one begins with the bytes 00 61 73 6d".into(),
        );
    }
    if code.len() > MODULE_BYTES_MAX {
        return Err(format!(
            "the module has {} bytes, allowed are {MODULE_BYTES_MAX}",
            code.len()
        ));
    }
    let mut module = Module::default();
    module.walk(code).map_err(|fault| match fault {
        Fault::Rule(sentence) => sentence,
        Fault::Format(error) => format(&error),
    })?;
    module.finish()
}

fn format(error: &wasmparser::BinaryReaderError) -> String {
    format!(
        "not a module that may run here: {} (at byte {})",
        error.message(),
        error.offset()
    )
}

#[derive(Default)]
struct Module {
    types: Vec<FuncType>,
    /// Type of each function, imported ones first.
    functions: Vec<u32>,
    exported: Vec<(String, ExternalKind, u32)>,
    /// The function that returns the version of the interface.
    version_function: Option<u32>,
    version_function_is_referenced: bool,
    /// The function that returns the version of the state, and that version if it is a literal.
    state_version_function: Option<u32>,
    state_version: Option<i32>,
    memories: u32,
    memory_max: Option<u64>,
    /// Number of elements of each table.
    tables: Vec<u64>,
    global_count: u32,
    locals: u64,
    branches: u64,
    work: Work,
    report: Report,
}

impl Module {
    /// Reads the module once. For each section and body, checks the rules of this crate first,
    /// because their errors are more precise than those of the format.
    fn walk(&mut self, code: &[u8]) -> Result<(), Fault> {
        let mut validator = Validator::new_with_features(features());
        let mut allocations = FuncValidatorAllocations::default();
        for payload in Parser::new(0).parse_all(code) {
            let payload = payload?;
            self.section(&payload)?;
            if let ValidPayload::Func(function, body) = validator.payload(&payload)? {
                let mut function = function.into_validator(allocations);
                self.body(code, &body, &mut function)?;
                allocations = function.into_allocations();
            }
        }
        Ok(())
    }

    fn finish(mut self) -> Result<Report, String> {
        if self.memories != 1 {
            return Err("the module has no memory of its own".to_owned());
        }
        let Some(pages) = self.memory_max else {
            return Err(
                "the memory has no maximum: add --max-memory=65536 to the linker's arguments"
                    .to_owned(),
            );
        };
        self.report.memory_bytes_max = pages.saturating_mul(PAGE_BYTES);
        self.report.facts.memory_bytes_max = self.report.memory_bytes_max;
        self.report.facts.compile_us = self.work.total();
        // Checked before compilation, because the first instance of a module has the initial
        // memory.
        may_grow(self.report.memory_bytes_max, MEMORY_BYTES_MAX)?;
        if !self
            .exported
            .iter()
            .any(|(name, kind, _)| name == "memory" && *kind == ExternalKind::Memory)
        {
            return Err("the memory is not exported under the name \"memory\"".to_owned());
        }
        self.function(VERSION_NAME, true)?;
        self.function("weir_apply", true)?;
        self.report.facts.has_init = self.function("weir_init", false)?;
        self.report.facts.has_upgrade = self.function("weir_upgrade", false)?;
        if self.function(STATE_VERSION_NAME, false)? {
            self.report.facts.state_version = self.state_version.ok_or_else(|| {
                format!(
                    "the function {STATE_VERSION_NAME} does more than return a number: use a literal, and an optimised build"
                )
            })?;
        }
        let mut names = self.exported.iter().filter(|(name, kind, index)| {
            *kind == ExternalKind::Func
                && Some(*index) == self.version_function
                && name != VERSION_NAME
        });
        if self.report.version.is_some()
            && !self.version_function_is_referenced
            && names.next().is_none()
        {
            self.report.unused = self.version_function;
        }
        self.report.exports = self.exported.into_iter().map(|(name, ..)| name).collect();
        Ok(self.report)
    }

    /// Whether a function is exported. If it is, its type must be () -> i32.
    fn function(&self, name: &str, required: bool) -> Result<bool, String> {
        let export = self.exported.iter().find(|(export, ..)| export == name);
        let Some((_, kind, index)) = export else {
            return if required {
                Err(format!("the function {name} is not exported"))
            } else {
                Ok(false)
            };
        };
        let kind = (*kind == ExternalKind::Func)
            .then(|| self.functions.get(*index as usize))
            .flatten()
            .and_then(|kind| self.types.get(*kind as usize));
        if kind.is_some_and(|kind| kind.params().is_empty() && kind.results() == [ValType::I32]) {
            Ok(true)
        } else {
            Err(format!(
                "the export {name} is not a function without parameters that returns an i32"
            ))
        }
    }
}
