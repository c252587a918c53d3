//! The stack meter: instructions at the begin and the end of a function that
//! calls others.
//!
//! The body becomes a block, so every way out of it leads to the instructions that give the units
//! back: a branch to the function's own label is a branch to the block, and a `return` becomes
//! one. A function that traps gives nothing back, since its instance is thrown away.

use wasm_encoder::{BlockType, Function, Instruction};

/// The global with the units that are left.
#[derive(Clone, Copy)]
pub(super) struct StackBudget(pub(super) u32);

/// The meter of one function.
pub(super) struct Depth {
    room: StackBudget,
    units: i32,
    block: BlockType,
}

impl Depth {
    /// Of a function that takes so many units and has the results of this block.
    pub(super) fn new(room: StackBudget, units: u32, block: BlockType) -> Self {
        Self {
            room,
            units: units.cast_signed(),
            block,
        }
    }

    /// Takes the units; unreachable when there are not enough. There is at least
    /// one unit before, and a frame has no more than all, so nothing wraps.
    pub(super) fn begin(&self, function: &mut Function) {
        use Instruction as I;
        function
            .instruction(&I::GlobalGet(self.room.0))
            .instruction(&I::I32Const(self.units))
            .instruction(&I::I32Sub)
            .instruction(&I::GlobalSet(self.room.0))
            .instruction(&I::GlobalGet(self.room.0))
            .instruction(&I::I32Const(0))
            .instruction(&I::I32LtS)
            .instruction(&I::If(BlockType::Empty))
            .instruction(&I::Unreachable)
            .instruction(&I::End)
            .instruction(&I::Block(self.block));
    }

    /// Ends the block and gives the units back.
    pub(super) fn end(&self, function: &mut Function) {
        use Instruction as I;
        function
            .instruction(&I::End)
            .instruction(&I::GlobalGet(self.room.0))
            .instruction(&I::I32Const(self.units))
            .instruction(&I::I32Add)
            .instruction(&I::GlobalSet(self.room.0));
    }
}
