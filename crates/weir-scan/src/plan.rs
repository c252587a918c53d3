//! What to look for in a page, decided once and used for many pages.
//!
//! Invariant: a plan that exists can be carried out; no combination is refused later.

use crate::error::PlanError;
use crate::kernel::{Kernel, Simd};
use crate::path::Path;
use crate::path_set::PathSet;

/// Pages are at most this large: spans count in 32 bits.
pub const PAGE_BYTES_LIMIT: u64 = u32::MAX as u64;

/// Highest limit of nesting.
pub const DEPTH_LIMIT: u32 = 1024;

/// Where the items of a page are.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Shape {
    /// Elements of the array that the page is.
    Array,
    /// Elements of the array at this path; the rest of the envelope is passed over.
    Member(Path),
    /// One value a line; blank lines are ignored, the last line feed may be missing. The span of an
    /// item has no white space around it.
    Lines,
    /// Values one after the other, with white space between or without: as tools print them that lay
    /// values out over several lines. Numbers and words (`true`) end at white space or at what begins
    /// another kind of value.
    Values,
    /// The page is one item; its span is the page, white space included.
    Single,
    /// The caller says where items are, see [`scan_framed`](crate::scan_framed). Their spans stay as
    /// they were given. In [`scan`](crate::scan) it is the same as `Single`.
    Framed,
}

/// How much is promised about every byte of a page.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// Nothing; only for framed and single items without paths.
    None,
    /// Items cannot disturb each other; see the table of the crate.
    #[default]
    Structural,
    /// Each item obeys RFC 8259 entirely.
    Strict,
}

/// What happens with an item that is not JSON, where items are framed independently.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum BadItem {
    /// The page is refused.
    #[default]
    Error,
    /// It is left out and counted.
    Skip,
    /// It is handed on, and all paths in it are undefined.
    Undefined,
}

/// Limits of a scan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Bytes in a page, at most [`PAGE_BYTES_LIMIT`].
    pub page_bytes_max: u64,
    /// Bytes in an item; of an item in an array it is known when its end was found.
    pub item_bytes_max: u64,
    /// Levels of nesting in an item (its own brackets are the first), and in the envelope; at most
    /// [`DEPTH_LIMIT`].
    pub depth_max: u32,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            page_bytes_max: 1 << 30,
            item_bytes_max: 64 << 20,
            depth_max: 512,
        }
    }
}

/// A shape, a level and paths. Immutable and shared between threads as one likes.
#[derive(Clone, Debug)]
pub struct Plan {
    pub(crate) shape: Shape,
    pub(crate) level: Level,
    pub(crate) paths: PathSet,
    pub(crate) limits: Limits,
    pub(crate) bad_item: BadItem,
    pub(crate) kernel: &'static Kernel,
}

impl Plan {
    /// A plan with the default limits and the best kernel of this machine.
    ///
    /// # Errors
    /// More paths than [`PATHS_MAX`](crate::PATHS_MAX), or a level that is too low for them.
    pub fn new(shape: Shape, level: Level, paths: &[Path]) -> Result<Self, PlanError> {
        let framed = matches!(shape, Shape::Single | Shape::Framed);
        if level == Level::None && !(framed && paths.is_empty()) {
            return Err(PlanError::LevelNeedsChecks);
        }
        Ok(Self {
            shape,
            level,
            paths: PathSet::new(paths)?,
            limits: Limits::default(),
            bad_item: BadItem::Error,
            kernel: Kernel::chosen(),
        })
    }

    /// Sets the limits of the plan.
    ///
    /// # Errors
    /// A limit above what the scanner can do.
    pub fn with_limits(mut self, limits: Limits) -> Result<Self, PlanError> {
        if limits.page_bytes_max > PAGE_BYTES_LIMIT || limits.depth_max > DEPTH_LIMIT {
            return Err(PlanError::LimitTooHigh);
        }
        self.limits = limits;
        Ok(self)
    }

    /// Sets what the plan does with bad items.
    ///
    /// # Errors
    /// The shape is neither `Lines` nor `Framed`.
    pub fn with_bad_item(mut self, bad_item: BadItem) -> Result<Self, PlanError> {
        let independent = matches!(self.shape, Shape::Lines | Shape::Framed);
        if bad_item != BadItem::Error && !independent {
            return Err(PlanError::NotIndependent);
        }
        self.bad_item = bad_item;
        Ok(self)
    }

    /// Sets the kernel, for tests and measurements. All kernels give equal results.
    ///
    /// # Errors
    /// This machine does not have it.
    pub fn with_simd(mut self, simd: Simd) -> Result<Self, PlanError> {
        self.kernel = Kernel::of(simd).ok_or(PlanError::NoKernel)?;
        Ok(self)
    }

    /// The paths whose values a scan yields.
    pub fn paths(&self) -> &PathSet {
        &self.paths
    }

    /// Where items are.
    pub fn shape(&self) -> &Shape {
        &self.shape
    }

    /// What happens with bad items.
    pub fn bad_item(&self) -> BadItem {
        self.bad_item
    }

    /// What is checked.
    pub fn level(&self) -> Level {
        self.level
    }
}
