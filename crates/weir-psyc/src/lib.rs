//! PSYC 1.0 syntax: bytes to packets and back.
//!
//! Invariants:
//! - The parsers neither copy nor allocate, and never read outside of their input.
//! - A packet ends at the same byte in every mode.
//! - Joined events and the positions of errors do not depend on how the input is split.
//! - Parsing a rendered packet returns an equal packet.
//! - No input bytes cause a panic.
//! - The crate has no I/O and no clock, and applies no operator.
//!
//! The syntax itself is described in `docs/formats/psyc.md` of the repository; its examples are the
//! files in `vectors/psyc`.
//!
#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]
#![no_std]

extern crate alloc;
#[cfg(test)]
extern crate std;

pub mod circuit;
pub mod class;
mod compact;
mod container;
mod dict;
mod error;
mod event;
mod index;
pub mod keyword;
mod limits;
mod list;
mod method;
mod operator;
mod output;
mod packet;
mod packet_id;
mod parser;
mod print;
mod reader;
mod render;
mod routing;
mod scan;
mod structure;
mod table;
mod table_walk;
mod template;
mod uniform;
mod update;
mod vartype;
mod view;

pub use compact::CompactTable;
pub use container::{ContainerError, ContainerErrorKind, Element, Key, Place};
pub use dict::{Dict, DictEvent};
pub use error::{ErrorCode, ParseError};
pub use event::{ParseStep, Variable};
pub use index::{Index, IndexStep};
pub use keyword::{InvalidKeyword, KeywordMap};
pub use limits::{LENGTH_DIGITS_MAX, Limits};
pub use list::{List, ListEvent, ListStep, ListStream};
pub use method::{Method, MethodFamily, MethodFlags, methods};
pub use operator::Operator;
pub use packet::{Content, Length, Modifier, Packet, PacketSource, Parts, StateOperation};
pub use packet_id::{PacketId, PacketIdError};
pub use parser::{Mode, Parser};
pub use print::{
    Escaped, EventPrinter, ListPrinter, print_dict, print_index, print_update, unescape,
};
pub use reader::PacketReader;
pub use render::{Entry, Item, PacketSizes, RenderError, Renderer, Step};
pub use routing::RoutingVariable;
pub use structure::{Field, Fields, StructError, StructType};
pub use table::{Row, Rows, Table, TableError};
pub use table_walk::{TableEvent, TableWalk};
pub use template::{
    Progress, Rendered, Template, TemplatePlace, TemplateWriter, standard_template,
};
pub use uniform::{AnyUniform, HOST_BYTES_MAX, Uniform, UniformError, UniformKind};
pub use update::{Update, UpdateEvent};
pub use vartype::{
    EPOCH, NumberError, VarType, date_from_unix, is_list, parse_date, parse_integer,
    parse_list_index,
};
pub use view::{Modifiers, PacketView};
