//! Which instructions write into the memory, and what they find on the stack.
//!
//! The check of modules and the rewriter share one list: an instruction that is missing
//! here leaves traces from call to call.

use wasmparser::{Operator, ValType};

/// An instruction that writes into the memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Write {
    /// From the stack: an address, to which the number is added, and a value of
    /// this type.
    One(ValType, u64),
    /// From the stack: an address, an `i32`, and a number of bytes.
    Many,
}

/// What an instruction writes, if it does.
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
