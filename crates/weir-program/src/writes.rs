//! Which instructions write into the memory, and their operands on the stack.
//!
//! The check of modules and the rewriter share this list. If an instruction is missing here, its
//! writes remain visible to later calls.

use wasmparser::{Operator, ValType};

/// An instruction that writes into the memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Write {
    /// Operands on the stack: an address, to which the number is added, and a value of this type.
    One(ValType, u64),
    /// Operands on the stack: an address, an `i32`, and a number of bytes.
    Many,
}

/// The write of an instruction; `None` if it does not write.
pub(crate) fn write_of(operator: &Operator<'_>) -> Option<Write> {
    use Operator as O;
    Some(match operator {
        O::I32Store { memarg } | O::I32Store8 { memarg } | O::I32Store16 { memarg } => {
            Write::One(ValType::I32, memarg.offset)
        }
        O::I64Store { memarg }
        | O::I64Store8 { memarg }
        | O::I64Store16 { memarg }
        | O::I64Store32 { memarg } => Write::One(ValType::I64, memarg.offset),
        O::F32Store { memarg } => Write::One(ValType::F32, memarg.offset),
        O::F64Store { memarg } => Write::One(ValType::F64, memarg.offset),
        O::V128Store { memarg }
        | O::V128Store8Lane { memarg, .. }
        | O::V128Store16Lane { memarg, .. }
        | O::V128Store32Lane { memarg, .. }
        | O::V128Store64Lane { memarg, .. } => Write::One(ValType::V128, memarg.offset),
        O::MemoryFill { .. } | O::MemoryCopy { .. } | O::MemoryInit { .. } => Write::Many,
        _ => return None,
    })
}
