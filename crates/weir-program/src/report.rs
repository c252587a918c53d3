//! The facts about a module that a check finds.

use weir_core::call_context::Image;
use weir_core::{Facts, Setup, StateMode};

use crate::abi::PAGE_BYTES;
use crate::rewrite::RequiredParts;

/// The facts about a module that passed all checks.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[allow(clippy::struct_excessive_bools, reason = "independent facts")]
pub struct Report {
    /// Names of the imported functions.
    pub imports: Vec<String>,
    /// Names of its exports.
    pub exports: Vec<String>,
    /// Functions with a body.
    pub functions: u32,
    /// Bytes of these bodies.
    pub body_bytes: u64,
    /// Initial size of its memory in bytes.
    pub memory_bytes: u64,
    /// Maximum size of its memory in bytes.
    pub memory_bytes_max: u64,
    /// Indexes of the mutable globals.
    pub globals: Vec<u32>,
    /// Facts for the machine.
    pub facts: Facts,
    /// Whether it may write into its memory.
    pub stores: bool,
    /// Whether it may change one of its globals.
    pub sets_globals: bool,
    /// Whether it may change a table or drop a segment. An instance can then be used only once.
    pub changes_segments: bool,
    /// Number of globals, mutable or not.
    pub(crate) global_count: u32,
    /// Upper bound of the pages that its data segments touch.
    pub(crate) data_pages: u64,
    /// Whether an instruction may read or drop a data segment.
    pub(crate) refers_to_data: bool,
    /// The version of the interface, if its function only returns a number. Then the function need
    /// not be called.
    pub(crate) version: Option<i32>,
    /// Index of that function, if no other part of the module refers to it.
    pub(crate) unused: Option<u32>,
    /// Units of stack of each function with a body; 0 for a function that calls no function of the
    /// module.
    pub(crate) frames: Vec<u32>,
}

impl Report {
    /// The parts of the module that must be compiled.
    pub(crate) fn needs(&self) -> RequiredParts<'_> {
        RequiredParts {
            globals: &self.globals,
            data: self.refers_to_data,
            without: self.unused,
            frames: &self.frames,
        }
    }

    /// Checks whether a topic with these options may run the module.
    ///
    /// # Errors
    /// A sentence that describes the conflict.
    pub fn fits(&self, setup: &Setup) -> Result<(), String> {
        may_grow(self.memory_bytes_max, setup.memory_bytes_max)?;
        if setup.mode == StateMode::Memory && self.memory_bytes == 0 {
            // An image without memory means that there is no image yet.
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

    /// Whether an instance of the module can have produced this memory and these globals.
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

/// Whether a memory may grow to `bytes`.
pub(crate) fn may_grow(bytes: u64, max: u64) -> Result<(), String> {
    let (pages, max) = (bytes / PAGE_BYTES, max / PAGE_BYTES);
    if pages <= max {
        return Ok(());
    }
    Err(format!(
        "the memory may grow to {pages} pages of 64 KiB, allowed are {max} (option memory-bytes-max)"
    ))
}
