//! Whether some code is a program: every rule, with a sentence that says
//! which one is broken and where.
//!
//! The rules keep out what could make two nodes disagree (threads, relaxed
//! SIMD, memory without a maximum) and what could cost more than it should
//! (size, number of functions, tables).

use wasmparser::{
    ConstExpr, DataKind, ElementItems, ElementKind, ExternalKind, FuncType, FuncValidator,
    FuncValidatorAllocations, FunctionBody, Operator, OperatorsReader, Parser, Payload, TypeRef,
    ValType, ValidPayload, Validator, ValidatorResources, WasmFeatures,
};
use weir_core::desk::Image;
use weir_core::limits::{GLOBALS_MAX, MEMORY_BYTES_DEFAULT, MEMORY_BYTES_MAX, METER};
use weir_core::{Facts, Setup, StateMode};

use crate::abi::{IMPORTS, MODULE, Returns, VERSION_NAME};
use crate::host::limits::{
    BRANCHES_MAX, BRANCHES_TOTAL_MAX, FUNCTION_BYTES_MAX, FUNCTIONS_MAX, ITEMS_MAX, LOCALS_MAX,
    LOCALS_TOTAL_MAX, MODULE_BYTES_MAX, NESTING_MAX, PARAMETERS_MAX, RESULTS_MAX, SEGMENTS_MAX,
    TABLE_ELEMENTS_MAX, TABLES_MAX,
};
use crate::rewrite::{Needs, RESERVED};
use crate::work::Work;
use crate::writes::write_of;

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
    /// It may read or drop a data segment.
    pub(crate) names_data: bool,
    /// The version of the interface, where its function does nothing but return
    /// a number: then nobody has to call it.
    pub(crate) version: Option<i32>,
    /// That function, where nothing else in the module names it.
    unused: Option<u32>,
}

impl Report {
    /// What of the module is to be compiled.
    pub(crate) fn needs(&self) -> Needs<'_> {
        Needs {
            globals: &self.globals,
            data: self.names_data,
            without: self.unused,
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

/// How many places of a function an instruction begins or leads to.
fn branches_of(operator: &Operator<'_>) -> u64 {
    match operator {
        Operator::Block { .. }
        | Operator::Loop { .. }
        | Operator::If { .. }
        | Operator::Br { .. }
        | Operator::BrIf { .. } => 1,
        Operator::BrTable { targets } => 1 + u64::from(targets.len()),
        _ => 0,
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

/// Where an active segment begins. Programs import no globals, so it is always
/// a number.
fn place(offset: &ConstExpr<'_>) -> Option<u64> {
    match offset.get_operators_reader().read() {
        Ok(Operator::I32Const { value }) => Some(u64::from(value.cast_unsigned())),
        _ => None,
    }
}

/// The number that a function returns which does nothing else.
fn constant(body: &FunctionBody<'_>) -> Option<i32> {
    let mut operators = body.get_operators_reader().ok()?;
    let Operator::I32Const { value } = operators.read().ok()? else {
        return None;
    };
    let ends = matches!(operators.read(), Ok(Operator::End)) && operators.eof();
    ends.then_some(value)
}

/// Whether a section has few enough of what is in it.
fn few(count: u32, what: &str, at: usize, max: u32) -> Result<(), Fault> {
    if count <= max {
        return Ok(());
    }
    rule(format!(
        "the module has {count} {what} (at byte {at}), allowed are {max}"
    ))
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

    fn section(&mut self, payload: &Payload<'_>) -> Result<(), Fault> {
        match payload {
            Payload::TypeSection(types) => {
                let at = types.range().start;
                few(types.count(), "types", at, ITEMS_MAX)?;
                for kind in types.clone().into_iter_err_on_gc_types() {
                    self.kind(kind?, at)?;
                }
            }
            Payload::ImportSection(imports) => {
                for import in imports.clone().into_imports_with_offsets() {
                    let (at, import) = import?;
                    self.import(import.module, import.name, import.ty, at)?;
                }
            }
            Payload::FunctionSection(functions) => {
                if functions.count() > FUNCTIONS_MAX {
                    return rule(format!(
                        "the module has {} functions, allowed are {FUNCTIONS_MAX}",
                        functions.count()
                    ));
                }
                for kind in functions.clone() {
                    self.functions.push(kind?);
                }
            }
            Payload::MemorySection(memories) => {
                for memory in memories.clone() {
                    self.memory(&memory?)?;
                }
            }
            Payload::TableSection(tables) => {
                for table in tables.clone() {
                    self.table(table?.ty.initial)?;
                }
            }
            Payload::GlobalSection(globals) => {
                let at = globals.range().start;
                few(globals.count(), "globals", at, ITEMS_MAX)?;
                for global in globals.clone() {
                    self.global(global?.ty)?;
                }
            }
            Payload::ExportSection(exports) => {
                let at = exports.range().start;
                few(exports.count(), "exports", at, ITEMS_MAX)?;
                for export in exports.clone() {
                    self.export(&export?)?;
                }
            }
            Payload::StartSection { range, .. } => {
                return rule(format!(
                    "a start function is not allowed (at byte {}): what must run first belongs in weir_init",
                    range.start
                ));
            }
            Payload::ElementSection(segments) => {
                let at = segments.range().start;
                few(segments.count(), "element segments", at, SEGMENTS_MAX)?;
                for (number, segment) in segments.clone().into_iter().enumerate() {
                    self.elements(number, &segment?)?;
                }
            }
            Payload::DataSection(segments) => {
                let at = segments.range().start;
                few(segments.count(), "data segments", at, SEGMENTS_MAX)?;
                for (number, segment) in segments.clone().into_iter().enumerate() {
                    self.data(number, &segment?)?;
                }
            }
            Payload::TagSection(section) => {
                return rule(format!(
                    "exceptions are not allowed (at byte {})",
                    section.range().start
                ));
            }
            _ => {}
        }
        Ok(())
    }

    fn export(&mut self, export: &wasmparser::Export<'_>) -> Result<(), Fault> {
        if export.name.starts_with(RESERVED) {
            return rule(format!(
                "the export {:?} has a reserved name: names must not start with {RESERVED:?}",
                export.name
            ));
        }
        if export.name == VERSION_NAME && export.kind == ExternalKind::Func {
            self.teller = Some(export.index);
        }
        let export = (export.name.to_owned(), export.kind, export.index);
        self.exported.push(export);
        Ok(())
    }

    fn import(&mut self, module: &str, name: &str, ty: TypeRef, at: usize) -> Result<(), Fault> {
        if self.report.imports.len() >= ITEMS_MAX as usize {
            return rule(format!(
                "the module has more than {ITEMS_MAX} imports (at byte {at})"
            ));
        }
        let full = format!("{module}.{name}");
        let TypeRef::Func(kind) = ty else {
            return rule(format!(
                "the import {full} is no function (at byte {at}): a program brings its own memory, tables and globals"
            ));
        };
        let known = IMPORTS
            .iter()
            .find(|(known, ..)| module == MODULE && *known == name);
        let Some((_, params, returns)) = known else {
            return rule(format!(
                "the import {full} is not known (at byte {at}): only the functions of {MODULE} may be imported"
            ));
        };
        let results: &[ValType] = match returns {
            Returns::Nothing => &[],
            Returns::I32 => &[ValType::I32],
            Returns::I64 => &[ValType::I64],
        };
        let fits = self.types.get(kind as usize).is_some_and(|kind| {
            kind.params().len() == *params
                && kind.params().iter().all(|param| *param == ValType::I32)
                && kind.results() == results
        });
        if !fits {
            return rule(format!(
                "the import {full} has another type (at byte {at}): {params} parameters of i32, result {returns:?}"
            ));
        }
        let facts = &mut self.report.facts;
        facts.reads_input |= name == "input_read";
        facts.reads_keys |= matches!(name, "key_get" | "key_offset");
        self.functions.push(kind);
        self.report.imports.push(name.to_owned());
        Ok(())
    }

    fn memory(&mut self, memory: &wasmparser::MemoryType) -> Result<(), Fault> {
        self.memories += 1;
        if self.memories > 1 {
            return rule("more than one memory is not allowed".to_owned());
        }
        if memory.shared {
            return rule("a shared memory is not allowed".to_owned());
        }
        if memory.memory64 {
            return rule("a 64-bit memory is not allowed".to_owned());
        }
        self.report.memory_bytes = memory.initial.saturating_mul(PAGE_BYTES);
        self.memory_max = memory.maximum;
        Ok(())
    }

    fn kind(&mut self, kind: FuncType, at: usize) -> Result<(), Fault> {
        let number = self.types.len();
        for (values, what, max) in [
            (kind.params().len(), "parameters", PARAMETERS_MAX),
            (kind.results().len(), "results", RESULTS_MAX),
        ] {
            if values > max {
                return rule(format!(
                    "the type {number} has {values} {what} (types begin at byte {at}), allowed are {max}"
                ));
            }
        }
        self.work
            .kind(kind.params().len(), kind.results().len(), at)?;
        self.types.push(kind);
        Ok(())
    }

    /// Asked here, because an engine would notice only when it makes an
    /// instance.
    fn data(&self, number: usize, segment: &wasmparser::Data<'_>) -> Result<(), Fault> {
        let DataKind::Active { offset_expr, .. } = &segment.kind else {
            return Ok(());
        };
        let (bytes, max) = (segment.data.len() as u64, self.report.memory_bytes);
        let fits = place(offset_expr).is_none_or(|from| from + bytes <= max);
        if fits || self.memories == 0 {
            return Ok(());
        }
        rule(format!(
            "the data segment {number} of {bytes} bytes lies outside of the memory of {max} bytes (at byte {})",
            segment.range.start
        ))
    }

    fn elements(&mut self, number: usize, segment: &wasmparser::Element<'_>) -> Result<(), Fault> {
        let count = u64::from(match &segment.items {
            ElementItems::Functions(items) => items.count(),
            ElementItems::Expressions(_, items) => items.count(),
        });
        self.work.bridges(count, segment.range.start)?;
        self.teller_is_named |= match &segment.items {
            ElementItems::Functions(items) => {
                let mut named = items.clone().into_iter().flatten();
                named.any(|index| Some(index) == self.teller)
            }
            ElementItems::Expressions(..) => true,
        };
        let ElementKind::Active {
            table_index,
            offset_expr,
        } = &segment.kind
        else {
            return Ok(());
        };
        let Some(max) = self.tables.get(table_index.unwrap_or(0) as usize) else {
            return Ok(()); // the format has a sentence for it
        };
        if place(offset_expr).is_none_or(|from| from + count <= *max) {
            return Ok(());
        }
        rule(format!(
            "the element segment {number} of {count} elements lies outside of its table of {max} (at byte {})",
            segment.range.start
        ))
    }

    fn table(&mut self, elements: u64) -> Result<(), Fault> {
        self.tables.push(elements);
        if self.tables.len() > TABLES_MAX as usize {
            return rule(format!("the module has more than {TABLES_MAX} tables"));
        }
        if elements > TABLE_ELEMENTS_MAX {
            return rule(format!(
                "a table has {elements} elements, allowed are {TABLE_ELEMENTS_MAX}"
            ));
        }
        Ok(())
    }

    fn global(&mut self, ty: wasmparser::GlobalType) -> Result<(), Fault> {
        let index = self.global_count;
        self.global_count += 1;
        if !ty.mutable {
            return Ok(());
        }
        if !matches!(
            ty.content_type,
            ValType::I32 | ValType::I64 | ValType::F32 | ValType::F64
        ) {
            return rule(format!(
                "the mutable global {index} is no number of at most 64 bits"
            ));
        }
        self.report.globals.push(index);
        if self.report.globals.len() > GLOBALS_MAX {
            return rule(format!(
                "the module has more than {GLOBALS_MAX} mutable globals"
            ));
        }
        Ok(())
    }

    fn body(
        &mut self,
        code: &[u8],
        body: &FunctionBody<'_>,
        function: &mut FuncValidator<ValidatorResources>,
    ) -> Result<(), Fault> {
        let range = body.range();
        let index = self.report.imports.len() as u64 + u64::from(self.report.functions);
        if self.teller.map(u64::from) == Some(index) {
            self.report.version = constant(body);
        }
        self.report.functions += 1;
        self.report.body_bytes += range.len() as u64;
        if range.len() > FUNCTION_BYTES_MAX {
            return rule(format!(
                "a function has {} bytes (at byte {}), allowed are {FUNCTION_BYTES_MAX}",
                range.len(),
                range.start
            ));
        }
        let locals = self.locals(body)?;
        let mut reader = body.get_binary_reader();
        function.read_locals(&mut reader)?;
        reader.set_features(features());
        self.work
            .begin(range.start, u64::from(function.len_locals()).max(locals))?;
        let (mut depth, mut branches) = (0_usize, 0);
        let mut operators = OperatorsReader::new(reader);
        while !operators.eof() {
            let (operator, at) = operators.read_with_offset()?;
            branches += branches_of(&operator);
            self.branches_fit(branches, range.start)?;
            match operator {
                Operator::Block { .. } | Operator::Loop { .. } | Operator::If { .. } => depth += 1,
                Operator::End => depth = depth.saturating_sub(1),
                _ => {}
            }
            if depth > NESTING_MAX {
                return rule(format!(
                    "blocks are nested more than {NESTING_MAX} deep (function at byte {})",
                    range.start
                ));
            }
            self.note(&operator);
            let first = code.get(at).copied().unwrap_or_default();
            let arity = self.arity(&operator);
            self.work
                .operator(first, arity, function.operand_stack_height())?;
            function.op(at, &operator)?;
        }
        operators.finish()?;
        self.branches += branches;
        self.work.end(range.end)
    }

    /// Number of local variables of a function, parameters left out.
    fn locals(&mut self, body: &FunctionBody<'_>) -> Result<u64, Fault> {
        let range = body.range();
        let mut locals = 0;
        for local in body.get_locals_reader()? {
            locals += u64::from(local?.0);
        }
        self.locals += locals;
        if locals > LOCALS_MAX {
            return rule(format!(
                "a function has {locals} local variables (at byte {}), allowed are {LOCALS_MAX}",
                range.start
            ));
        }
        if self.locals > LOCALS_TOTAL_MAX {
            return rule(format!(
                "the functions up to byte {} have {} local variables, allowed are {LOCALS_TOTAL_MAX}",
                range.end, self.locals
            ));
        }
        Ok(locals)
    }

    /// Notes what an instance may change.
    fn note(&mut self, operator: &Operator<'_>) {
        let report = &mut self.report;
        match operator {
            Operator::TableCopy { .. }
            | Operator::TableInit { .. }
            | Operator::ElemDrop { .. }
            | Operator::DataDrop { .. } => report.changes_segments = true,
            Operator::GlobalSet { .. } => report.sets_globals = true,
            Operator::MemoryGrow { .. } => report.stores = true,
            other => report.stores |= write_of(other).is_some(),
        }
        self.teller_is_named |= match operator {
            Operator::Call { function_index } | Operator::RefFunc { function_index } => {
                Some(*function_index) == self.teller
            }
            _ => false,
        };
        report.names_data |= matches!(
            operator,
            Operator::MemoryInit { .. } | Operator::DataDrop { .. }
        );
    }

    /// How many values an instruction takes and leaves by its type or table.
    fn arity(&self, operator: &Operator<'_>) -> u64 {
        use wasmparser::BlockType;
        let kind = match operator {
            Operator::Call { function_index } => self.functions.get(*function_index as usize),
            Operator::CallIndirect { type_index, .. } => Some(type_index),
            Operator::Block { blockty } | Operator::Loop { blockty } | Operator::If { blockty } => {
                match blockty {
                    BlockType::FuncType(index) => Some(index),
                    _ => None,
                }
            }
            Operator::BrTable { targets } => return u64::from(targets.len()),
            _ => None,
        };
        kind.and_then(|kind| self.types.get(*kind as usize))
            .map_or(0, |kind| {
                (kind.params().len() + kind.results().len()) as u64
            })
    }

    /// Whether a function may have so many, behind those before it.
    fn branches_fit(&self, here: u64, at: usize) -> Result<(), Fault> {
        if here > BRANCHES_MAX {
            return rule(format!(
                "a function has more than {BRANCHES_MAX} blocks and branches (at byte {at})"
            ));
        }
        if self.branches + here > BRANCHES_TOTAL_MAX {
            return rule(format!(
                "the functions up to the one at byte {at} have more than {BRANCHES_TOTAL_MAX} blocks and branches"
            ));
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
