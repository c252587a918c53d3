//! Rewrites a checked module before it is compiled, so that the host can restore an instance
//! cheaply.
//!
//! - Each mutable global gets another export, under a reserved name. A program must not be able to
//!   keep data in a global between two calls, and in mode `memory` globals are part of the state.
//! - On request ([`DirtyPages`]) each instruction that writes into the memory first sets the bit of
//!   the written piece, in an added global. After a call, only the marked pieces have to be
//!   restored, not the whole memory. The effect of an instruction and its traps do not change. The
//!   mark of an instruction that traps is irrelevant, because its instance is dropped.
//! - A function that calls others subtracts its units of stack from a global when it begins, and
//!   adds them again when it ends. If there are too few units, it traps ([`depth`]). So calls nest
//!   equally deep on every engine.
//! - Parts that only increase the cost of compilation are removed. These are exports that are never
//!   called (a compiler creates a trampoline for each), and the function that returns the version,
//!   if it only returns a literal and nothing calls it. Data segments are removed too, unless an
//!   instruction refers to one; the host copies them into a new memory itself.
//!
//! Invariant: every write sets a mark.

mod depth;
mod dirty_pages;
mod scratch_locals;

use std::convert::Infallible;
use weir_core::exact::to_u32;

use wasm_encoder::reencode::{Error, Reencode, utils};
use wasm_encoder::{
    CodeSection, ConstExpr, DataSection, ExportKind, ExportSection, Function, FunctionSection,
    GlobalSection, GlobalType, Instruction, Module, SectionId, TypeSection, ValType,
};
use wasmparser::{DataKind, ExternalKind, FunctionBody, Operator, Parser, Payload};
use weir_core::program::Entry;

use crate::abi;
use crate::host::limits::STACK_UNITS_MAX;
use crate::writes::{Write, write_of};
use depth::{Depth, StackBudget};
pub(crate) use dirty_pages::DirtyPages;
use scratch_locals::{Mask, SCRATCH, ScratchLocals, needs, value_type};

/// Prefix of the reserved names.
pub(crate) const RESERVED: &str = "weir:";
/// Name of the export of a global.
pub(crate) fn global_name(index: u32) -> String {
    format!("{RESERVED}{index}")
}

/// A rewritten module.
#[derive(Debug)]
pub(crate) struct Rewritten {
    /// The code to compile.
    pub(crate) code: Vec<u8>,
    /// Index of the global with the bits of the written pieces, a mutable `i64`; `None` without
    /// marks.
    pub(crate) mask: Option<u32>,
    /// Index of the global with the remaining units of stack, a mutable `i32`; `None` if no
    /// function calls another. The global is negative after a function had too few units.
    pub(crate) stack_budget: Option<u32>,
    /// The initial contents of a memory: address and bytes, in this order.
    pub(crate) data: Vec<(usize, Vec<u8>)>,
    /// Whether the module contains its data segments.
    pub(crate) keeps_data: bool,
}

/// The parts of a module that are needed.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct RequiredParts<'a> {
    /// Globals to export.
    pub(crate) globals: &'a [u32],
    /// Whether the data segments remain in the module.
    pub(crate) data: bool,
    /// Index of a function to remove: only its export refers to it.
    pub(crate) without: Option<u32>,
    /// Units of stack of each function with a body; 0 for a function without a meter.
    pub(crate) frames: &'a [u32],
}

/// Rewrites a module: exports its globals and, with `dirty`, adds the global with the marks.
pub(crate) fn rewrite(
    code: &[u8],
    dirty: Option<DirtyPages>,
    needs: RequiredParts<'_>,
) -> Result<Rewritten, Error> {
    let shape = Shape::read(code)?;
    let data = (!needs.data).then_some(shape.data).flatten();
    let mask = dirty.map(|dirty| Mask {
        global: shape.globals,
        shift: dirty.shift,
    });
    let metered = needs.frames.iter().any(|units| *units > 0);
    let stack_budget = metered.then(|| StackBudget(shape.globals + u32::from(mask.is_some())));
    let mut exports = needs.globals.to_vec();
    exports.extend(mask.map(|mask| mask.global));
    exports.extend(stack_budget.map(|stack_budget| stack_budget.0));
    let mut rewriter = Rewriter {
        exports,
        mask,
        stack_budget,
        frames: needs.frames,
        globals_added: false,
        drops_data: data.is_some(),
        without: needs.without,
        imports: shape.imports,
        bodies: 0,
        functions: shape.functions,
        types: shape.types,
        results: Vec::new(),
    };
    let mut module = Module::new();
    rewriter.parse_core_module(&mut module, Parser::new(0), code)?;
    Ok(Rewritten {
        code: module.finish(),
        mask: mask.map(|mask| mask.global),
        stack_budget: stack_budget.map(|stack_budget| stack_budget.0),
        keeps_data: data.is_none(),
        data: data.unwrap_or_default(),
    })
}

/// Facts about a module that are needed before it is rewritten.
#[derive(Default)]
struct Shape {
    /// Number of globals; a program imports none.
    globals: u32,
    /// Number of imports, which are functions.
    imports: u32,
    /// The function types.
    types: Vec<wasmparser::FuncType>,
    /// Type of each function with a body.
    functions: Vec<u32>,
    /// The data segments; `None` if the address of one is not a literal.
    data: Option<Vec<(usize, Vec<u8>)>>,
}

impl Shape {
    fn read(code: &[u8]) -> Result<Self, Error> {
        let mut shape = Self {
            data: Some(Vec::new()),
            ..Self::default()
        };
        for payload in Parser::new(0).parse_all(code) {
            match payload? {
                Payload::TypeSection(section) => {
                    for function in section.into_iter_err_on_gc_types() {
                        shape.types.push(function?);
                    }
                }
                Payload::FunctionSection(section) => {
                    for index in section {
                        shape.functions.push(index?);
                    }
                }
                Payload::ImportSection(section) => {
                    let imports = section.into_imports().count();
                    shape.imports = to_u32(imports, "a module has few imports");
                }
                Payload::GlobalSection(section) => shape.globals = section.count(),
                Payload::DataSection(section) => {
                    for segment in section {
                        shape.segment(&segment?);
                    }
                }
                _ => {}
            }
        }
        Ok(shape)
    }

    fn segment(&mut self, segment: &wasmparser::Data<'_>) {
        let DataKind::Active { offset_expr, .. } = &segment.kind else {
            return; // the host never calls it
        };
        let at = match offset_expr.get_operators_reader().read() {
            Ok(Operator::I32Const { value }) => Some(value.cast_unsigned() as usize),
            _ => None,
        };
        match (at, &mut self.data) {
            (Some(at), Some(data)) => data.push((at, segment.data.to_vec())),
            _ => self.data = None,
        }
    }
}

/// Whether the host calls this function of an instance.
fn is_called(name: &str) -> bool {
    let entries = [Entry::Init, Entry::Apply, Entry::Upgrade];
    name == abi::VERSION_NAME || entries.iter().any(|entry| name == abi::entry_name(*entry))
}

struct Rewriter<'a> {
    exports: Vec<u32>,
    mask: Option<Mask>,
    stack_budget: Option<StackBudget>,
    frames: &'a [u32],
    globals_added: bool,
    drops_data: bool,
    without: Option<u32>,
    imports: u32,
    /// Function bodies read so far.
    bodies: usize,
    /// Type of each function with a body.
    functions: Vec<u32>,
    types: Vec<wasmparser::FuncType>,
    /// Lists of several results of metered functions. Each list is an additional type, after those
    /// of the module.
    results: Vec<Vec<wasmparser::ValType>>,
}

impl Rewriter<'_> {
    /// Whether the function with this body is removed.
    fn is_removed(&self, body: usize) -> bool {
        let index = u64::from(self.imports) + body as u64;
        self.without.map(u64::from) == Some(index)
    }

    fn add_globals(&mut self, section: &mut GlobalSection) {
        self.globals_added = true;
        let kind = |val_type| GlobalType {
            val_type,
            mutable: true,
            shared: false,
        };
        if self.mask.is_some() {
            section.global(kind(ValType::I64), &ConstExpr::i64_const(0));
        }
        if self.stack_budget.is_some() {
            let units = ConstExpr::i32_const(STACK_UNITS_MAX.cast_signed());
            section.global(kind(ValType::I32), &units);
        }
    }

    /// The type of the function with this body.
    fn kind(&self, body: usize) -> Option<&wasmparser::FuncType> {
        self.types.get(*self.functions.get(body)? as usize)
    }

    /// The meter of the function with this body, if it has one.
    fn depth(&mut self, body: usize) -> Result<Option<Depth>, Error> {
        let units = self.frames.get(body).copied().unwrap_or(0);
        let (Some(stack_budget), true) = (self.stack_budget, units > 0) else {
            return Ok(None);
        };
        let results = self.kind(body).map_or(&[][..], |kind| kind.results());
        let block = match results {
            [] => wasm_encoder::BlockType::Empty,
            [kind] => wasm_encoder::BlockType::Result(self.val_type(*kind)?),
            many => {
                let Some(known) = self.results.iter().position(|known| known == many) else {
                    unreachable!("each list of several results has a type");
                };
                let index = self.types.len() + known;
                let index = to_u32(index, "a module has few types");
                wasm_encoder::BlockType::FunctionType(index)
            }
        };
        Ok(Some(Depth::new(stack_budget, units, block)))
    }

    /// Collects the types of the blocks around metered bodies with several results.
    fn collect_results(&mut self) {
        let metered = self
            .frames
            .iter()
            .enumerate()
            .filter(|(_, units)| **units > 0);
        let mut found: Vec<Vec<wasmparser::ValType>> = Vec::new();
        for (body, _) in metered {
            let results = self.kind(body).map_or(&[][..], |kind| kind.results());
            if results.len() > 1 && !found.iter().any(|known| known == results) {
                found.push(results.to_vec());
            }
        }
        self.results = found;
    }
}

impl Reencode for Rewriter<'_> {
    type Error = Infallible;

    /// Removed: custom sections have no effect, and their contents have no guaranteed format.
    fn parse_custom_section(
        &mut self,
        _: &mut Module,
        _: wasmparser::CustomSectionReader<'_>,
    ) -> Result<(), Error> {
        Ok(())
    }

    fn parse_type_section(
        &mut self,
        types: &mut TypeSection,
        section: wasmparser::TypeSectionReader<'_>,
    ) -> Result<(), Error> {
        utils::parse_type_section(self, types, section)?;
        self.collect_results();
        for results in self.results.clone() {
            let results: Result<Vec<_>, _> = results
                .into_iter()
                .map(|kind| self.val_type(kind))
                .collect();
            types.ty().function([], results?);
        }
        Ok(())
    }

    fn function_index(&mut self, index: u32) -> Result<u32, Error> {
        let after = self.without.is_some_and(|without| index > without);
        Ok(index - u32::from(after))
    }

    fn parse_function_section(
        &mut self,
        functions: &mut FunctionSection,
        section: wasmparser::FunctionSectionReader<'_>,
    ) -> Result<(), Error> {
        for (body, kind) in section.into_iter().enumerate() {
            let kind = self.type_index(kind?)?;
            if !self.is_removed(body) {
                functions.function(kind);
            }
        }
        Ok(())
    }

    fn parse_global_section(
        &mut self,
        globals: &mut GlobalSection,
        section: wasmparser::GlobalSectionReader<'_>,
    ) -> Result<(), Error> {
        utils::parse_global_section(self, globals, section)?;
        self.add_globals(globals);
        Ok(())
    }

    /// A module without globals gets a global section before its exports.
    fn intersperse_section_hook(
        &mut self,
        module: &mut Module,
        _: Option<SectionId>,
        before: Option<SectionId>,
    ) -> Result<(), Error> {
        if before == Some(SectionId::Export) && !self.globals_added {
            let mut section = GlobalSection::new();
            self.add_globals(&mut section);
            module.section(&section);
        }
        Ok(())
    }

    fn parse_export_section(
        &mut self,
        exports: &mut ExportSection,
        section: wasmparser::ExportSectionReader<'_>,
    ) -> Result<(), Error> {
        for export in section {
            let export = export?;
            let is_function = export.kind == ExternalKind::Func;
            let is_there = self.without != Some(export.index);
            if !is_function || (is_there && is_called(export.name)) {
                self.parse_export(exports, export)?;
            }
        }
        for index in &self.exports {
            exports.export(&global_name(*index), ExportKind::Global, *index);
        }
        Ok(())
    }

    fn data_count(&mut self, count: u32) -> Result<u32, Error> {
        Ok(if self.drops_data { 0 } else { count })
    }

    fn parse_data_section(
        &mut self,
        data: &mut DataSection,
        section: wasmparser::DataSectionReader<'_>,
    ) -> Result<(), Error> {
        if self.drops_data {
            return Ok(());
        }
        utils::parse_data_section(self, data, section)
    }

    fn parse_function_body(
        &mut self,
        code: &mut CodeSection,
        body: FunctionBody<'_>,
    ) -> Result<(), Error> {
        let number = self.bodies;
        self.bodies += 1;
        if self.is_removed(number) {
            return Ok(());
        }
        let depth = self.depth(number)?;
        if self.mask.is_none() && depth.is_none() {
            return utils::parse_function_body(self, code, body);
        }
        let parameters = self.kind(number).map_or(0, |kind| kind.params().len());
        let mut locals = Vec::new();
        let mut own = to_u32(parameters, "a function has few parameters");
        for pair in body.get_locals_reader()? {
            let (count, kind) = pair?;
            own = own.saturating_add(count);
            locals.push((count, self.val_type(kind)?));
        }
        let mut operators = Vec::new();
        for operator in body.get_operators_reader()? {
            operators.push(operator?);
        }
        let grows = self.mask.is_some()
            && operators
                .iter()
                .any(|operator| matches!(operator, Operator::MemoryGrow { .. }));
        let marked = |operator: &Operator<'_>| self.mask.and(write_of(operator));
        let writes: Vec<_> = operators.iter().map(marked).collect();
        let needed: Vec<ValType> = SCRATCH
            .into_iter()
            .filter(|kind| {
                writes.iter().flatten().any(|write| needs(*write, *kind))
                    || (grows && *kind == ValType::I32)
            })
            .collect();
        let scratch = ScratchLocals::new(own, &needed, &mut locals);
        let mut function = Function::new(locals);
        if let Some(depth) = &depth {
            depth.begin(&mut function);
        }
        let mut blocks = 0;
        for (operator, write) in operators.into_iter().zip(writes) {
            match (write, self.mask) {
                (Some(Write::One(kind, offset)), Some(mask)) => {
                    scratch.one(&mut function, mask, value_type(kind), offset);
                }
                (Some(Write::Many), Some(mask)) => scratch.many(&mut function, mask),
                _ => {}
            }
            match (&operator, &depth) {
                (Operator::Return, Some(_)) => {
                    function.instruction(&Instruction::Br(blocks));
                    continue;
                }
                (Operator::End, Some(depth)) if blocks == 0 => depth.end(&mut function),
                (Operator::End, _) => blocks = blocks.saturating_sub(1),
                (Operator::Block { .. } | Operator::Loop { .. } | Operator::If { .. }, _) => {
                    blocks += 1;
                }
                (Operator::MemoryGrow { .. }, _) if grows => scratch.grow(&mut function),
                _ => {}
            }
            function.instruction(&self.instruction(operator)?);
        }
        code.function(&function);
        Ok(())
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;

    const PAGE: usize = 65_536;
    const ALL: RequiredParts<'static> = RequiredParts {
        globals: &[],
        data: true,
        without: None,
        frames: &[],
    };

    /// Runs `body` in a rewritten module. Returns its memory and the marks.
    fn run(body: &str) -> (Vec<u8>, DirtyPages) {
        let text = format!(
            r#"(module
            (memory (export "memory") 1 1)
            (data $d "0123456789abcdef")
            (func (export "weir_apply") (param i32) (local i64) {body}))"#
        );
        let mut dirty = DirtyPages::new(PAGE as u64);
        let code = wat::parse_str(text).unwrap();
        let Rewritten { code, mask, .. } = rewrite(&code, Some(dirty), ALL).unwrap();
        let engine = wasmtime::Engine::default();
        let module = wasmtime::Module::new(&engine, code).unwrap();
        let mut store = wasmtime::Store::new(&engine, ());
        let instance = wasmtime::Instance::new(&mut store, &module, &[]).unwrap();
        let f = instance
            .get_typed_func::<i32, ()>(&mut store, "weir_apply")
            .unwrap();
        f.call(&mut store, 7).unwrap();
        let mask = instance.get_global(&mut store, &global_name(mask.unwrap()));
        let Some(wasmtime::Val::I64(bits)) = mask.map(|mask| mask.get(&mut store)) else {
            panic!("no mask");
        };
        dirty.bits = bits.cast_unsigned();
        let memory = instance.get_memory(&mut store, "memory").unwrap();
        (memory.data(&store).to_vec(), dirty)
    }

    #[test]
    fn every_kind_of_write_is_marked() {
        let writes = [
            "(i32.store (i32.const 5000) (i32.const -1))",
            "(i32.store offset=60000 (local.get 0) (i32.const -1))",
            "(i32.store8 (i32.const 1023) (i32.const -1))",
            "(i32.store16 (i32.const 1023) (i32.const -1))",
            "(i32.store (i32.const 1023) (i32.const -1))",
            "(i64.store (i32.const 65528) (i64.const -1))",
            "(i64.store8 (i32.const 0) (i64.const -1))",
            "(i64.store16 (i32.const 2047) (i64.const -1))",
            "(i64.store32 (i32.const 2045) (i64.const -1))",
            "(f32.store (i32.const 4093) (f32.const 1.5))",
            "(f64.store (i32.const 4089) (f64.const -1.5))",
            "(v128.store (i32.const 4081) (v128.const i64x2 -1 -1))",
            "(v128.store8_lane 3 (i32.const 9) (v128.const i64x2 -1 -1))",
            "(v128.store16_lane 3 (i32.const 1023) (v128.const i64x2 -1 -1))",
            "(v128.store32_lane 3 (i32.const 1023) (v128.const i64x2 -1 -1))",
            "(v128.store64_lane 1 (i32.const 1017) (v128.const i64x2 -1 -1))",
            "(memory.fill (i32.const 0) (i32.const 1) (i32.const 65536))",
            "(memory.fill (i32.const 1024) (i32.const 1) (i32.const 1024))",
            "(memory.fill (i32.const 2047) (i32.const 1) (i32.const 2))",
            "(memory.init $d (i32.const 3070) (i32.const 0) (i32.const 16))",
            "(i32.store8 (i32.const 0) (i32.const 1))
             (memory.copy (i32.const 9000) (i32.const 0) (i32.const 3000))",
        ];
        for write in writes {
            let (mut memory, mut dirty) = run(write);
            assert_ne!(memory, vec![0; PAGE], "{write} writes nothing");
            for part in dirty.take(PAGE) {
                memory[part].fill(0);
            }
            assert_eq!(memory, vec![0; PAGE], "{write} is not undone");
            assert_eq!(dirty.bits, 0);
        }
    }

    #[test]
    fn only_what_was_written_is_marked() {
        for (write, bits) in [
            ("", 0),
            ("(i32.store (i32.const 1024) (i32.const 1))", 1 << 1),
            (
                "(memory.fill (i32.const 1024) (i32.const 1) (i32.const 1024))",
                1 << 1,
            ),
            (
                "(memory.fill (i32.const 1024) (i32.const 1) (i32.const 1025))",
                3 << 1,
            ),
            (
                "(memory.fill (i32.const 65535) (i32.const 1) (i32.const 1))",
                1 << 63,
            ),
            (
                "(memory.fill (i32.const 2048) (i32.const 1) (i32.const 0))",
                0,
            ),
        ] {
            assert_eq!(run(write).1.bits, bits, "{write}");
        }
    }

    #[test]
    fn unneeded_parts_are_removed() {
        let code = wat::parse_str(
            r#"(module (memory (export "memory") 1 1)
            (data (i32.const 8) "xyz") (data (i32.const 9) "c") (data "never asked for")
            (func (export "weir_abi")) (func (export "spare")) (global (export "g") i32 (i32.const 1)))"#,
        );
        let code = code.unwrap();
        let exports = |code: &[u8]| {
            let engine = wasmtime::Engine::default();
            let module = wasmtime::Module::new(&engine, code).unwrap();
            let mut names: Vec<_> = module.exports().map(|e| e.name().to_owned()).collect();
            names.sort();
            names
        };
        let left = rewrite(&code, None, RequiredParts::default()).unwrap();
        assert_eq!(left.data, [(8, b"xyz".to_vec()), (9, b"c".to_vec())]);
        assert_eq!(exports(&left.code), ["g", "memory", "weir_abi"]);
        assert!(!left.code.windows(3).any(|bytes| bytes == b"xyz"));
        let kept = rewrite(&code, None, ALL).unwrap();
        assert!(kept.data.is_empty());
        assert!(kept.code.windows(3).any(|bytes| bytes == b"xyz"));
    }

    #[test]
    fn calls_of_functions_after_a_removed_function_still_work() {
        let code = wat::parse_str(
            r#"(module (import "weir1" "emit_input" (func $emit)) (memory (export "memory") 1 1)
            (table 2 2 funcref) (elem (i32.const 0) $emit $seven)
            (func (export "weir_abi") (result i32) i32.const 1)
            (func $seven (result i32) i32.const 7)
            (func (export "weir_apply") (result i32)
              (i32.add (call $seven) (call_indirect (result i32) (i32.const 1)))))"#,
        );
        let without = Some(1);
        let needs = RequiredParts { without, ..ALL };
        let left = rewrite(&code.unwrap(), None, needs).unwrap();
        let engine = wasmtime::Engine::default();
        let module = wasmtime::Module::new(&engine, left.code).unwrap();
        assert!(module.get_export("weir_abi").is_none());
        let mut store = wasmtime::Store::new(&engine, ());
        let emit = wasmtime::Func::wrap(&mut store, || {});
        let instance = wasmtime::Instance::new(&mut store, &module, &[emit.into()]).unwrap();
        let apply = instance.get_typed_func::<(), i32>(&mut store, "weir_apply");
        assert_eq!(apply.unwrap().call(&mut store, ()).unwrap(), 14);
    }
}
