//! The rules of function bodies: size, instructions, and what an instance may change.

use wasmparser::{FuncValidator, FunctionBody, Operator, OperatorsReader, ValidatorResources};

use super::{Module, features};
use crate::fault::{Fault, rule};
use crate::host::limits::{
    BRANCHES_MAX, BRANCHES_TOTAL_MAX, FUNCTION_BYTES_MAX, LOCALS_MAX, LOCALS_TOTAL_MAX,
    NESTING_MAX, STACK_UNITS_MAX,
};
use crate::writes::write_of;

/// Units of stack of any function: its return address and the frame of its caller.
const FRAME_UNITS: u64 = 32;
/// Units of stack of a value.
const VALUE_UNITS: u64 = 8;

/// Number of places in a function that an instruction starts or may jump to.
fn branches_of(operator: &Operator<'_>) -> u64 {
    match operator {
        Operator::Block { .. }
        | Operator::Loop { .. }
        | Operator::If { .. }
        | Operator::Br { .. }
        | Operator::BrIf { .. } => 1,
        Operator::BrTable { targets } => 1 + u64::from(targets.len()),
        _ => 0,
    }
}

/// Units of stack of a function. `values` counts its local variables, its parameters and the values
/// on its operand stack. A compiler keeps in the frame what is live across a call, and each such
/// value needs some code.
fn frame(values: u64, body_bytes: usize) -> u32 {
    let units = FRAME_UNITS + VALUE_UNITS * values + body_bytes as u64;
    // The limits of a body keep the sum far below 2^32.
    u32::try_from(units)
        .unwrap_or(u32::MAX)
        .min(STACK_UNITS_MAX)
}

/// The number that a function returns, if it only returns a literal.
fn constant(body: &FunctionBody<'_>) -> Option<i32> {
    let mut operators = body.get_operators_reader().ok()?;
    let Operator::I32Const { value } = operators.read().ok()? else {
        return None;
    };
    let ends = matches!(operators.read(), Ok(Operator::End)) && operators.eof();
    ends.then_some(value)
}

impl Module {
    pub(super) fn body(
        &mut self,
        code: &[u8],
        body: &FunctionBody<'_>,
        function: &mut FuncValidator<ValidatorResources>,
    ) -> Result<(), Fault> {
        let range = body.range();
        let index = self.report.imports.len() as u64 + u64::from(self.report.functions);
        if self.version_function.map(u64::from) == Some(index) {
            self.report.version = constant(body);
        }
        if self.state_version_function.map(u64::from) == Some(index) {
            self.state_version = constant(body);
        }
        self.report.functions += 1;
        self.report.body_bytes += range.len() as u64;
        if range.len() > FUNCTION_BYTES_MAX {
            return rule(format!(
                "a function has {} bytes (at byte {}), allowed are {FUNCTION_BYTES_MAX}",
                range.len(),
                range.start
            ));
        }
        let locals = self.locals(body)?;
        let mut reader = body.get_binary_reader();
        function.read_locals(&mut reader)?;
        reader.set_features(features());
        self.work
            .begin(range.start, u64::from(function.len_locals()).max(locals))?;
        let (mut depth, mut branches) = (0_usize, 0);
        let (mut calls, mut height) = (false, 0);
        let mut operators = OperatorsReader::new(reader);
        while !operators.eof() {
            let (operator, at) = operators.read_with_offset()?;
            branches += branches_of(&operator);
            self.branches_fit(branches, range.start)?;
            match operator {
                Operator::Block { .. } | Operator::Loop { .. } | Operator::If { .. } => depth += 1,
                Operator::End => depth = depth.saturating_sub(1),
                _ => {}
            }
            if depth > NESTING_MAX {
                return rule(format!(
                    "blocks are nested more than {NESTING_MAX} deep (function at byte {})",
                    range.start
                ));
            }
            self.record_effects(&operator);
            let first = code.get(at).copied().unwrap_or_default();
            let arity = self.arity(&operator);
            self.work
                .operator(first, arity, function.operand_stack_height())?;
            function.op(at, &operator)?;
            calls |= self.calls(&operator);
            height = height.max(function.operand_stack_height());
        }
        operators.finish()?;
        self.branches += branches;
        let values = u64::from(function.len_locals()) + u64::from(height);
        let frame = if calls { frame(values, range.len()) } else { 0 };
        self.report.frames.push(frame);
        self.work.end(range.end)
    }

    /// Whether an instruction may call a function of the module.
    fn calls(&self, operator: &Operator<'_>) -> bool {
        match operator {
            Operator::Call { function_index } => {
                *function_index as usize >= self.report.imports.len()
            }
            Operator::CallIndirect { .. } => true,
            _ => false,
        }
    }

    /// Number of local variables of a function, without parameters.
    fn locals(&mut self, body: &FunctionBody<'_>) -> Result<u64, Fault> {
        let range = body.range();
        let mut locals = 0;
        for local in body.get_locals_reader()? {
            locals += u64::from(local?.0);
        }
        self.locals += locals;
        if locals > LOCALS_MAX {
            return rule(format!(
                "a function has {locals} local variables (at byte {}), allowed are {LOCALS_MAX}",
                range.start
            ));
        }
        if self.locals > LOCALS_TOTAL_MAX {
            return rule(format!(
                "the functions up to byte {} have {} local variables, allowed are {LOCALS_TOTAL_MAX}",
                range.end, self.locals
            ));
        }
        Ok(locals)
    }

    /// Records what an instance may change.
    fn record_effects(&mut self, operator: &Operator<'_>) {
        let report = &mut self.report;
        match operator {
            Operator::TableCopy { .. }
            | Operator::TableInit { .. }
            | Operator::ElemDrop { .. }
            | Operator::DataDrop { .. } => report.changes_segments = true,
            Operator::GlobalSet { .. } => report.sets_globals = true,
            Operator::MemoryGrow { .. } => report.stores = true,
            other => report.stores |= write_of(other).is_some(),
        }
        self.version_function_is_referenced |= match operator {
            Operator::Call { function_index } | Operator::RefFunc { function_index } => {
                Some(*function_index) == self.version_function
            }
            _ => false,
        };
        report.refers_to_data |= matches!(
            operator,
            Operator::MemoryInit { .. } | Operator::DataDrop { .. }
        );
    }

    /// Number of values that an instruction reads and writes, by its type or table.
    fn arity(&self, operator: &Operator<'_>) -> u64 {
        use wasmparser::BlockType;
        let kind = match operator {
            Operator::Call { function_index } => self.functions.get(*function_index as usize),
            Operator::CallIndirect { type_index, .. } => Some(type_index),
            Operator::Block { blockty } | Operator::Loop { blockty } | Operator::If { blockty } => {
                match blockty {
                    BlockType::FuncType(index) => Some(index),
                    _ => None,
                }
            }
            Operator::BrTable { targets } => return u64::from(targets.len()),
            _ => None,
        };
        kind.and_then(|kind| self.types.get(*kind as usize))
            .map_or(0, |kind| {
                (kind.params().len() + kind.results().len()) as u64
            })
    }

    /// Checks the number of branches of a function and of the module so far.
    fn branches_fit(&self, here: u64, at: usize) -> Result<(), Fault> {
        if here > BRANCHES_MAX {
            return rule(format!(
                "a function has more than {BRANCHES_MAX} blocks and branches (at byte {at})"
            ));
        }
        if self.branches + here > BRANCHES_TOTAL_MAX {
            return rule(format!(
                "the functions up to the one at byte {at} have more than {BRANCHES_TOTAL_MAX} blocks and branches"
            ));
        }
        Ok(())
    }
}
