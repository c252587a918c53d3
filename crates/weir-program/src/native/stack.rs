//! The call stack of a failed call: its functions, by the names that the module gives them.

use std::collections::BTreeMap;
use std::sync::Arc;

use wasmparser::{ExternalKind, KnownCustom, Name, Parser, Payload};
use wasmtime::{Error, WasmBacktrace};
use weir_core::call_context::CallContext;

use crate::trace::{CallStack, Frame, NAME_BYTES_MAX, Tracer};

/// Records call stacks of one module in a tracer.
pub(super) struct Stacks {
    tracer: Arc<Tracer>,
    names: BTreeMap<u32, String>,
    /// The function that is missing in the compiled module.
    without: Option<u32>,
}

impl Stacks {
    /// For a valid module.
    pub(super) fn new(tracer: &Arc<Tracer>, code: &[u8], without: Option<u32>) -> Self {
        Self {
            tracer: Arc::clone(tracer),
            names: names(code),
            without,
        }
    }

    /// Records where the call of this context failed.
    pub(super) fn record(&self, error: &Error, context: &CallContext) {
        let intention = context.intention();
        let Some(trace) = error.downcast_ref::<WasmBacktrace>() else {
            return;
        };
        if !self.tracer.records_stack(intention) {
            return;
        }
        let frames = trace.frames().iter().map(|frame| {
            let function = self.deployed(frame.func_index());
            let name = self.names.get(&function).map(|name| demangled(name));
            Frame { function, name }
        });
        self.tracer.add_stack(CallStack {
            intention,
            step: context.step(),
            frames: frames.collect(),
        });
    }

    /// Converts the index of a function of the compiled module into its index in the deployed
    /// module.
    fn deployed(&self, index: u32) -> u32 {
        index + u32::from(self.without.is_some_and(|without| index >= without))
    }
}

/// Names of the functions of a module: the names in the name section, else the names of exports. A
/// name section has no guaranteed format, so unreadable parts are skipped.
pub(super) fn names(code: &[u8]) -> BTreeMap<u32, String> {
    let mut found = BTreeMap::new();
    let mut exports = Vec::new();
    for payload in Parser::new(0).parse_all(code).map_while(Result::ok) {
        match payload {
            Payload::ExportSection(section) => {
                let functions = section.into_iter().map_while(Result::ok);
                let functions = functions.filter(|export| export.kind == ExternalKind::Func);
                exports.extend(functions.map(|export| (export.index, export.name.to_owned())));
            }
            Payload::CustomSection(section) => {
                let KnownCustom::Name(section) = section.as_known() else {
                    continue;
                };
                for part in section.into_iter().map_while(Result::ok) {
                    let Name::Function(functions) = part else {
                        continue;
                    };
                    for name in functions.into_iter().map_while(Result::ok) {
                        found.insert(name.index, name.name.to_owned());
                    }
                }
            }
            _ => {}
        }
    }
    for (index, name) in exports {
        found.entry(index).or_insert(name);
    }
    found
}

/// A demangled name for functions of Rust; other names stay unchanged.
pub(super) fn demangled(name: &str) -> String {
    // Omits the hash that the compiler appends.
    let mut name = format!("{:#}", rustc_demangle::demangle(name));
    name.truncate(name.floor_char_boundary(NAME_BYTES_MAX));
    name
}
