//! PSYC 1.0 syntax.
#![forbid(unsafe_code)]
#![no_std]

extern crate alloc;
#[cfg(test)]
extern crate std;

pub mod class;
mod container;
mod dict;
mod error;
mod event;
mod index;
mod limits;
mod list;
mod operator;
mod output;
mod packet;
mod parser;
mod print;
mod render;
mod scan;
mod update;

pub use container::{ContainerError, ContainerErrorKind, Element, Key};
pub use dict::{Dict, DictEvent};
pub use error::{ErrorCode, ParseError};
pub use event::{ParseStep, Variable};
pub use index::{Index, IndexStep};
pub use limits::{LENGTH_DIGITS_MAX, Limits};
pub use list::{List, ListEvent, ListStep, ListStream};
pub use operator::Operator;
pub use packet::{Content, Length, Modifier, Packet, Parts, StateOperation};
pub use parser::{Mode, Parser};
pub use print::{
    Escaped, EventPrinter, ListPrinter, print_dict, print_index, print_update, unescape,
};
pub use render::{RenderError, Renderer};
pub use update::{Update, UpdateEvent};
