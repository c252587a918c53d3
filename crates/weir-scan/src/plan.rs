//! A plan: the items and values to find in a page, built once and used for many pages.
//!
//! Invariant: every plan that exists can be executed; no combination fails later.

use crate::error::PlanError;
use crate::kernel::{Kernel, Simd};
use crate::path::Path;
use crate::path_set::PathSet;

/// Limit on the bytes of a page, because spans count in 32 bits.
pub const PAGE_BYTES_LIMIT: u64 = u32::MAX as u64;

/// The highest limit of nesting that a plan may have.
pub const DEPTH_LIMIT: u32 = 1024;

/// The position of the items in a page.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Shape {
    /// The page is an array; its elements are the items.
    Array,
    /// The elements of the array at this path; the rest of the envelope is skipped.
    Member(Path),
    /// One value per line. Blank lines are ignored; the last line feed may be missing. The span of
    /// an item has no surrounding white space.
    Lines,
    /// Values in sequence, with or without white space between them, as tools print values over
    /// several lines. Numbers and words (`true`) end at white space, or at the first byte of
    /// another kind of value.
    Values,
    /// The page is one item; its span is the page, white space included.
    Single,
    /// The caller provides the spans of the items, see [`scan_framed`](crate::scan_framed). The
    /// spans stay unchanged. In [`scan`](crate::scan), equal to `Single`.
    Framed,
}

/// The level of checks for the bytes of a page.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// No checks; only for framed and single items without paths.
    None,
    /// A faulty item cannot affect other items; see the table of the crate.
    #[default]
    Structural,
    /// Each item conforms to RFC 8259 entirely.
    Strict,
}

/// The treatment of an item that is not JSON, in shapes with independent items.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum BadItem {
    /// The page is rejected.
    #[default]
    Error,
    /// The item is skipped and counted.
    Skip,
    /// The item is returned, and all its paths are undefined.
    Undefined,
}

/// Limits of a scan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Bytes in a page, at most [`PAGE_BYTES_LIMIT`].
    pub page_bytes_max: u64,
    /// Limit on the bytes in an item. In an array, the size of an item is known only at its end.
    pub item_bytes_max: u64,
    /// Limit on the levels of nesting in an item (its own brackets are the first level), and in the
    /// envelope; at most [`DEPTH_LIMIT`].
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

/// A shape, a level and paths. Immutable; threads may share it.
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

    /// Sets the treatment of bad items.
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
    /// This machine lacks the kernel.
    pub fn with_simd(mut self, simd: Simd) -> Result<Self, PlanError> {
        self.kernel = Kernel::of(simd).ok_or(PlanError::NoKernel)?;
        Ok(self)
    }

    /// The paths whose values a scan yields.
    pub fn paths(&self) -> &PathSet {
        &self.paths
    }

    /// The position of the items.
    pub fn shape(&self) -> &Shape {
        &self.shape
    }

    /// The treatment of bad items.
    pub fn bad_item(&self) -> BadItem {
        self.bad_item
    }

    /// The level of checks.
    pub fn level(&self) -> Level {
        self.level
    }
}
