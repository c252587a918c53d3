//! A host that runs one module in place of others, to show what another program would have decided.

use std::collections::BTreeSet;

use weir_core::program::{Program, ProgramHost};
use weir_core::{CodeHash, Refusal, Setup};

use crate::native::WasmtimeHost;

/// Runs a module in place of the modules with certain hashes. The machine still uses the hashes of
/// the replaced modules, so only verdicts, records, state and fuel differ.
#[derive(Debug)]
pub struct SubstituteHost {
    host: WasmtimeHost,
    replaced: BTreeSet<CodeHash>,
    code: Vec<u8>,
}

impl SubstituteHost {
    /// A host that runs `code` in place of every module whose hash is in `replaced`.
    #[must_use]
    pub fn new(replaced: BTreeSet<CodeHash>, code: Vec<u8>) -> Self {
        Self {
            host: WasmtimeHost::default(),
            replaced,
            code,
        }
    }
}

impl ProgramHost for SubstituteHost {
    fn hash(&self, code: &[u8]) -> CodeHash {
        self.host.hash(code)
    }

    fn admit(&self, code: &[u8], setup: &Setup) -> Result<Box<dyn Program>, Refusal> {
        let is_replaced = self.replaced.contains(&self.hash(code));
        let code = if is_replaced { &self.code } else { code };
        self.host.admit(code, setup)
    }

    fn on_deep_stack(&self, work: &mut dyn FnMut()) {
        self.host.on_deep_stack(work);
    }

    fn fingerprint(&self) -> String {
        self.host.fingerprint()
    }
}
