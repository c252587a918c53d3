//! `nothing`: every write is VALID and leaves no record.
#![no_std]
#![forbid(unsafe_code)]

use weir_guest::{Input, Outcome};

weir_guest::program!(apply);

fn apply(_: &Input) -> Outcome {
    Ok(())
}
