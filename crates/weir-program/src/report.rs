//! What is known about a module once it has been checked.

use weir_core::call_context::Image;
use weir_core::{Facts, Setup, StateMode};

use crate::abi::PAGE_BYTES;
use crate::rewrite::Needs;

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

/// Whether a memory may grow to so many bytes.
pub(crate) fn may_grow(bytes: u64, max: u64) -> Result<(), String> {
    let (pages, max) = (bytes / PAGE_BYTES, max / PAGE_BYTES);
    if pages <= max {
        return Ok(());
    }
    Err(format!(
        "the memory may grow to {pages} pages of 64 KiB, allowed are {max} (option memory-bytes-max)"
    ))
}
