//! The instructions before a write: they mark the written piece, with local variables that are
//! added to the function.

use wasm_encoder::{Function, Instruction, ValType};
use weir_core::limits::MEMORY_BYTES_MAX;

use crate::abi::PAGE_BYTES;
use crate::writes::Write;

/// A number of pages that no program may have: the maximum plus one.
const PAGES_TOO_MANY: i32 = 257;
const _: () = assert!(MEMORY_BYTES_MAX / PAGE_BYTES < PAGES_TOO_MANY as u64);

/// The global with the marks.
#[derive(Clone, Copy)]
pub(super) struct Mask {
    pub(super) global: u32,
    pub(super) shift: u32,
}

/// Types of the locals that may be added to a function.
pub(super) const SCRATCH: [ValType; 5] = [
    ValType::I32,
    ValType::I64,
    ValType::F32,
    ValType::F64,
    ValType::V128,
];

/// Converts the type of a value for the encoder.
pub(super) fn value_type(kind: wasmparser::ValType) -> ValType {
    match kind {
        wasmparser::ValType::I64 => ValType::I64,
        wasmparser::ValType::F32 => ValType::F32,
        wasmparser::ValType::F64 => ValType::F64,
        wasmparser::ValType::V128 => ValType::V128,
        _ => ValType::I32,
    }
}

pub(super) fn needs(write: Write, kind: ValType) -> bool {
    match write {
        Write::One(value, _) => kind == ValType::I32 || kind == value_type(value),
        Write::Many => kind == ValType::I32,
    }
}

/// Locals that were added to a function: three of type `i32` (address, value, length), and one of
/// each other type that is needed.
pub(super) struct ScratchLocals {
    address: u32,
    values: Vec<(ValType, u32)>,
}

impl ScratchLocals {
    pub(super) fn new(own: u32, needed: &[ValType], locals: &mut Vec<(u32, ValType)>) -> Self {
        let mut next = own;
        let mut values = Vec::with_capacity(needed.len());
        for kind in needed {
            let count = if *kind == ValType::I32 { 3 } else { 1 };
            locals.push((count, *kind));
            let value = if *kind == ValType::I32 {
                next + 1
            } else {
                next
            };
            values.push((*kind, value));
            next += count;
        }
        Self {
            address: own,
            values,
        }
    }

    fn value(&self, kind: ValType) -> u32 {
        let found = self.values.iter().find(|(known, _)| *known == kind);
        found.map_or(self.address, |(_, local)| *local)
    }

    /// Marks the piece with the first byte of a write. The few bytes after the piece are always
    /// restored together with it.
    pub(super) fn one(&self, function: &mut Function, mask: Mask, kind: ValType, offset: u64) {
        use Instruction as I;
        let value = self.value(kind);
        function
            .instruction(&I::LocalSet(value))
            .instruction(&I::LocalSet(self.address))
            .instruction(&I::GlobalGet(mask.global))
            .instruction(&I::I64Const(1))
            .instruction(&I::LocalGet(self.address));
        // An address that does not fit into 32 bits traps.
        let offset = u32::try_from(offset).unwrap_or(u32::MAX);
        if offset != 0 {
            function
                .instruction(&I::I32Const(offset.cast_signed()))
                .instruction(&I::I32Add);
        }
        mask.piece(function)
            .instruction(&I::I64Shl)
            .instruction(&I::I64Or)
            .instruction(&I::GlobalSet(mask.global))
            .instruction(&I::LocalGet(self.address))
            .instruction(&I::LocalGet(value));
    }

    /// Added before an instruction that grows the memory: limits the requested pages to a number
    /// that is too large for every program. So engines need not distinguish a size beyond the limit
    /// from a size that no memory can have.
    pub(super) fn grow(&self, function: &mut Function) {
        use Instruction as I;
        let too_many = I::I32Const(PAGES_TOO_MANY);
        function
            .instruction(&I::LocalTee(self.address))
            .instruction(&too_many)
            .instruction(&I::LocalGet(self.address))
            .instruction(&too_many)
            .instruction(&I::I32LtU)
            .instruction(&I::Select);
    }

    /// Marks all pieces from the first byte to the last byte: combines a mask of the bits from the
    /// first piece on with a mask of the bits up to the last piece.
    pub(super) fn many(&self, function: &mut Function, mask: Mask) {
        use Instruction as I;
        let (value, length) = (self.address + 1, self.address + 2);
        function
            .instruction(&I::LocalSet(length))
            .instruction(&I::LocalSet(value))
            .instruction(&I::LocalSet(self.address))
            .instruction(&I::GlobalGet(mask.global))
            .instruction(&I::I64Const(-1))
            .instruction(&I::LocalGet(self.address));
        mask.piece(function)
            .instruction(&I::I64Shl)
            .instruction(&I::I64Const(-1))
            .instruction(&I::I64Const(63))
            .instruction(&I::LocalGet(self.address))
            .instruction(&I::LocalGet(length))
            .instruction(&I::I32Add)
            .instruction(&I::I32Const(1))
            .instruction(&I::I32Sub);
        mask.piece(function)
            .instruction(&I::I64Sub)
            .instruction(&I::I64ShrU)
            .instruction(&I::I64And)
            .instruction(&I::I64Or)
            .instruction(&I::GlobalSet(mask.global))
            .instruction(&I::LocalGet(self.address))
            .instruction(&I::LocalGet(value))
            .instruction(&I::LocalGet(length));
    }
}

impl Mask {
    /// Converts an address on the stack into the number of its piece.
    fn piece(self, function: &mut Function) -> &mut Function {
        function
            .instruction(&Instruction::I32Const(self.shift.cast_signed()))
            .instruction(&Instruction::I32ShrU)
            .instruction(&Instruction::I64ExtendI32U)
    }
}
