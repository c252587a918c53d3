//! Estimates the cost of compiling a module while it is checked.
//!
//! A unit is about a microsecond of the compiler, in the worst case found for each kind of
//! instruction. The time of a compiler grows faster than the code for several reasons: trampolines
//! between host and module for each type and function, local variables that are live in loops, many
//! values on the stack, checks after each float. The estimate includes each of these. So every
//! module below the limits compiles in a few seconds at most, and ordinary modules of the largest
//! size are far below the limits.
//!
//! Invariant: the estimate depends only on the code.

use crate::fault::{Fault, rule};
use crate::host::limits::{WORK_FUNCTION_MAX, WORK_MAX};

/// Units of a type, for its trampoline from the module to the host.
const KIND: u64 = 45;
/// Units of each value that crosses a trampoline.
const VALUE: u64 = 8;
/// Units of a function that can be called from outside of its module, for its trampoline.
const TRAMPOLINE: u64 = 30;
/// Units of the frame of a function.
const FUNCTION: u64 = 30;
/// Number of values on the stack that cost an instruction one more unit, because they are spilled.
const SPILLS: u64 = 32;

/// The estimate so far.
#[derive(Debug, Default)]
pub(crate) struct Work {
    total: u64,
    /// The current function: its position, and its cost so far.
    at: usize,
    here: u64,
    locals: u64,
    loops: u64,
}

impl Work {
    /// A function type.
    pub(crate) fn kind(&mut self, params: usize, results: usize, at: usize) -> Result<(), Fault> {
        self.total += KIND + VALUE * (params + results) as u64;
        self.fits(at)
    }

    /// Functions in a table.
    pub(crate) fn trampolines(&mut self, functions: u64, at: usize) -> Result<(), Fault> {
        self.total += TRAMPOLINE * functions;
        self.fits(at)
    }

    /// Begins a function with these local variables, including parameters.
    pub(crate) fn begin(&mut self, at: usize, locals: u64) -> Result<(), Fault> {
        (self.at, self.here, self.locals, self.loops) = (at, FUNCTION, locals, 0);
        self.function_fits()
    }

    /// Adds an instruction of the function: its first byte, the number of values or targets of its
    /// type or table, and the number of values on the stack before it.
    pub(crate) fn operator(&mut self, first: u8, arity: u64, height: u32) -> Result<(), Fault> {
        let own = match first {
            // A loop may carry each local variable, and each later loop examines it again.
            0x03 => {
                self.loops += 1;
                25 + arity + self.locals * 3 / 4 + self.loops / 16
            }
            // Blocks and branches.
            0x02 | 0x04 | 0x05 | 0x0c..=0x0e => 6 + arity + self.locals / 16,
            // Calls, direct and through a table.
            0x10 => 12 + arity,
            0x11 => 25 + arity,
            // Selections, globals, loads and integer operations.
            0x1b..=0x1c
            | 0x23..=0x24
            | 0x28..=0x35
            | 0x3f
            | 0x45..=0x8a
            | 0xa7
            | 0xac..=0xad
            | 0xbc..=0xc4 => 3,
            // Stores, each with its mark; growth of the memory.
            0x36..=0x3e => 10,
            0x40 => 15,
            // Floats, with a check for NaN; vectors.
            0x8b..=0xbb | 0xfd => 20,
            // Ranges of memory and tables.
            0xfc => 50,
            // Constants, local variables, ends.
            _ => return Ok(()),
        };
        self.here += own + u64::from(height) / SPILLS;
        self.function_fits()
    }

    /// Ends the function.
    pub(crate) fn end(&mut self, at: usize) -> Result<(), Fault> {
        self.total += std::mem::take(&mut self.here);
        self.fits(at)
    }

    /// Units of the module so far.
    pub(crate) fn total(&self) -> u64 {
        self.total
    }

    fn function_fits(&self) -> Result<(), Fault> {
        if self.here <= WORK_FUNCTION_MAX {
            return Ok(());
        }
        rule(format!(
            "the function at byte {} would cost more than {WORK_FUNCTION_MAX} units of work to compile",
            self.at
        ))
    }

    fn fits(&self, at: usize) -> Result<(), Fault> {
        if self.total <= WORK_MAX {
            return Ok(());
        }
        rule(format!(
            "the module up to byte {at} would cost more than {WORK_MAX} units of work to compile"
        ))
    }
}
