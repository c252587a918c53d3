//! Whether some code is a program: every rule, with a sentence that says
//! which one is broken and where.
//!
//! The rules keep out what could make two nodes disagree (threads, relaxed
//! SIMD, memory without a maximum) and what could cost more than it should
//! (size, number of functions, tables).

mod bodies;
mod sections;

use wasmparser::{
    ExternalKind, FuncType, FuncValidatorAllocations, Parser, ValType, ValidPayload, Validator,
    WasmFeatures,
};
use weir_core::desk::Image;
use weir_core::limits::{MEMORY_BYTES_DEFAULT, MEMORY_BYTES_MAX, METER};
use weir_core::{Facts, Setup, StateMode};

use crate::abi::VERSION_NAME;
use crate::host::limits::MODULE_BYTES_MAX;
use crate::rewrite::Needs;
use crate::work::Work;

/// Bytes of a page of linear memory.
pub(crate) const PAGE_BYTES: u64 = 65_536;

/// What is to be known about a module that may be a program.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[allow(clippy::struct_excessive_bools, reason = "independent facts")]
pub struct Report {
    /// Names of the imported functions.
    pub imports: Vec<String>,
    /// Names of what it exports.
    pub exports: Vec<String>,
    /// Functions with a body.
    pub functions: u32,
    /// Bytes of these bodies.
    pub body_bytes: u64,
    /// Bytes of memory at the start.
    pub memory_bytes: u64,
    /// Bytes of memory at most.
    pub memory_bytes_max: u64,
    /// Indexes of the mutable globals.
    pub globals: Vec<u32>,
    /// What the machine must know.
    pub facts: Facts,
    /// It may write into its own memory.
    pub stores: bool,
    /// It may change one of its globals.
    pub sets_globals: bool,
    /// It may change a table or drop a segment, so that an instance can be
    /// used only once.
    pub changes_segments: bool,
    /// Globals, mutable or not.
    pub(crate) global_count: u32,
    /// Pages that its data segments may touch, at most.
    pub(crate) data_pages: u64,
    /// It may read or drop a data segment.
    pub(crate) names_data: bool,
    /// The version of the interface, where its function does nothing but return
    /// a number: then nobody has to call it.
    pub(crate) version: Option<i32>,
    /// That function, where nothing else in the module names it.
    pub(crate) unused: Option<u32>,
    /// Units of stack of each function with a body; 0 for one that calls no
    /// function of the module.
    pub(crate) frames: Vec<u32>,
}

impl Report {
    /// What of the module is to be compiled.
    pub(crate) fn needs(&self) -> Needs<'_> {
        Needs {
            globals: &self.globals,
            data: self.names_data,
            without: self.unused,
            frames: &self.frames,
        }
    }

    /// Whether a topic with these options may run it.
    ///
    /// # Errors
    /// A sentence about what does not fit.
    pub fn fits(&self, setup: &Setup) -> Result<(), String> {
        may_grow(self.memory_bytes_max, setup.memory_bytes_max)?;
        if setup.mode == StateMode::Memory && self.memory_bytes == 0 {
            // An image without memory says that there is none yet.
            return Err("state mode memory needs a memory of at least one page".to_owned());
        }
        if setup.mode == StateMode::Memory && self.changes_segments {
            return Err(
                "an instruction changes a table or drops a segment, which state mode memory does not keep"
                    .to_owned(),
            );
        }
        Ok(())
    }

    /// Whether an instance can have left this memory and these globals.
    pub(crate) fn accepts(&self, image: &Image) -> bool {
        let bytes = image.memory.len() as u64;
        if bytes == 0 {
            return image.globals.is_empty();
        }
        let sizes = self.memory_bytes..=self.memory_bytes_max;
        sizes.contains(&bytes)
            && bytes.is_multiple_of(PAGE_BYTES)
            && image.globals.len() == self.globals.len()
    }
}

/// What the options of a topic can allow at most.
#[must_use]
pub fn widest() -> Setup {
    Setup {
        mode: StateMode::Kv,
        memory_bytes_max: MEMORY_BYTES_MAX,
        meter: METER,
    }
}

fn may_grow(bytes: u64, max: u64) -> Result<(), String> {
    let (pages, max) = (bytes / PAGE_BYTES, max / PAGE_BYTES);
    if pages <= max {
        return Ok(());
    }
    Err(format!(
        "the memory may grow to {pages} pages of 64 KiB, allowed are {max} (option memory-bytes-max)"
    ))
}

/// What a topic allows whose options say nothing.
#[must_use]
pub fn usual() -> Setup {
    Setup {
        memory_bytes_max: MEMORY_BYTES_DEFAULT,
        ..widest()
    }
}

fn features() -> WasmFeatures {
    WasmFeatures::WASM1
        | WasmFeatures::SIGN_EXTENSION
        | WasmFeatures::SATURATING_FLOAT_TO_INT
        | WasmFeatures::MULTI_VALUE
        | WasmFeatures::BULK_MEMORY
        | WasmFeatures::SIMD
        // How linkers write the table number 0.
        | WasmFeatures::CALL_INDIRECT_OVERLONG
}

/// Checks code against every rule of section "Rules" in this crate's README.
///
/// # Errors
/// A sentence about the first rule that is broken.
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
    let mut look = Look::default();
    look.walk(code).map_err(|fault| match fault {
        Fault::Rule(sentence) => sentence,
        Fault::Format(error) => format(&error),
    })?;
    look.finish()
}

fn format(error: &wasmparser::BinaryReaderError) -> String {
    format!(
        "not a module that may run here: {} (at byte {})",
        error.message(),
        error.offset()
    )
}

/// Why a walk through a module ended.
pub(crate) enum Fault {
    Rule(String),
    Format(wasmparser::BinaryReaderError),
}

impl From<wasmparser::BinaryReaderError> for Fault {
    fn from(error: wasmparser::BinaryReaderError) -> Self {
        Self::Format(error)
    }
}

pub(crate) fn rule<T>(sentence: String) -> Result<T, Fault> {
    Err(Fault::Rule(sentence))
}

#[derive(Default)]
struct Look {
    types: Vec<FuncType>,
    /// Type of each function, the imported ones first.
    functions: Vec<u32>,
    exported: Vec<(String, ExternalKind, u32)>,
    /// The function that tells the version of the interface.
    teller: Option<u32>,
    teller_is_named: bool,
    memories: u32,
    memory_max: Option<u64>,
    /// Elements of each table.
    tables: Vec<u64>,
    global_count: u32,
    locals: u64,
    branches: u64,
    work: Work,
    report: Report,
}

impl Look {
    /// Goes through the module once. At each place our rules come first: their
    /// sentences say more than those of the format.
    fn walk(&mut self, code: &[u8]) -> Result<(), Fault> {
        let mut validator = Validator::new_with_features(features());
        let mut spare = FuncValidatorAllocations::default();
        for payload in Parser::new(0).parse_all(code) {
            let payload = payload?;
            self.section(&payload)?;
            if let ValidPayload::Func(function, body) = validator.payload(&payload)? {
                let mut function = function.into_validator(spare);
                self.body(code, &body, &mut function)?;
                spare = function.into_allocations();
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
        // Asked before anything is compiled: the first instance of a module
        // has all the memory that it begins with.
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
        let mut names = self.exported.iter().filter(|(name, kind, index)| {
            *kind == ExternalKind::Func && Some(*index) == self.teller && name != VERSION_NAME
        });
        if self.report.version.is_some() && !self.teller_is_named && names.next().is_none() {
            self.report.unused = self.teller;
        }
        self.report.exports = self.exported.into_iter().map(|(name, ..)| name).collect();
        Ok(self.report)
    }

    /// Whether a function is exported; if so it must be of type () -> i32.
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
                "the export {name} is no function without parameters that returns an i32"
            ))
        }
    }
}
