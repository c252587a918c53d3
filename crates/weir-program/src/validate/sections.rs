//! The rules of each section: the number of its items, and where they are located.

use wasmparser::{
    ConstExpr, DataKind, ElementItems, ElementKind, ExternalKind, FuncType, Operator, Payload,
    TypeRef, ValType,
};
use weir_core::limits::GLOBALS_MAX;

use super::Module;
use crate::abi::PAGE_BYTES;
use crate::abi::{IMPORTS, MODULE, Returns, STATE_VERSION_NAME, VERSION_NAME};
use crate::fault::{Fault, rule};
use crate::host::limits::{
    FUNCTIONS_MAX, ITEMS_MAX, PARAMETERS_MAX, RESULTS_MAX, SEGMENTS_MAX, TABLE_ELEMENTS_MAX,
};
use crate::instance_fuel::pages_of;
use crate::rewrite::RESERVED;

/// The start of an active segment. Programs import no globals, so it is always a literal.
fn segment_start(offset: &ConstExpr<'_>) -> Option<u64> {
    match offset.get_operators_reader().read() {
        Ok(Operator::I32Const { value }) => Some(u64::from(value.cast_unsigned())),
        _ => None,
    }
}

/// Checks the number of items in a section.
fn check_count(count: u32, what: &str, at: usize, max: u32) -> Result<(), Fault> {
    if count <= max {
        return Ok(());
    }
    rule(format!(
        "the module has {count} {what} (at byte {at}), allowed are {max}"
    ))
}

impl Module {
    pub(super) fn section(&mut self, payload: &Payload<'_>) -> Result<(), Fault> {
        match payload {
            Payload::TypeSection(types) => {
                let at = types.range().start;
                check_count(types.count(), "types", at, ITEMS_MAX)?;
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
                check_count(globals.count(), "globals", at, ITEMS_MAX)?;
                self.report.global_count = globals.count();
                for global in globals.clone() {
                    self.global(global?.ty)?;
                }
            }
            Payload::ExportSection(exports) => {
                let at = exports.range().start;
                check_count(exports.count(), "exports", at, ITEMS_MAX)?;
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
                check_count(segments.count(), "element segments", at, SEGMENTS_MAX)?;
                for (number, segment) in segments.clone().into_iter().enumerate() {
                    self.elements(number, &segment?)?;
                }
            }
            Payload::DataSection(segments) => {
                let at = segments.range().start;
                check_count(segments.count(), "data segments", at, SEGMENTS_MAX)?;
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
            self.version_function = Some(export.index);
        }
        if export.name == STATE_VERSION_NAME && export.kind == ExternalKind::Func {
            self.state_version_function = Some(export.index);
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
                "the import {full} is not a function (at byte {at}): a program brings its own memory, tables and globals"
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
        facts.reads_input |= matches!(name, "input_read" | "json_find");
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

    /// Checked here, because an engine detects it only when it creates an instance.
    fn data(&mut self, number: usize, segment: &wasmparser::Data<'_>) -> Result<(), Fault> {
        let DataKind::Active { offset_expr, .. } = &segment.kind else {
            return Ok(());
        };
        self.report.data_pages += pages_of(segment.data.len());
        let (bytes, max) = (segment.data.len() as u64, self.report.memory_bytes);
        let fits = segment_start(offset_expr).is_none_or(|from| from + bytes <= max);
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
        self.work.trampolines(count, segment.range.start)?;
        self.version_function_is_referenced |= match &segment.items {
            ElementItems::Functions(items) => {
                let mut named = items.clone().into_iter().flatten();
                named.any(|index| Some(index) == self.version_function)
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
            return Ok(()); // the validator of the format reports it
        };
        if segment_start(offset_expr).is_none_or(|from| from + count <= *max) {
            return Ok(());
        }
        rule(format!(
            "the element segment {number} of {count} elements lies outside of its table of {max} (at byte {})",
            segment.range.start
        ))
    }

    /// The validator of the format reports a second table.
    fn table(&mut self, elements: u64) -> Result<(), Fault> {
        self.tables.push(elements);
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
                "the mutable global {index} is not a number of at most 64 bits"
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
}
