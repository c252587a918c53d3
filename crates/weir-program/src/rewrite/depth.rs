//! The stack meter: instructions at the start and the end of a function that calls others.
//!
//! The body becomes a block, so every exit leads to the instructions that return the units: a
//! branch to the label of the function is a branch to the block, and a `return` becomes one. A
//! function that traps returns no units, because its instance is dropped.

use wasm_encoder::{BlockType, Function, Instruction};

/// The global with the remaining units.
#[derive(Clone, Copy)]
pub(super) struct StackBudget(pub(super) u32);

/// The meter of one function.
pub(super) struct Depth {
    stack_budget: StackBudget,
    units: i32,
    block: BlockType,
}

impl Depth {
    /// The meter of a function that uses `units` and has the results of this block.
    pub(super) fn new(stack_budget: StackBudget, units: u32, block: BlockType) -> Self {
        Self {
            stack_budget,
            units: units.cast_signed(),
            block,
        }
    }

    /// Subtracts the units; traps if there are too few. There is at least one unit before, and a
    /// frame has at most all units, so the subtraction cannot wrap.
    pub(super) fn begin(&self, function: &mut Function) {
        use Instruction as I;
        function
            .instruction(&I::GlobalGet(self.stack_budget.0))
            .instruction(&I::I32Const(self.units))
            .instruction(&I::I32Sub)
            .instruction(&I::GlobalSet(self.stack_budget.0))
            .instruction(&I::GlobalGet(self.stack_budget.0))
            .instruction(&I::I32Const(0))
            .instruction(&I::I32LtS)
            .instruction(&I::If(BlockType::Empty))
            .instruction(&I::Unreachable)
            .instruction(&I::End)
            .instruction(&I::Block(self.block));
    }

    /// Ends the block and returns the units.
    pub(super) fn end(&self, function: &mut Function) {
        use Instruction as I;
        function
            .instruction(&I::End)
            .instruction(&I::GlobalGet(self.stack_budget.0))
            .instruction(&I::I32Const(self.units))
            .instruction(&I::I32Add)
            .instruction(&I::GlobalSet(self.stack_budget.0));
    }
}
