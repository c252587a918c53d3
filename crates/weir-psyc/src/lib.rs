//! PSYC 1.0 syntax.
#![forbid(unsafe_code)]
#![no_std]

extern crate alloc;
#[cfg(test)]
extern crate std;

pub mod class;
mod error;
mod event;
mod limits;
mod operator;
mod output;
mod packet;
mod parser;
mod print;
mod render;
mod scan;

pub use error::{ErrorCode, ParseError};
pub use event::{ParseStep, Variable};
pub use limits::{LENGTH_DIGITS_MAX, Limits};
pub use operator::Operator;
pub use packet::{Content, Length, Modifier, Packet, Parts, StateOperation};
pub use parser::{Mode, Parser};
pub use print::{Escaped, EventPrinter, unescape};
pub use render::{RenderError, Renderer};
