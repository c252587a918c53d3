//! `nothing`: every write is VALID and leaves no record.
#![no_std]

use weir_guest::{Input, Outcome};

weir_guest::program!(apply);

fn apply(_: &Input) -> Outcome {
    Ok(())
}
